//! Destinations: which subscriber gets which events, at which address.
//!
//! Promises: an address is saved only where [`Guard`] admits it. A secret is generated here and sealed here; only the one route
//! that reads secrets returns it, and neither a recorded answer nor the audit log contains it.
//! Relies on: `migrations/functions/7_operations/destinations.sql`; [`crate::idempotency::once::once`] around each change.

use std::ops::RangeInclusive;

use base64::Engine as _;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::db::call::Statement;
use crate::delivery::address::{Guard, Senders, URL_MAX_CHARS};
use crate::http::event::Answer;
use crate::http::fields::{Fields, uuid};
use crate::http::json::BodyError;
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query};
use crate::idempotency::endpoint::Parsed;
use crate::runtime::sealed::{NotOpened, Sealer, destination_place};

/// Event types that a destination may subscribe to; `*` stands for all.
pub const EVENT_TYPES: [&str; 20] = [
    "order.created",
    "order.saved",
    "order.cancelled",
    "order.shipped",
    "order.line_allocated",
    "order.line_released",
    "style.saved",
    "sku.ats_changed",
    "customer.saved",
    "customer.over_limit",
    "invoice.created",
    "invoice.paid",
    "invoice.reopened",
    "invoice.refunded",
    "invoice.voided",
    "inventory.shortfall",
    "inbox.exception",
    "destination.disabled",
    "destination.recovered",
    "reconcile.held",
];

const KINDS: [&str; 5] = ["webhook", "shopify_inventory", "email", "eventbridge", "sqs"];
const DESTINATION_STATES: [&str; 3] = ["active", "paused", "disabled"];
/// How long the old secret goes on signing after a rotation, so that a partner has time to switch.
pub const ROTATION_OVERLAP_HOURS: u32 = 24;
/// Standard Webhooks allows 24 … 64.
const SECRET_BYTES: usize = 32;
// The limits of openapi.yaml.
const NAME_MAX_CHARS: usize = 200;
const REASON_MAX_CHARS: usize = 2_000;
const TOKEN_MAX_CHARS: usize = 500;
const LOCATION_MAX_CHARS: usize = 255;
const EVENT_TYPES_RANGE: RangeInclusive<usize> = 1..=50;
const MAX_ATTEMPTS_RANGE: RangeInclusive<i64> = 1..=100;
const MAX_PER_SECOND_RANGE: RangeInclusive<i64> = 1..=1_000;

/// A request to create or change a destination. Its address is checked by [`DestinationFields::check_address`].
#[derive(Debug)]
pub struct DestinationFields {
    members: Map<String, Value>,
    /// A shop's access token or a new signing secret; apart from `members`, which are audited.
    secret: Option<String>,
    /// Why the address that the name has now may not be called.
    lookup_refusal: Option<String>,
    /// Where a mail's sender is looked up by SQL, as buses and queues are.
    senders: Senders,
}

/// Reads the body of `POST /admin/destinations`.
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
        reader.common(&mut fields);
        if reader.members.get("ordered") == Some(&Value::Bool(true))
            && let Some(why) = reader.no_order(kind)
        {
            fields.wrong("ordered", why, &mut reader.errors);
        }
        if kind != Some("shopify_inventory") && reader.secret.is_some() {
            fields.wrong("accessToken", "is only for shopify_inventory", &mut reader.errors);
        }
        fields.finish(&mut reader.errors);
        reader.members.entry("url").or_insert_with(|| "".into());
        if kind == Some("webhook") {
            reader.secret = Some(new_secret());
        }
    }
    reader.done()
}

/// Reads the body of `PATCH /admin/destinations/{id}`: `state` and any member but `kind`.
pub fn read_change(body: &Value) -> Parsed<DestinationFields> {
    let mut reader = DestinationReader::default();
    if let Some(mut fields) = Fields::open(body, "", &mut reader.errors) {
        reader.common(&mut fields);
        reader.one_of(&mut fields, "state", &DESTINATION_STATES);
        if reader.secret.is_none() {
            fields.needs_a_change(&reader.members, &mut reader.errors);
        }
        fields.finish(&mut reader.errors);
    }
    reader.done()
}

#[derive(Default)]
struct DestinationReader {
    members: Map<String, Value>,
    secret: Option<String>,
    errors: Vec<BodyError>,
}

impl DestinationReader {
    fn kind(&mut self, fields: &mut Fields<'_>) -> Option<&'static str> {
        fields.required("kind", &mut self.errors)?;
        self.one_of(fields, "kind", &KINDS)
    }

    /// Why a destination of this kind, at the address that was read, cannot be ordered.
    fn no_order(&self, kind: Option<&str>) -> Option<&'static str> {
        let url = self.members.get("url").and_then(Value::as_str).unwrap_or_default();
        match kind {
            Some("shopify_inventory") => Some("pushes of inventory have no order"),
            Some("eventbridge") => Some("EventBridge keeps no order"),
            Some("sqs") if !url.ends_with(".fifo") => Some("only a FIFO queue keeps an order"),
            _ => None,
        }
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
            Some(found) => _ = self.members.insert(name.into(), found.into()),
            None => {
                fields.wrong(name, format!("must be one of {}", allowed.join(", ")), &mut self.errors);
            }
        }
        found
    }

    fn text(&mut self, fields: &mut Fields<'_>, name: &'static str, max_chars: usize, nullable: bool) {
        let Some(value) = fields.optional(name) else { return };
        let fits = value.as_str().is_some_and(|t| !t.trim().is_empty() && t.chars().count() <= max_chars);
        if fits || (nullable && value.is_null()) {
            self.members.insert(name.into(), value.clone());
        } else {
            fields.wrong(name, format!("must be a string of 1 to {max_chars} characters"), &mut self.errors);
        }
    }

    /// The members that creation and change have in common.
    fn common(&mut self, fields: &mut Fields<'_>) {
        self.text(fields, "name", NAME_MAX_CHARS, false);
        self.text(fields, "url", URL_MAX_CHARS, false);
        self.text(fields, "locationId", LOCATION_MAX_CHARS, true);
        self.access_token(fields);
        self.event_types(fields);
        self.customer(fields);
        if let Some(value) = fields.optional("ordered") {
            if value.is_boolean() {
                self.members.insert("ordered".into(), value.clone());
            } else {
                fields.wrong("ordered", "must be true or false", &mut self.errors);
            }
        }
        if let Some(attempts) = fields.optional_integer("maxAttempts", MAX_ATTEMPTS_RANGE, &mut self.errors) {
            self.members.insert("maxAttempts".into(), attempts.into());
        }
        if fields.optional("maxPerSecond").is_some_and(Value::is_null) {
            self.members.insert("maxPerSecond".into(), Value::Null);
        } else if let Some(pace) =
            fields.optional_integer("maxPerSecond", MAX_PER_SECOND_RANGE, &mut self.errors)
        {
            self.members.insert("maxPerSecond".into(), pace.into());
        }
    }

    fn access_token(&mut self, fields: &mut Fields<'_>) {
        self.text(fields, "accessToken", TOKEN_MAX_CHARS, false);
        self.secret = match self.members.remove("accessToken") {
            Some(Value::String(token)) if token.bytes().all(|b| b.is_ascii_graphic()) => Some(token),
            Some(_) => {
                fields.wrong("accessToken", "must be visible ASCII", &mut self.errors);
                None
            }
            None => None,
        };
    }

    fn customer(&mut self, fields: &mut Fields<'_>) {
        if let Some(value) = fields.optional("customerId") {
            match value.as_str().and_then(uuid) {
                Some(id) => _ = self.members.insert("customerId".into(), json!(id)),
                None if value.is_null() => _ = self.members.insert("customerId".into(), Value::Null),
                None => fields.wrong("customerId", "must be a UUID or null", &mut self.errors),
            }
        }
    }

    fn event_types(&mut self, fields: &mut Fields<'_>) {
        if !fields.has("eventTypes") {
            fields.optional("eventTypes");
            return;
        }
        let Some(items) = fields.array("eventTypes", EVENT_TYPES_RANGE, &mut self.errors) else { return };
        for (index, item) in items.iter().enumerate() {
            if item.as_str().is_none_or(|name| name != "*" && !EVENT_TYPES.contains(&name)) {
                let message = format!("must be \"*\" or one of {}", EVENT_TYPES.join(", "));
                self.errors.push(BodyError { path: format!("/eventTypes/{index}"), message });
            }
        }
        self.members.insert("eventTypes".into(), items.clone().into());
    }

    fn done(self) -> Parsed<DestinationFields> {
        if self.errors.is_empty() {
            Ok(DestinationFields {
                members: self.members,
                secret: self.secret,
                lookup_refusal: None,
                senders: Senders::default(),
            })
        } else {
            Err(self.errors)
        }
    }
}

impl DestinationFields {
    /// Checks the address: an error leaves the idempotency key unused. Mail has no address, or `mailto:` and the sender.
    /// The look-up of a name may give something else on a retry, so its result is only kept here; SQL refuses because of it
    /// where the key is new, and a replay stays a replay.
    pub async fn check_address(&mut self, guard: &Guard) -> Result<(), Vec<BodyError>> {
        self.senders = guard.senders;
        let Some(url) = self.members.get("url").and_then(Value::as_str).filter(|url| !url.is_empty()) else {
            return Ok(());
        };
        let wrong = |message: String| BodyError { path: "/url".into(), message };
        let kind = self.members.get("kind").and_then(Value::as_str);
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
        // What the relay calls with rights of its own must be one of a list, which SQL looks into.
        if matches!(kind, Some("eventbridge" | "sqs")) || kind.is_none() && url.starts_with("arn:") {
            return Ok(());
        }
        guard.url(url).map_err(|message| vec![wrong(message)])?;
        self.lookup_refusal = guard.check(url).await.err();
        Ok(())
    }

    fn argument(&self) -> Value {
        json!({"fields": self.members, "secret": self.secret, "urlRefused": self.lookup_refusal,
            "sendersAllowed": self.senders == Senders::Allowed})
    }
}

/// A random signing secret: `whsec_` and base64, as Standard Webhooks wants it.
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

/// Reads the body of a rotation, `{"immediate"?}`: whether the old secret ends at once, as one that is known to others must.
pub fn read_rotation(body: &Value) -> Parsed<bool> {
    let mut errors = Vec::new();
    let mut immediate = false;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        match fields.optional("immediate").map(Value::as_bool) {
            Some(Some(value)) => immediate = value,
            Some(None) => fields.wrong("immediate", "must be true or false", &mut errors),
            None => {}
        }
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(immediate) } else { Err(errors) }
}

/// Gives a webhook a new secret. The old one ends at once, or goes on beside it for [`ROTATION_OVERLAP_HOURS`]: 200; 404; 422
/// `destination_kind`.
pub fn rotate(id: Uuid, secret: &str, immediate: bool) -> Statement {
    let overlap_hours = if immediate { 0 } else { ROTATION_OVERLAP_HOURS };
    let argument = json!({"id": id, "secret": secret, "overlapHours": overlap_hours});
    Statement::new("holdfast.rotate_secret", argument)
}

/// Reads the body of a deletion, `{"reason"?}`: 1 … 2,000 characters.
pub fn read_deletion(body: &Value) -> Parsed<Option<String>> {
    let mut reader = DestinationReader::default();
    if let Some(mut fields) = Fields::open(body, "", &mut reader.errors) {
        reader.text(&mut fields, "reason", REASON_MAX_CHARS, true);
        fields.finish(&mut reader.errors);
    }
    let read = reader.done()?;
    Ok(read.members.get("reason").and_then(Value::as_str).map(str::to_owned))
}

/// Deletes a destination and discards what is pending there: 200; 404.
pub fn delete(id: Uuid, reason: Option<&str>) -> Statement {
    Statement::new("holdfast.delete_destination", json!({"id": id, "reason": reason}))
}

/// Writes a test event for this destination only: 200; 404.
pub fn test(id: Uuid) -> Statement {
    Statement::new("holdfast.test_destination", json!({"id": id}))
}

/// `GET /admin/destinations`, newest first: 200; 400 `invalid_query`.
pub fn list(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page = parameters.page();
    parameters.finish(Query::list("destination", &page, json!({})))
}

/// The live secrets of one destination: 200; 404. [`opened`] makes its answer readable.
pub fn secrets(id: Uuid) -> Query {
    Query::new("holdfast.destination_secrets", json!({"id": id}))
}

/// Seals the secret of a creation, a change or a rotation of this destination: the database never sees it as it is.
pub fn sealed(sealer: &Sealer, id: Uuid, statement: Statement) -> Result<Statement, Problem> {
    statement.replace("secret", |secret| Ok(sealer.seal(&destination_place(id), secret)?))
}

/// Opens the secrets in an answer of [`secrets`].
pub fn opened(sealer: &Sealer, id: Uuid, mut answer: Answer) -> Result<Answer, Problem> {
    let place = destination_place(id);
    let mut document: Value = serde_json::from_slice(&answer.body).map_err(|_| NotOpened::Broken)?;
    let open = |holder: &mut Value| -> Result<(), Problem> {
        if let Some(stored) = holder["secret"].as_str() {
            holder["secret"] = sealer.open(&place, stored)?.into();
        }
        Ok(())
    };
    open(&mut document)?;
    document["secrets"].as_array_mut().into_iter().flatten().try_for_each(open)?;
    answer.body = document.to_string().into_bytes();
    Ok(answer)
}
