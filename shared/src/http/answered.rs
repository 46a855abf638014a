//! What every request leaves behind: its response, one log line and its counters.

use lambda_http::{Body, Response};
use serde::Deserialize;

use crate::http::event::{Answer, Incoming, respond};
use crate::http::problem::Problem;
use crate::runtime::metrics;
use crate::runtime::request_log::{Answered, Seen};

/// Logs and counts a result and renders it. `seen` is from [`crate::runtime::request_log::watch`].
pub fn answered(
    incoming: &Incoming,
    result: Result<Answer, Problem>,
    seen: Seen,
    database_ms: u64,
) -> Response<Body> {
    let (status, code, replayed) = match &result {
        Ok(answer) => (answer.status, recorded_code(answer), answer.replayed),
        Err(problem) => (problem.status, Some(problem.error.to_owned()), false),
    };
    let answered = Answered {
        request_id: &incoming.request_id,
        method: incoming.method.as_str(),
        status,
        code: code.as_deref(),
        recorded: result.is_ok(),
        replayed,
        database_ms,
        seen,
    };
    answered.log();
    metrics::of_request(&answered).write();
    respond(result, &incoming.request_id)
}

/// The error code of a refusal that the database rendered.
fn recorded_code(answer: &Answer) -> Option<String> {
    #[derive(Deserialize)]
    struct Coded {
        error: String,
    }
    if answer.status < 400 {
        return None;
    }
    serde_json::from_slice(&answer.body).ok().map(|Coded { error }| error)
}
