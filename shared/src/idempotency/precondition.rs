//! Versioned documents: nobody's edit is lost. A save names the version it was made on, as `baseVersion` in the body or
//! as `If-Match`; the compare-and-swap itself is SQL (`holdfast.save_order`, `holdfast.save_style`).

use http::HeaderMap;
use serde_json::{Value, json};

use crate::http::json::MAX_SAFE_INTEGER;
use crate::http::problem::Problem;

/// Versions a client may name.
pub const VERSION_RANGE: std::ops::RangeInclusive<i64> = 1..=MAX_SAFE_INTEGER;

/// Which versions a save may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// `If-Match: *`: whatever there is.
    any: bool,
    /// Opaque texts of the strong tags.
    tags: Vec<String>,
    /// What a failure is answered with: 409 for `baseVersion`, 412 for `If-Match`.
    status: u16,
    /// The one version named, to be shown beside the current one.
    yours: Option<i64>,
}

impl Precondition {
    /// From `If-Match` and `baseVersion`, of which one must be there; both must agree.
    ///
    /// # Errors
    /// 428 `version_required`, 400 `version_mismatch`; neither touches the key.
    pub fn read(headers: &HeaderMap, base_version: Option<i64>) -> Result<Self, Problem> {
        let if_match = if_match(headers);
        match (if_match, base_version) {
            (None, None) => Err(Problem::version_required()),
            (None, Some(version)) => {
                Ok(Self { any: false, tags: vec![version.to_string()], status: 409, yours: Some(version) })
            }
            (Some(Matching { any, tags }), None) => {
                let yours = match tags.as_slice() {
                    [only] => only.parse().ok(),
                    _ => None,
                };
                Ok(Self { any, tags, status: 412, yours })
            }
            (Some(Matching { any, tags }), Some(version)) => {
                let version_tag = version.to_string();
                if !any && !tags.contains(&version_tag) {
                    return Err(Problem::version_mismatch());
                }
                Ok(Self { any: false, tags: vec![version_tag], status: 412, yours: Some(version) })
            }
        }
    }

    /// The base version as part of the request's fingerprint.
    pub fn base_version(&self) -> String {
        if self.any { "*".into() } else { self.tags.join("\n") }
    }

    /// As `holdfast.matches` takes it.
    pub fn to_json(&self) -> Value {
        json!({"any": self.any, "tags": self.tags, "status": self.status, "yours": self.yours})
    }
}

/// What an `If-Match` header says; malformed or weak only: no tag, which matches nothing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Matching {
    any: bool,
    tags: Vec<String>,
}

fn if_match(headers: &HeaderMap) -> Option<Matching> {
    let lines: Vec<_> = headers.get_all(http::header::IF_MATCH).iter().collect();
    if lines.is_empty() {
        return None;
    }
    // Lines of one field are one list (RFC 9110, 5.3).
    let joined: Option<Vec<&str>> = lines.iter().map(|line| line.to_str().ok()).collect();
    let joined = joined.map(|lines| lines.join(","));
    Some(joined.as_deref().and_then(parse).unwrap_or_default())
}

/// RFC 9110, 13.1.1: `*` or a list of entity tags; `None` where it is malformed. Weak tags are read and dropped, since
/// If-Match compares strongly.
fn parse(text: &str) -> Option<Matching> {
    let mut rest = text.trim_matches([' ', '\t']);
    if rest == "*" {
        return Some(Matching { any: true, tags: Vec::new() });
    }
    let mut tags = Vec::new();
    let mut found = false;
    while !rest.is_empty() {
        rest = rest.trim_start_matches([' ', '\t']);
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
            continue;
        }
        let (weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |quoted| (true, quoted));
        let (tag, after) = quoted.strip_prefix('"')?.split_once('"')?;
        if !tag.bytes().all(|b| b == 0x21 || (0x23..=0x7e).contains(&b)) {
            return None;
        }
        found = true;
        if !weak {
            tags.push(tag.to_owned());
        }
        rest = after.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
    found.then_some(Matching { any: false, tags })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::IF_MATCH, value.parse().expect("a header value"))])
    }

    fn matches(value: &str, version: i64) -> bool {
        let read = Precondition::read(&headers(value), None).expect("a precondition");
        assert_eq!(read.status, 412);
        read.any || read.tags.contains(&version.to_string())
    }

    #[test]
    fn if_match_compares_strongly_and_a_malformed_one_matches_nothing() {
        for value in
            [r#""7""#, "*", r#""6", "7""#, r#""6","7",,"#, r#"W/"6", "7""#, r#" , "7""#, r#""a,b","7""#]
        {
            assert!(matches(value, 7), "{value}");
        }
        for value in [
            r#"W/"7""#,
            "7",
            "",
            r#""7--gzip""#,
            r#""7";q=1"#,
            r#""07""#,
            r#""7" "8""#,
            r#""7"#,
            r#"*, "7""#,
            r#"w/"7""#,
            ",",
            r#""6""#,
        ] {
            assert!(!matches(value, 7), "{value}");
        }
    }

    #[test]
    fn one_version_is_needed_and_two_must_agree() {
        assert_eq!(
            Precondition::read(&HeaderMap::new(), None).expect_err("neither").error,
            "version_required"
        );
        assert_eq!(
            Precondition::read(&headers(r#""7""#), Some(8)).expect_err("differ").error,
            "version_mismatch"
        );
        let both = Precondition::read(&headers(r#""7""#), Some(7)).expect("agree");
        assert_eq!(both.to_json(), json!({"any": false, "tags": ["7"], "status": 412, "yours": 7}));
        let body = Precondition::read(&HeaderMap::new(), Some(7)).expect("body");
        assert_eq!(body.to_json(), json!({"any": false, "tags": ["7"], "status": 409, "yours": 7}));
    }
}
