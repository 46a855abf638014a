//! Lists of orders, SKUs and customers: the parameters of each; a wrong one is 400 `invalid_query`. The documents are rendered
//! by `migrations/functions/5_domain/documents.sql`.

use serde_json::json;
use uuid::Uuid;

use crate::db::connection::Db;
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query};

const ORDER_STATUSES: [&str; 3] = ["open", "cancelled", "shipped"];
const INVOICE_STATUSES: [&str; 4] = ["awaiting_payment", "paid", "refunded", "void"];

/// `GET /orders?q=&status=&customerId=&lines=`, newest first; `q` is the beginning of the order's number, of the customer's PO or
/// of a word of the customer's name, in any case; `lines=false` leaves out the orders' lines.
pub fn orders(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page = parameters.page();
    let filters = json!({"q": parameters.search(), "status": parameters.one_of("status", &ORDER_STATUSES),
        "customerId": parameters.uuid("customerId"), "lines": parameters.one_of("lines", &["true", "false"])});
    parameters.finish(Query::list("wholesale_order", &page, filters))
}

/// `GET /skus?q=`, by code; `q` is a part of the code, in any case.
pub fn skus(query: &[(String, String)]) -> Result<Query, Problem> {
    searched("sku", query)
}

/// `GET /customers?q=`, by name; `q` is a part of the name, in any case.
pub fn customers(query: &[(String, String)]) -> Result<Query, Problem> {
    searched("customer", query)
}

fn searched(table: &'static str, query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let (page, filters) = (parameters.page(), json!({"q": parameters.search()}));
    parameters.finish(Query::list(table, &page, filters))
}

/// `GET /orders/{orderId}/history`, oldest first; its ids are no UUIDs.
pub fn order_history(order_id: Uuid, query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page = parameters.page_by("must be the id of an item", |text| {
        (text.len() <= 40 && text.bytes().all(|b| b.is_ascii_graphic())).then(|| text.to_owned())
    });
    let argument = json!({"orderId": order_id, "limit": page.limit, "after": page.after});
    parameters.finish(Query::about_order("holdfast.order_history", argument))
}

/// `GET /invoices?customerId=&orderId=&status=`, newest first.
pub fn invoices(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page = parameters.page();
    let filters = json!({"customerId": parameters.uuid("customerId"), "orderId": parameters.uuid("orderId"),
        "status": parameters.one_of("status", &INVOICE_STATUSES)});
    parameters.finish(Query::list("invoice", &page, filters))
}

/// Succeeds if the database answers; fails within 7 s if it does not.
pub async fn health(db: &Db) -> Result<(), Problem> {
    db.send("select 1".into()).await?;
    Ok(())
}
