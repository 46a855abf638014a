//! What can be read of orders, SKUs, styles, customers and invoices: which parameters each list takes. The documents are
//! rendered by `migrations/functions/domain/documents.sql`.

use serde_json::json;

use crate::db::connection::{Db, DbError};
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query};

/// What an order's `status` may be.
const ORDER_STATUSES: [&str; 3] = ["open", "cancelled", "shipped"];

/// `GET /orders?q=&status=&customerId=`, newest first; `q` is a part of the number, of the customer's PO or of the
/// customer's name, in any case.
///
/// # Errors
/// 400 `invalid_query`, every wrong parameter named.
pub fn orders(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page = parameters.page();
    let filters = json!({"q": parameters.search(), "status": parameters.one_of("status", &ORDER_STATUSES),
        "customerId": parameters.uuid("customerId")});
    parameters.finish(Query::list("wholesale_order", &page, filters))
}

/// `GET /skus?q=`, by code; `q` is a part of the code, in any case.
///
/// # Errors
/// 400 `invalid_query`, every wrong parameter named.
pub fn skus(query: &[(String, String)]) -> Result<Query, Problem> {
    searched("sku", query)
}

/// `GET /customers?q=`, by name; `q` is a part of the name, in any case.
///
/// # Errors
/// 400 `invalid_query`, every wrong parameter named.
pub fn customers(query: &[(String, String)]) -> Result<Query, Problem> {
    searched("customer", query)
}

fn searched(table: &'static str, query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let (page, filters) = (parameters.page(), json!({"q": parameters.search()}));
    parameters.finish(Query::list(table, &page, filters))
}

/// Whether the database answers.
///
/// # Errors
/// Where it does not, within 7 s.
pub async fn health(db: &Db) -> Result<(), DbError> {
    db.send("select 1".into()).await.map(|_| ())
}
