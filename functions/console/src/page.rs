//! The page: one HTML document and the files that it is made of, compiled in from `page/`. There is no build step.
//!
//! Promises: a file's address names the version of all files, so it may be kept for a year; the document is asked for again
//! each time and costs a 304 while nothing has changed. The policy allows the page's own files and calls to its own origin, and
//! to the issuer's where one is configured; no script or style inside the document, and no way to make markup of text.

use std::sync::LazyLock;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use shared::http::event::{Answer, Incoming};
use shared::http::problem::Problem;
use shared::runtime::config::{ConfigError, optional, required};

const DOCUMENT: &str = include_str!("../page/index.html");

struct File {
    name: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($name:literal)*) => { &[$(File { name: $name, text: include_str!(concat!("../page/", $name)) }),*] };
}

const FILES: &[File] = files!(
    "app.js" "chart.js" "client.js" "conflict.js" "customers.js" "dead-letters.js" "destinations.js" "events.js"
    "exceptions.js" "icon.svg" "invoices.js" "new-order.js" "order.js" "orders.js" "overview.js" "reconcile.js"
    "session.js" "shortfalls.js" "size-run.js" "stock.js" "style.css" "ui.js"
);

impl File {
    /// The text as it is sent: a script or stylesheet without what nobody reads there, a sixth of it: indentation, lines that are
    /// only a comment, blanks around operators. No text in a script goes over several lines; a test holds that.
    fn sent(&self) -> String {
        let blanks: &[&str] = match self.name.rsplit_once('.') {
            Some((_, "js")) => &[" => ", " === ", " !== ", " && ", " || ", " = "],
            Some((_, "css")) => &[", "],
            _ => return self.text.to_owned(),
        };
        let lines = self.text.lines().map(|line| line.trim_start_matches('\t'));
        let is_comment = |line: &str| ["//", "/*", " *"].iter().any(|begin| line.starts_with(begin));
        let kept = lines.filter(|line| !line.is_empty() && !is_comment(line)).flat_map(|line| [line, "\n"]);
        blanks.iter().fold(kept.collect(), |text: String, blank| text.replace(blank, blank.trim()))
    }
}

/// Names all files as they are now. Hex digits of their hash: as many as rule out a chance meeting.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for file in FILES {
        hash.update(file.name);
        hash.update(file.text);
    }
    hex::encode(&hash.finalize()[..8])
});

/// What the page must know of this deployment.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The claim that holds a token's scopes.
    pub scope_claim: String,
    /// How people sign in; `None`: they paste a token.
    pub sign_in: Option<SignIn>,
}

/// An OIDC issuer that knows this page as a public client: authorization code with PKCE, and CORS at its token endpoint.
#[derive(Clone, Debug)]
pub struct SignIn {
    /// Its page; it may carry a query, such as `?audience=…`.
    pub authorize_url: reqwest::Url,
    /// Where the code is exchanged.
    pub token_url: reqwest::Url,
    /// This page's id there. Its redirect address is that of the page, `https://…/console`.
    pub client_id: String,
    /// Scopes to ask for.
    pub scope: String,
    /// Which token the API takes: `access_token` or `id_token`.
    pub token: String,
}

impl Page {
    /// `JWT_SCOPE_CLAIM`; `CONSOLE_OIDC_AUTHORIZE_URL`, `CONSOLE_OIDC_TOKEN_URL` and `CONSOLE_OIDC_CLIENT_ID`, all or none of them;
    /// `CONSOLE_OIDC_SCOPE` (`openid`), `CONSOLE_OIDC_TOKEN` (`access_token`).
    pub fn from_env() -> Result<Self, ConfigError> {
        let scope_claim = required("JWT_SCOPE_CLAIM")?;
        let client_id = optional("CONSOLE_OIDC_CLIENT_ID", String::new())?;
        if client_id.is_empty() {
            for name in ["CONSOLE_OIDC_AUTHORIZE_URL", "CONSOLE_OIDC_TOKEN_URL"] {
                if !optional(name, String::new())?.is_empty() {
                    return Err(ConfigError::new(
                        "CONSOLE_OIDC_CLIENT_ID",
                        format!("is missing, though {name} is set"),
                    ));
                }
            }
            return Ok(Self { scope_claim, sign_in: None });
        }
        let token = optional("CONSOLE_OIDC_TOKEN", String::from("access_token"))?;
        if !["access_token", "id_token"].contains(&token.as_str()) {
            return Err(ConfigError::new(
                "CONSOLE_OIDC_TOKEN",
                "is wrong: it is `access_token` or `id_token`",
            ));
        }
        let sign_in = SignIn {
            authorize_url: address("CONSOLE_OIDC_AUTHORIZE_URL")?,
            token_url: address("CONSOLE_OIDC_TOKEN_URL")?,
            client_id,
            scope: optional("CONSOLE_OIDC_SCOPE", String::from("openid"))?,
            token,
        };
        Ok(Self { scope_claim, sign_in: Some(sign_in) })
    }

    /// The document: 200, or 304 to whoever has it.
    pub fn document(&self, incoming: &Incoming) -> Answer {
        let files = format!("console/{}", *VERSION);
        let settings = self.settings().to_string();
        let etag = tag(&[VERSION.as_bytes(), settings.as_bytes()]);
        let body = DOCUMENT.replace("{files}", &files).replace("{settings}", &escaped(&settings));
        let mut headers = headers("no-cache");
        headers.push(("content-security-policy", self.policy()));
        answer(incoming, "text/html; charset=utf-8", body, etag, headers)
    }

    fn settings(&self) -> Value {
        let sign_in = self.sign_in.as_ref().map(|issuer| {
            json!({"authorizeUrl": issuer.authorize_url.as_str(), "tokenUrl": issuer.token_url.as_str(),
                "clientId": issuer.client_id, "scope": issuer.scope, "token": issuer.token})
        });
        json!({"scopeClaim": self.scope_claim, "signIn": sign_in})
    }

    fn policy(&self) -> String {
        let issuer = self.sign_in.as_ref().map(|issuer| issuer.token_url.origin().ascii_serialization());
        format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{}; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            issuer.map(|origin| format!(" {origin}")).unwrap_or_default()
        )
    }
}

/// One of the files: 200, 304 or 404. Another version than this one is served too, since sandboxes of two releases run side by
/// side while one is deployed; it must not be kept.
pub fn file(incoming: &Incoming, version: &str, name: &str) -> Result<Answer, Problem> {
    let file = FILES.iter().find(|file| file.name == name).ok_or_else(Problem::not_found)?;
    let content_type = match name.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "image/svg+xml",
    };
    let kept = if version == *VERSION { "public, max-age=31536000, immutable" } else { "no-store" };
    let text = file.sent();
    let tag = tag(&[text.as_bytes()]);
    Ok(answer(incoming, content_type, text, tag, headers(kept)))
}

fn address(name: &'static str) -> Result<reqwest::Url, ConfigError> {
    let url = reqwest::Url::parse(&required(name)?).ok();
    let fits = url.filter(|url| matches!(url.scheme(), "https" | "http") && url.has_host());
    fits.ok_or_else(|| ConfigError::new(name, "is wrong: it must be an http(s) address"))
}

fn tag(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    format!("\"{}\"", hex::encode(&hash.finalize()[..8]))
}

/// For an attribute in double quotes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

fn headers(kept: &str) -> Vec<(&'static str, String)> {
    vec![
        ("cache-control", kept.into()),
        ("x-content-type-options", "nosniff".into()),
        ("referrer-policy", "no-referrer".into()),
    ]
}

fn answer(
    incoming: &Incoming,
    content_type: &str,
    body: String,
    etag: String,
    headers: Vec<(&'static str, String)>,
) -> Answer {
    let known = incoming.headers.get_all(http::header::IF_NONE_MATCH).iter();
    let tags = known.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    // A gateway may weaken a tag; for a 304 the weak comparison is the right one.
    let is_known = tags.map(str::trim).any(|known| known.strip_prefix("W/").unwrap_or(known) == etag);
    let (status, body) = if is_known { (304, String::new()) } else { (200, body) };
    Answer { etag: Some(etag), headers, ..Answer::new(status, content_type, body) }
}
