//! Checks of arguments: what the database would take, and nobody could use.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A shop's own domain at Shopify ends with this.
const SHOPIFY: &str = ".myshopify.com";
/// As the API takes.
const REASON_MAX_CHARS: usize = 2_000;
/// Standard Webhooks.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A name that people see, without blanks around it.
pub fn name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        Err("a name must not be blank".into())
    } else if text.contains(char::is_control) {
        Err("a name is one line, without control characters".into())
    } else {
        Ok(text.to_owned())
    }
}

/// Why somebody does something, as it is kept: 1 to 2,000 characters.
pub fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if (1..=REASON_MAX_CHARS).contains(&text.chars().count()) {
        Ok(text.to_owned())
    } else {
        Err(format!("a reason is 1 to {REASON_MAX_CHARS} characters"))
    }
}

/// An address to which a mail can be sent. Whether it exists is not known.
pub fn email(text: &str) -> Result<String, String> {
    let text = text.trim();
    let wrong = |c: char| c.is_whitespace() || c.is_control() || [',', ';', '<', '>', '"'].contains(&c);
    let (local, domain) = text.split_once('@').unwrap_or_default();
    let is_domain = !domain.contains('@') && domain.split('.').all(|label| !label.is_empty());
    if local.is_empty() || !is_domain || text.contains(wrong) {
        return Err(
            "a mail address is name@domain: one of them, without blanks, commas and angle brackets".into()
        );
    }
    Ok(text.to_owned())
}

/// `name.myshopify.com`, in lower case.
pub fn shop_domain(text: &str) -> Result<String, String> {
    let domain = text.trim().to_lowercase();
    if is_shop_domain(&domain) {
        return Ok(domain);
    }
    let host = domain.split_once("://").map_or(domain.as_str(), |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    let hint = if host != domain && is_shop_domain(host) {
        format!("give only {host}")
    } else {
        "the shop's admin shows it under Settings, Domains".into()
    };
    Err(format!("a shop's domain at Shopify is name{SHOPIFY}, and nothing else: {hint}"))
}

fn is_shop_domain(domain: &str) -> bool {
    let name = domain.strip_suffix(SHOPIFY).unwrap_or_default();
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.bytes().all(allowed) && !name.is_empty() && !name.starts_with('-')
}

/// An https address without a query, without a slash at its end. (The functions allow plain http where `DESTINATION_ALLOW`
/// says so; a stack for development sets it up by itself.)
pub fn inventory_url(text: &str) -> Result<String, String> {
    let text = text.trim().trim_end_matches('/');
    let host = text.strip_prefix("https://").unwrap_or_default();
    if host.is_empty()
        || host.starts_with('/')
        || text.contains(['?', '#', '@'])
        || text.contains(char::is_whitespace)
    {
        return Err("the address is https://host/path, without a query or a password".into());
    }
    Ok(text.to_owned())
}

/// What can be sent as a bearer token. The error shows nothing of it.
pub fn token(text: &str) -> Result<(), String> {
    let visible = |byte: u8| (b'!'..=b'~').contains(&byte);
    if text.is_empty() || !text.bytes().all(visible) {
        return Err("it must be visible ASCII characters".into());
    }
    Ok(())
}

/// A secret of Standard Webhooks: base64, usually after `whsec_`. The error shows nothing of it.
pub fn secret(text: &str) -> Result<(), String> {
    let Ok(bytes) = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)) else {
        return Err("it must be base64, with or without `whsec_` before it".into());
    };
    if SECRET_BYTES.contains(&bytes.len()) {
        return Ok(());
    }
    let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
    Err(format!("it must be {least} to {most} bytes in base64; this one is {} bytes", bytes.len()))
}

/// The client secret of a shop's app. The error shows nothing of it.
pub fn shop_secret(text: &str) -> Result<(), String> {
    if (8..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && b != b',') {
        Ok(())
    } else {
        Err("it must be 8 to 255 visible characters without commas, as Shopify shows it".into())
    }
}

/// A connected account's id, as Stripe writes it.
pub(super) fn stripe_account(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("acct_").unwrap_or_default();
    if !rest.is_empty() && rest.len() <= 250 && rest.bytes().all(|b| b.is_ascii_alphanumeric()) {
        Ok(text.to_owned())
    } else {
        Err("an account's id is acct_ and letters and digits".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_mail_addresses_are_told_from_others() {
        assert_eq!(name(" Birch & Sons ").as_deref(), Ok("Birch & Sons"));
        for wrong in ["", " \t", "two\nlines"] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
        for address in ["ana@birch.example", "a+b@localhost", "josé@birch.example", " ana@birch.example "] {
            assert_eq!(email(address).as_deref(), Ok(address.trim()), "{address}");
        }
        for wrong in [
            "",
            "ana",
            "@birch.example",
            "ana@",
            "ana@birch..example",
            "ana@.",
            "a@b@c",
            "ana lima@birch.example",
            "ana@birch.example,ben@birch.example",
            "Ana <ana@birch.example>",
            "ana@birch.example\r\nbcc:x@y",
        ] {
            assert!(email(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_shop_is_named_by_its_domain_at_shopify_alone() {
        assert_eq!(shop_domain("Birch-1.MyShopify.com").as_deref(), Ok("birch-1.myshopify.com"));
        for (wrong, hint) in [
            ("https://Birch.myshopify.com/admin", "give only birch.myshopify.com"),
            ("birch.myshopify.com/", "give only birch.myshopify.com"),
            ("shop.birch.example", "Settings, Domains"),
            (".myshopify.com", "Settings, Domains"),
            ("a.b.myshopify.com", "Settings, Domains"),
            ("", "Settings, Domains"),
        ] {
            let told = shop_domain(wrong).expect_err(wrong);
            assert!(told.contains(hint), "{told}");
        }
    }

    #[test]
    fn a_secret_has_a_length_that_is_safe_and_is_not_shown() {
        for length in [24, 32, 64] {
            assert_eq!(secret(&format!("whsec_{}", STANDARD.encode(vec![7; length]))), Ok(()));
        }
        assert_eq!(secret(&STANDARD.encode([7; 24])), Ok(()));
        for length in [0, 5, 23, 65] {
            let told =
                secret(&format!("whsec_{}", STANDARD.encode(vec![7; length]))).expect_err("a wrong length");
            assert!(told.contains(&format!("this one is {length} bytes")), "{told}");
        }
        let told = secret("whsec_not base64").expect_err("no base64");
        assert!(told.contains("base64") && !told.contains("not base64"), "{told}");
    }
}
