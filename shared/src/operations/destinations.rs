//! Destinations: who is owed which events, and where they are.
//!
//! Promises: an address is saved only where [`Guard`] lets it be called; a secret is made here, leaves only through the
//! one route that reads it, and is neither recorded under a key nor audited.
//! Relies on: `migrations/functions/7_operations/destinations.sql`, and [`crate::idempotency::once::once`] around each deed.

use base64::Engine as _;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::db::call::Statement;
use crate::delivery::address::Guard;
use crate::http::fields::{Fields, uuid};
use crate::http::json::BodyError;
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query};
use crate::idempotency::endpoint::Parsed;

/// What a destination may subscribe to, beside `*` for all.
pub const EVENT_TYPES: [&str; 15] = [
    "order.created",
    "order.saved",
    "order.cancelled",
    "order.shipped",
    "order.line_allocated",
    "order.line_released",
    "style.saved",
    "sku.ats_changed",
    "invoice.created",
    "invoice.paid",
    "invoice.refunded",
    "inventory.shortfall",
    "inbox.exception",
    "destination.disabled",
    "destination.recovered",
];

/// What kinds of destinations there are.
const KINDS: [&str; 3] = ["webhook", "shopify_inventory", "email"];
/// What a person may set a destination to.
const DESTINATION_STATES: [&str; 3] = ["active", "paused", "disabled"];
/// Both secrets sign for so long after a rotation: time for a partner to roll over.
pub const ROTATION_OVERLAP_HOURS: u32 = 24;
/// Bytes of a signing secret: Standard Webhooks takes 24 … 64.
const SECRET_BYTES: usize = 32;
const NAME_MAX_CHARS: usize = 200;
const TOKEN_MAX_CHARS: usize = 500;
const LOCATION_MAX_CHARS: usize = 255;

/// A request to create or to change a destination, checked but for its address.
#[derive(Debug)]
pub struct DestinationFields {
    written: Map<String, Value>,
    /// Kept apart from what is audited: the shop's access token, or the secret that was made for it.
    secret: Option<String>,
    /// Why what its name stands for just now may not be called.
    looked_up: Option<String>,
}

/// Reads the body of `POST /admin/destinations`.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_create(body: &Value) -> Parsed<DestinationFields> {
    let mut reader = DestinationReader::default();
    if let Some(mut fields) = Fields::open(body, "", &mut reader.errors) {
        let kind = reader.kind(&mut fields);
        for name in ["name", "eventTypes"] {
            fields.required(name, &mut reader.errors);
        }
        if kind != Some("email") {
            fields.required("url", &mut reader.errors);
        }
        reader.rest(&mut fields);
        if kind == Some("shopify_inventory") {
            if reader.written.get("ordered") == Some(&Value::Bool(true)) {
                fields.wrong("ordered", "pushes of inventory have no order", &mut reader.errors);
            }
        } else if reader.secret.is_some() {
            fields.wrong("accessToken", "is only for shopify_inventory", &mut reader.errors);
        }
        fields.finish(&mut reader.errors);
        reader.written.entry("url").or_insert_with(|| "".into());
        if kind == Some("webhook") {
            reader.secret = Some(new_secret());
        }
    }
    reader.done()
}

/// Reads the body of `PATCH /admin/destinations/{id}`: any of the members but `kind`, and `state`.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_change(body: &Value) -> Parsed<DestinationFields> {
    let mut reader = DestinationReader::default();
    if let Some(mut fields) = Fields::open(body, "", &mut reader.errors) {
        reader.rest(&mut fields);
        reader.one_of(&mut fields, "state", &DESTINATION_STATES);
        fields.finish(&mut reader.errors);
    }
    reader.done()
}

#[derive(Default)]
struct DestinationReader {
    written: Map<String, Value>,
    secret: Option<String>,
    errors: Vec<BodyError>,
}

impl DestinationReader {
    fn kind(&mut self, fields: &mut Fields<'_>) -> Option<&'static str> {
        fields.required("kind", &mut self.errors)?;
        self.one_of(fields, "kind", &KINDS)
    }

    fn one_of(
        &mut self,
        fields: &mut Fields<'_>,
        name: &'static str,
        allowed: &[&'static str],
    ) -> Option<&'static str> {
        let value = fields.optional(name)?;
        let found = allowed.iter().copied().find(|allowed| value.as_str() == Some(allowed));
        match found {
            Some(found) => _ = self.written.insert(name.into(), found.into()),
            None => {
                fields.wrong(name, format!("must be one of {}", allowed.join(", ")), &mut self.errors);
            }
        }
        found
    }

    /// A text of 1 … `max_chars` characters; null only where it clears.
    fn text(&mut self, fields: &mut Fields<'_>, name: &'static str, max_chars: usize, clears: bool) {
        let Some(value) = fields.optional(name) else { return };
        let fits = value.as_str().is_some_and(|t| !t.trim().is_empty() && t.chars().count() <= max_chars);
        if fits || (clears && value.is_null()) {
            self.written.insert(name.into(), value.clone());
        } else {
            fields.wrong(name, format!("must be a string of 1 to {max_chars} characters"), &mut self.errors);
        }
    }

    fn rest(&mut self, fields: &mut Fields<'_>) {
        self.text(fields, "name", NAME_MAX_CHARS, false);
        self.text(fields, "url", 2_048, false);
        self.text(fields, "locationId", LOCATION_MAX_CHARS, true);
        self.text(fields, "accessToken", TOKEN_MAX_CHARS, false);
        self.secret = match self.written.remove("accessToken") {
            Some(Value::String(token)) if token.bytes().all(|b| b.is_ascii_graphic()) => Some(token),
            Some(_) => {
                fields.wrong("accessToken", "must be visible ASCII", &mut self.errors);
                None
            }
            None => None,
        };
        self.event_types(fields);
        if let Some(value) = fields.optional("customerId") {
            match value.as_str().and_then(uuid) {
                Some(id) => _ = self.written.insert("customerId".into(), json!(id)),
                None if value.is_null() => _ = self.written.insert("customerId".into(), Value::Null),
                None => fields.wrong("customerId", "must be a UUID or null", &mut self.errors),
            }
        }
        if let Some(value) = fields.optional("ordered") {
            if value.is_boolean() {
                self.written.insert("ordered".into(), value.clone());
            } else {
                fields.wrong("ordered", "must be true or false", &mut self.errors);
            }
        }
        if let Some(attempts) = fields.optional_integer("maxAttempts", 1..=100, &mut self.errors) {
            self.written.insert("maxAttempts".into(), attempts.into());
        }
        if fields.optional("maxPerSecond").is_some_and(Value::is_null) {
            self.written.insert("maxPerSecond".into(), Value::Null);
        } else if let Some(pace) = fields.optional_integer("maxPerSecond", 1..=1_000, &mut self.errors) {
            self.written.insert("maxPerSecond".into(), pace.into());
        }
    }

    fn event_types(&mut self, fields: &mut Fields<'_>) {
        if !fields.has("eventTypes") {
            fields.optional("eventTypes");
            return;
        }
        let Some(items) = fields.array("eventTypes", 1..=50, &mut self.errors) else { return };
        for (index, item) in items.iter().enumerate() {
            if item.as_str().is_none_or(|name| name != "*" && !EVENT_TYPES.contains(&name)) {
                let message = format!("must be \"*\" or one of {}", EVENT_TYPES.join(", "));
                self.errors.push(BodyError { path: format!("/eventTypes/{index}"), message });
            }
        }
        self.written.insert("eventTypes".into(), items.clone().into());
    }

    fn done(self) -> Parsed<DestinationFields> {
        if self.errors.is_empty() {
            Ok(DestinationFields { written: self.written, secret: self.secret, looked_up: None })
        } else {
            Err(self.errors)
        }
    }
}

impl DestinationFields {
    /// Whether the address that the request names may be called. An email destination has none, or `mailto:` with the
    /// sender's address. What a name stands for changes, so that is held against the request only when its key is new:
    /// a request that was answered before gets the same answer.
    ///
    /// # Errors
    /// What is wrong with it, at `/url`; the key stays unused.
    pub async fn check_address(&mut self, guard: &Guard) -> Result<(), Vec<BodyError>> {
        let Some(url) = self.written.get("url").and_then(Value::as_str).filter(|url| !url.is_empty()) else {
            return Ok(());
        };
        let wrong = |message: String| BodyError { path: "/url".into(), message };
        let kind = self.written.get("kind").and_then(Value::as_str);
        if let Some(sender) = url.strip_prefix("mailto:").filter(|_| matches!(kind, None | Some("email"))) {
            let parts = sender.split_once('@');
            if parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
                && sender
                    .bytes()
                    .all(|b| b.is_ascii_graphic() && !matches!(b, b',' | b';' | b'<' | b'>' | b'"'))
            {
                return Ok(());
            }
            return Err(vec![wrong("must name one address".into())]);
        }
        guard.url(url).map_err(|message| vec![wrong(message)])?;
        self.looked_up = guard.check(url).await.err();
        Ok(())
    }

    /// The members of a statement that saves them. A refused look-up is `urlRefused`: like any other bad body it leaves the
    /// key unused, but only where the key is new.
    fn argument(&self) -> Value {
        json!({"fields": self.written, "secret": self.secret, "urlRefused": self.looked_up})
    }
}

/// A signing secret, `whsec_` and base64 (Standard Webhooks).
pub fn new_secret() -> String {
    let bytes: [u8; SECRET_BYTES] = rand::random();
    format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(bytes))
}

/// Creates a destination: 201 with it; 422 `unknown_customer`.
pub fn create(fields: &DestinationFields) -> Statement {
    Statement::new("holdfast.create_destination", fields.argument())
}

/// Changes a destination: 200 with it; 404; 422 `unknown_customer`, `destination_kind`.
pub fn change(id: Uuid, fields: &DestinationFields) -> Statement {
    Statement::new("holdfast.change_destination", fields.argument()).with("id", id)
}

/// Gives a webhook a new secret; the one before signs for [`ROTATION_OVERLAP_HOURS`] more: 200; 404; 422
/// `destination_kind`.
pub fn rotate(id: Uuid, secret: &str) -> Statement {
    let argument = json!({"id": id, "secret": secret, "overlapHours": ROTATION_OVERLAP_HOURS});
    Statement::new("holdfast.rotate_secret", argument)
}

/// Writes an event for this destination alone: 200; 404; 422 `destination_kind`.
pub fn test(id: Uuid) -> Statement {
    Statement::new("holdfast.test_destination", json!({"id": id}))
}

/// `GET /admin/destinations`, newest first.
///
/// # Errors
/// 400 `invalid_query`, every wrong parameter named.
pub fn list(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page = parameters.page();
    parameters.finish(Query::list("destination", &page, json!({})))
}

/// The live secrets of one destination.
pub fn secrets(id: Uuid) -> Query {
    Query::new("holdfast.destination_secrets", json!({"id": id}))
}
