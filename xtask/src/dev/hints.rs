//! What to try once the stack answers: commands that can be copied as they stand.

use anyhow::Result;
use serde_json::json;
use sqlx::PgConnection;

use super::demo::{PLENTIFUL_CODE, SCARCE_CODE};
use super::samples;
use super::state::State;
use crate::partner::shopify;
use xtask::ports::Ports;

/// Prints them, fitted to what is left of the demo's stock.
///
/// # Errors
/// When the database does not say what is left.
pub async fn print(conn: &mut PgConnection, state: &State, ports: &Ports, scheduled: bool) -> Result<()> {
    let demo = &state.demo;
    let [first, second] = demo.orders;
    // Fresh keys at each start: within 24 h an old one would replay its old answer.
    let key = format!("try-{:06x}", rand::random::<u32>() >> 8);
    let post = |token: &str, order: uuid::Uuid, deed: &str, key: &str, sku: uuid::Uuid, qty: i64| {
        format!(
            "curl -s -X POST $HOLDFAST_URL/orders/{order}/{deed} -H \"Authorization: Bearer ${token}\" \
             -H 'Idempotency-Key: {key}' -H 'Content-Type: application/json' -d '{{\"skuId\":\"{sku}\",\"qty\":{qty}}}'; echo"
        )
    };

    println!("\nHoldfast answers at {}   (Ctrl-C ends it)", ports.http_url());
    println!(
        "  console   {}/console      (paste a token of .local/dev.env, TOKEN_USER1 for one)",
        ports.http_url()
    );
    println!("  partner   {}", ports.partner_url());
    println!("  settings  .local/dev.env      logs  .local/functions.log, .local/postgres.log");
    println!("\nTry, in another terminal in this folder:\n\n  . .local/dev.env\n");

    let holders: Vec<(uuid::Uuid, uuid::Uuid, i64)> = sqlx::query_as(
        "select order_id, sku_id, qty_allocated from order_line where tenant_id = $1 and qty_allocated > 0 order by 1, 2",
    )
    .bind(demo.tenant)
    .fetch_all(&mut *conn)
    .await?;
    for (at, (order, sku, qty)) in holders.iter().enumerate() {
        if at == 0 {
            println!("  # an earlier run promised these; give them back first:");
        }
        println!("  {}", post("TOKEN_USER1", *order, "release", &format!("{key}-back-{at}"), *sku, *qty));
    }
    if !holders.is_empty() {
        println!();
    }

    let promise = post("TOKEN_USER1", first, "allocate", &format!("{key}-first"), demo.plentiful_sku, 4);
    println!("  # Maya in Austin promises 4 {PLENTIFUL_CODE} to the first order:\n  {promise}\n");
    println!(
        "  # the answer got lost, her client retries with the same key: the same bytes, no second promise:"
    );
    println!("  {}\n", promise.replacen("curl -s", "curl -si", 1));
    println!(
        "  # Maya and Kenji in Tokyo want the last six {SCARCE_CODE} at once: one gets them, one gets 422:"
    );
    let maya = post("TOKEN_USER1", first, "allocate", &format!("{key}-maya"), demo.scarce_sku, 6);
    let kenji = post("TOKEN_USER2", second, "allocate", &format!("{key}-kenji"), demo.scarce_sku, 6);
    println!("  ({maya}) & ({kenji}) & wait\n");
    if !scheduled {
        println!("  # no schedule runs; drain the outbox once:");
        println!(
            "  curl -s -X POST $HOLDFAST_URL/2015-03-31/functions/relay/invocations -d '{{\"watchSeconds\":0}}'; echo\n"
        );
    }
    println!("  # what reached the partner, signed, within a second or two:");
    println!("  curl -s $PARTNER_URL/received | python3 -m json.tool\n");
    print_destinations(conn, demo.tenant, ports, &key).await?;
    samples::write(conn, state).await?;
    println!(
        "  # what Stripe, Shopify and the 3PL would send, signed; the same command again is another delivery:"
    );
    println!("  cargo xtask send stripe  .local/samples/stripe.json");
    println!("  cargo xtask send shopify .local/samples/shopify.json --topic orders/create");
    println!("  cargo xtask send 3pl     .local/samples/3pl.json\n");
    println!(
        "  # let the partner fail for a while, then (200) answer again, and watch all of it arrive late:"
    );
    println!("  curl -s $PARTNER_URL/behave -H 'Content-Type: application/json' -d '{{\"status\":500}}'\n");
    println!("  # a tenant of your own, with as much stock and as many orders as you like:");
    println!("  cargo xtask scenario --skus 3 --on-hand 100 --orders 20 --order-qty 10");
    Ok(())
}

/// How to have stock pushed to the partner's shop and mails sent, where nobody has done so yet.
async fn print_destinations(
    conn: &mut PgConnection,
    tenant: uuid::Uuid,
    ports: &Ports,
    key: &str,
) -> Result<()> {
    let kinds: Vec<String> = sqlx::query_scalar("select distinct kind from destination where tenant_id = $1")
        .bind(tenant)
        .fetch_all(conn)
        .await?;
    let shop = json!({"name": "Shop", "kind": "shopify_inventory", "url": shopify::url(&ports.partner_url()),
        "accessToken": "shpat_local", "eventTypes": ["sku.ats_changed"]});
    let mail = json!({"name": "Confirmations", "kind": "email", "url": "mailto:orders@alder-finch.example",
        "eventTypes": ["order.line_allocated"]});
    println!(
        "  # the other kinds of destination: stock pushed to a shop, confirmations by mail. From then on each promise"
    );
    println!(
        "  # also sets the shop's stock and is confirmed to whoever made the order; /received shows both:"
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
