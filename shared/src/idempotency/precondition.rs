//! Optimistic concurrency: a save names the version that it is based on, as `baseVersion` in the body or as `If-Match`, so
//! that no edit is lost. The compare-and-swap itself is SQL (`holdfast.save_order`, `holdfast.save_style`).

use http::HeaderMap;
use serde_json::{Value, json};

use crate::http::json::MAX_SAFE_INTEGER;
use crate::http::problem::Problem;

pub(crate) const VERSION_RANGE: std::ops::RangeInclusive<i64> = 1..=MAX_SAFE_INTEGER;

/// The versions that a save may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    any: bool,
    /// Strong entity tags without quotes; a version is its own tag.
    tags: Vec<String>,
    /// Status if it fails: 409 for `baseVersion`, 412 for `If-Match`.
    status: u16,
    /// The version named, if only one is; a refusal shows it beside the current one.
    yours: Option<i64>,
}

impl Precondition {
    /// Needs `If-Match` or `baseVersion`, or both if they agree: 428 `version_required`, 400 `version_mismatch`; both leave
    /// the key unused.
    pub fn read(headers: &HeaderMap, base_version: Option<i64>) -> Result<Self, Problem> {
        match (read_if_match(headers), base_version) {
            (None, None) => Err(Problem::version_required()),
            (None, Some(version)) => {
                Ok(Self { any: false, tags: vec![version.to_string()], status: 409, yours: Some(version) })
            }
            (Some(IfMatch { any, tags }), None) => Ok(Self::of_if_match(IfMatch { any, tags })),
            (Some(IfMatch { any, tags }), Some(version)) => {
                let version_tag = version.to_string();
                if !any && !tags.contains(&version_tag) {
                    return Err(Problem::version_mismatch());
                }
                Ok(Self { any: false, tags: vec![version_tag], status: 412, yours: Some(version) })
            }
        }
    }

    /// `If-Match` of a request that needs no version: honoured where it is there.
    pub fn optional(headers: &HeaderMap) -> Option<Self> {
        read_if_match(headers).map(Self::of_if_match)
    }

    fn of_if_match(IfMatch { any, tags }: IfMatch) -> Self {
        let yours = match tags.as_slice() {
            // The same rule as the comparison's: a tag that is no version in its one form matches none.
            [only] => only
                .parse()
                .ok()
                .filter(|version: &i64| VERSION_RANGE.contains(version) && version.to_string() == *only),
            _ => None,
        };
        Self { any, tags, status: 412, yours }
    }

    pub(crate) fn fingerprinted(&self) -> String {
        if self.any { "*".into() } else { self.tags.join("\n") }
    }

    /// The argument of `holdfast.matches`.
    pub fn to_json(&self) -> Value {
        json!({"any": self.any, "tags": self.tags, "status": self.status, "yours": self.yours})
    }
}

/// An `If-Match` header. If it is malformed or has only weak tags, `tags` is empty and matches no version.
#[derive(Debug, Default, PartialEq, Eq)]
struct IfMatch {
    any: bool,
    tags: Vec<String>,
}

fn read_if_match(headers: &HeaderMap) -> Option<IfMatch> {
    let lines: Vec<_> = headers.get_all(http::header::IF_MATCH).iter().collect();
    if lines.is_empty() {
        return None;
    }
    // Several lines of one field are one list (RFC 9110 section 5.3).
    let joined: Option<Vec<&str>> = lines.iter().map(|line| line.to_str().ok()).collect();
    let joined = joined.map(|lines| lines.join(","));
    Some(joined.as_deref().and_then(parse_if_match).unwrap_or_default())
}

/// `*` or a list of entity tags; `None` if malformed. Weak tags are dropped, since `If-Match` compares strongly (RFC 9110
/// section 13.1.1).
fn parse_if_match(text: &str) -> Option<IfMatch> {
    let mut rest = text.trim_matches([' ', '\t']);
    if rest == "*" {
        return Some(IfMatch { any: true, tags: Vec::new() });
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
    found.then_some(IfMatch { any: false, tags })
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
    fn only_a_version_in_its_one_form_is_shown_as_yours() {
        let yours = |value: &str| Precondition::optional(&headers(value)).expect("a precondition").yours;
        assert_eq!(yours(r#""7""#), Some(7));
        for value in [r#""07""#, r#""+7""#, r#""-7""#, r#""0""#, r#""7", "8""#, "*", r#"W/"7""#] {
            assert_eq!(yours(value), None, "{value}");
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
