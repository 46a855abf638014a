//! The `Idempotency-Key` header: bare, as Stripe and most clients send it, or quoted, as the IETF draft defines it (a
//! structured-field String). `"k"` and `k` are the same key.

use http::HeaderMap;

use crate::http::problem::Problem;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Stripe's limit; counted after unquoting.
const MAX_CHARS: usize = 255;

/// Reads the key of a request: 400 `idempotency_key_invalid`.
pub(crate) fn read(headers: &HeaderMap) -> Result<String, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let value = values
        .next()
        .ok_or_else(|| Problem::key_invalid("Send an Idempotency-Key: a new UUID for each new request."))?;
    if values.next().is_some() {
        return Err(Problem::key_invalid("Idempotency-Key was sent twice; send one."));
    }
    let text =
        value.to_str().map_err(|_| Problem::key_invalid("Idempotency-Key may hold visible ASCII only."))?;
    parse(text).map_err(Problem::key_invalid)
}

/// Unquotes and checks a header value; the error is a sentence for the client.
pub fn parse(value: &str) -> Result<String, &'static str> {
    let value = value.trim_matches([' ', '\t']);
    let key = if let Some(rest) = value.strip_prefix('"') { unquote(rest)? } else { bare(value)? };
    match key.len() {
        0 => Err("Idempotency-Key is empty; send a new UUID for each new request."),
        1..=MAX_CHARS => Ok(key),
        _ => Err("Idempotency-Key is longer than 255 characters."),
    }
}

fn bare(value: &str) -> Result<String, &'static str> {
    if value.contains(',') {
        // API Gateway joins the values of a repeated header with a comma.
        return Err("Idempotency-Key holds a comma: it was sent twice, or must be quoted.");
    }
    if value.bytes().all(|b| b.is_ascii_graphic() && b != b'"') {
        Ok(value.to_owned())
    } else {
        Err("A bare Idempotency-Key may hold visible ASCII only; quote it to use spaces.")
    }
}

/// RFC 8941 section 4.2.5, after the opening quote. Nothing may follow the closing quote: no parameters, no list.
fn unquote(rest: &str) -> Result<String, &'static str> {
    const BAD: &str = "Idempotency-Key is badly quoted; see RFC 8941 Strings.";
    let mut key = String::with_capacity(rest.len());
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' if characters.as_str().is_empty() => return Ok(key),
            '"' => return Err(BAD),
            '\\' => match characters.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err(BAD),
            },
            ' '..='~' => key.push(character),
            _ => return Err(BAD),
        }
    }
    Err(BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_bare_are_one_key() {
        assert_eq!(parse(r#""k""#), parse("k"));
        assert_eq!(parse("  k\t"), Ok("k".into()));
        assert_eq!(parse(r#""a,b \"c\" \\""#), Ok(r#"a,b "c" \"#.into()));
        assert_eq!(parse(&"k".repeat(255)).map(|k| k.len()), Ok(255));
    }

    #[test]
    fn what_is_not_one_key_is_refused() {
        let long = "k".repeat(256);
        let quoted_long = format!("\"{long}\"");
        for value in [
            "",
            "  ",
            "\"\"",
            &long,
            &quoted_long,
            "a,b",
            "k1, k2",
            "a b",
            "a\"b",
            "\"a",
            "a\"",
            "\"a\"b",
            "\"a\";p=1",
            "\"a\", \"b\"",
            "\"\\n\"",
            "\"\\",
            "\"é\"",
            "é",
            "a\tb",
            "\"a\tb\"",
            "\u{7f}",
        ] {
            assert!(parse(value).is_err(), "{value:?}");
        }
    }
}
