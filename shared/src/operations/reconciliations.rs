//! The nightly reconciliations for a person: the runs, what they found, and the decision about one that is held.
//!
//! Promises: a run is accepted or dropped once, under its row's lock; nothing of it is booked before.
//! Relies on: `migrations/functions/7_operations/reconcile_admin.sql`; [`crate::idempotency::once::once`] around each decision.

use serde_json::json;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query};

const STATES: [&str; 7] = ["walking", "measuring", "held", "booking", "done", "dropped", "superseded"];
const KINDS: [&str; 4] = ["variance", "missing", "unknown", "invalid"];

/// `GET /admin/reconcile?state=`, newest first: 200; 400 `invalid_query`.
pub fn runs(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let (page, filters) = (parameters.page(), json!({"state": parameters.one_of("state", &STATES)}));
    parameters.finish(Query::list("reconcile_run", &page, filters))
}

/// One run with its progress: 200; 404.
pub fn run(id: Uuid) -> Query {
    Query::new("holdfast.read_reconcile_run", json!({"runId": id}))
}

/// `GET /admin/reconcile/{runId}/variances?kind=`, by code; of an unknown run an empty list: 200; 400 `invalid_query`.
pub fn findings(id: Uuid, query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page = parameters.page();
    let filters = json!({"runId": id, "kind": parameters.one_of("kind", &KINDS)});
    parameters.finish(Query::list("reconcile_finding", &page, filters))
}

/// The same as CSV, at most 20,000 lines; `after` is the id in a file's last line: 200; 400 `invalid_query`; 404.
pub fn csv(id: Uuid, query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let after = parameters.uuid("after");
    parameters.finish(Query::new("holdfast.reconcile_csv", json!({"runId": id, "after": after})))
}

/// Lets a run that is held be booked: 200 with it; 404; 409 `reconcile_state`.
pub fn accept(id: Uuid) -> Statement {
    Statement::new("holdfast.decide_reconcile_run", json!({"id": id, "decision": "accept"}))
}

/// Ends a run that has booked nothing: 200 with it; 404; 409 `reconcile_state`.
pub fn drop(id: Uuid) -> Statement {
    Statement::new("holdfast.decide_reconcile_run", json!({"id": id, "decision": "drop"}))
}
