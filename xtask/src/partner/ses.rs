//! The part of SES (v2) that the relay uses. Mails are not sent on; `GET /received` shows them.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Partner, Received, joined};

/// The access key that the relay uses here. SES would check the signature; this checks only the key's name.
pub const ACCESS_KEY: &str = "holdfast-local";

/// Makes the AWS SDK call the local partner instead of SES.
pub fn environment(partner_url: &str) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_REGION", "us-east-1".into()),
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
        ("AWS_SECRET_ACCESS_KEY", ACCESS_KEY.into()),
        ("AWS_ENDPOINT_URL_SESV2", partner_url.into()),
        ("EMAIL_FROM", "orders@holdfast.example".into()),
    ]
}

/// Receives a mail; its tag names the destination.
pub(super) async fn take_mail(
    State(partner): State<Arc<Partner>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = String::from_utf8_lossy(&body).into_owned();
    let mail: Value = serde_json::from_str(&body).unwrap_or_default();
    let credential = format!("AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/");
    let authorization =
        headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let received = Received {
        destination_id: tag(&mail, "destination").and_then(|id| id.parse::<Uuid>().ok()),
        headers: joined(&headers),
        body,
        signature_valid: authorization.starts_with(&credential),
    };
    let status = partner.take("mail", received, |_| announce(&mail));
    if !status.is_success() {
        return (status, Json(json!({"message": "set by /behave"}))).into_response();
    }
    let complete = mail["FromEmailAddress"].is_string()
        && mail["Destination"]["ToAddresses"][0].is_string()
        && mail["Content"]["Simple"]["Subject"]["Data"].is_string();
    if !complete {
        let kind = [("x-amzn-errortype", "BadRequestException")];
        let message = json!({"message": "a mail needs a sender, a recipient and a subject"});
        return (StatusCode::BAD_REQUEST, kind, Json(message)).into_response();
    }
    Json(json!({"MessageId": Uuid::new_v4()})).into_response()
}

fn tag<'m>(mail: &'m Value, name: &str) -> Option<&'m str> {
    mail["EmailTags"].as_array()?.iter().find(|tag| tag["Name"] == name)?["Value"].as_str()
}

fn announce(mail: &Value) {
    println!(
        "\n✓ the first mail was sent: {} to {}",
        mail["Content"]["Simple"]["Subject"]["Data"], mail["Destination"]["ToAddresses"][0]
    );
}
