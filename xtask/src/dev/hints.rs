//! What to try once the stack runs: commands that can be copied as they are.

use anyhow::Result;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::demo::{PLENTIFUL_CODE, SCARCE_CODE};
use super::samples;
use super::state::State;
use crate::partner::shopify;
use xtask::ports::Ports;

/// Prints the commands, which fit what is left of the demo's stock, and writes the sample payloads that some of them send.
pub async fn print(conn: &mut PgConnection, state: &State, ports: &Ports, scheduled: bool) -> Result<()> {
    let tenant = state.demo.tenant;
    // New idempotency keys at each start: for 24 h an old one would only replay its answer.
    let key = format!("try-{:06x}", rand::random::<u32>() >> 8);
    print_addresses(ports);
    print_releases(conn, tenant, &key).await?;
    print_allocations(state, &key);
    if !scheduled {
        println!("  # no schedule runs; deliver what is in the outbox once:");
        println!(
            "  curl -s -X POST $HOLDFAST_URL/2015-03-31/functions/relay/invocations -d '{{\"watchSeconds\":0}}'; echo\n"
        );
    }
    println!("  # the signed events that reached the partner, within a second or two:");
    println!("  curl -s $PARTNER_URL/received | python3 -m json.tool\n");
    print_destinations(conn, tenant, ports, &key).await?;
    samples::write(conn, state).await?;
    print_other_commands();
    Ok(())
}

fn print_addresses(ports: &Ports) {
    println!("\nHoldfast answers at {}   (Ctrl-C ends it)", ports.http_url());
    println!(
        "  console   {}/console      (paste a token of .local/dev.env, for example TOKEN_USER1)",
        ports.http_url()
    );
    println!("  partner   {}", ports.partner_url());
    println!("  settings  .local/dev.env      logs  .local/functions.log, .local/postgres.log");
    println!("\nTry, in another terminal in this folder:\n\n  . .local/dev.env\n");
}

/// The command that posts `operation` (allocate or release) of one line.
fn post(token: &str, order: Uuid, operation: &str, key: &str, sku: Uuid, qty: i64) -> String {
    format!(
        "curl -s -X POST $HOLDFAST_URL/orders/{order}/{operation} -H \"Authorization: Bearer ${token}\" \
         -H 'Idempotency-Key: {key}' -H 'Content-Type: application/json' -d '{{\"skuId\":\"{sku}\",\"qty\":{qty}}}'; echo"
    )
}

/// How to release what earlier runs allocated, so that the race for the scarce SKU can be repeated.
async fn print_releases(conn: &mut PgConnection, tenant: Uuid, key: &str) -> Result<()> {
    let allocated: Vec<(Uuid, Uuid, i64)> = sqlx::query_as(
        "select order_id, sku_id, qty_allocated from order_line where tenant_id = $1 and qty_allocated > 0 order by 1, 2",
    )
    .bind(tenant)
    .fetch_all(conn)
    .await?;
    if allocated.is_empty() {
        return Ok(());
    }
    println!("  # an earlier run allocated these units; release them first:");
    for (at, (order, sku, qty)) in allocated.iter().enumerate() {
        println!("  {}", post("TOKEN_USER1", *order, "release", &format!("{key}-back-{at}"), *sku, *qty));
    }
    println!();
    Ok(())
}

fn print_allocations(state: &State, key: &str) {
    let demo = &state.demo;
    let [first, second] = demo.orders;
    let allocate =
        |token, order, who, sku, qty| post(token, order, "allocate", &format!("{key}-{who}"), sku, qty);
    let promise = allocate("TOKEN_USER1", first, "first", demo.plentiful_sku, 4);
    println!("  # Maya in Austin allocates 4 {PLENTIFUL_CODE} to the first order:\n  {promise}\n");
    println!(
        "  # the answer got lost and her client retries with the same key: the same bytes, nothing is allocated twice:"
    );
    println!("  {}\n", promise.replacen("curl -s", "curl -si", 1));
    println!(
        "  # Maya and Kenji in Tokyo want the last six {SCARCE_CODE} at the same time: one gets them, one gets 422:"
    );
    let maya = allocate("TOKEN_USER1", first, "maya", demo.scarce_sku, 6);
    let kenji = allocate("TOKEN_USER2", second, "kenji", demo.scarce_sku, 6);
    println!("  ({maya}) & ({kenji}) & wait\n");
}

/// How to add the other kinds of destination, unless the tenant has them already.
async fn print_destinations(conn: &mut PgConnection, tenant: Uuid, ports: &Ports, key: &str) -> Result<()> {
    let kinds: Vec<String> = sqlx::query_scalar("select distinct kind from destination where tenant_id = $1")
        .bind(tenant)
        .fetch_all(conn)
        .await?;
    let shop = json!({"name": "Shop", "kind": "shopify_inventory", "url": shopify::url(&ports.partner_url()),
        "accessToken": "shpat_local", "eventTypes": ["sku.ats_changed"]});
    let mail = json!({"name": "Confirmations", "kind": "email", "url": "mailto:orders@alder-finch.example",
        "eventTypes": ["order.line_allocated"]});
    println!(
        "  # the other kinds of destination: stock pushed to a shop, confirmations by mail. From then on each allocation"
    );
    println!(
        "  # also sets the shop's stock and is confirmed to the user who made the order; /received shows both:"
    );
    for (name, destination) in [("shop", shop), ("mail", mail)] {
        if kinds.iter().any(|kind| destination["kind"] == kind.as_str()) {
            println!("  # ({name}: there already)");
            continue;
        }
        println!(
            "  curl -s -X POST $HOLDFAST_URL/admin/destinations -H \"Authorization: Bearer $TOKEN_USER1\" \
             -H 'Idempotency-Key: {key}-{name}' -H 'Content-Type: application/json' -d '{destination}'; echo"
        );
    }
    println!();
    Ok(())
}

fn print_other_commands() {
    println!(
        "  # signed webhooks as Stripe, Shopify and the 3PL send them; the same command again is another delivery:"
    );
    println!("  cargo xtask send stripe  .local/samples/stripe.json");
    println!("  cargo xtask send shopify .local/samples/shopify.json --topic orders/create");
    println!("  cargo xtask send 3pl     .local/samples/3pl.json\n");
    println!("  # let the partner fail for a while, then answer 200 again: all events arrive, late:");
    println!("  curl -s $PARTNER_URL/behave -H 'Content-Type: application/json' -d '{{\"status\":500}}'\n");
    println!("  # a new tenant, with as much stock and as many orders as you like:");
    println!("  cargo xtask scenario --skus 3 --on-hand 100 --orders 20 --order-qty 10");
}
