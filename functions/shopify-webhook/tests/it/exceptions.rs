//! Exceptions and shortfalls: listed, retried after the fix, settled.

use console::Console;
use shared::delivery::address::Guard;
use testing::fresh_key;
use uuid::Uuid;

use super::*;

async fn id_of(shop: &Shop, event_id: &str) -> Uuid {
    shop.db
        .text(format!("select id::text from inbox_exception where event_id = '{event_id}'"))
        .await
        .parse()
        .unwrap()
}

/// At the console, as the tenant's first user.
async fn ask_the_console(shop: &Shop, event: Event) -> Reply {
    let console = Console {
        endpoint: shop.db.endpoint(),
        guard: Guard::default(),
        page: Default::default(),
        sealer: testing::sealer(),
    };
    Reply::from(console::handle(&console, event.bearer(&shop.tenant.token()).request()).await)
}

pub async fn retry(shop: &Shop, event_id: &str) -> Reply {
    retry_by_id(shop, id_of(shop, event_id).await).await
}

pub async fn retry_by_id(shop: &Shop, id: Uuid) -> Reply {
    let event = Event::post(&format!("/admin/exceptions/{id}/retry"));
    ask_the_console(shop, event.key(&fresh_key()).json(&json!({}))).await
}

pub async fn settle(shop: &Shop, id: Uuid, body: Value) -> Reply {
    let event = Event::post(&format!("/admin/shortfalls/{id}/settle"));
    ask_the_console(shop, event.key(&fresh_key()).json(&body)).await
}

async fn list(shop: &Shop, path: &str) -> Reply {
    ask_the_console(shop, Event::get(path)).await
}

#[tokio::test]
async fn an_exception_is_retried_after_the_fix_and_moves_only_what_was_not_moved() {
    let (shop, webhook) = open(Seed { skus: 2, ..Seed::default() }).await;
    let mut body = order(1, &[(11, 0, 2), (12, 1, 3)]);
    body["line_items"][1]["sku"] = json!("NEW-1");
    took(&webhook, "1", "orders/create", &body).await;
    // Meanwhile the order goes on.
    took(&webhook, "2", "refunds/create", &refund(1, &[(91, 12, 1, "cancel")])).await;
    assert_eq!(positions(&shop).await, "6 2, 6 0");
    let reply = retry(&shop, "1").await;
    let document = reply.json();
    assert_eq!(
        (reply.status, &document["resolvedAt"], &document["attempts"]),
        (200, &Value::Null, &json!(2))
    );
    let sku = shop.tenant.skus[1];
    shop.db.execute(format!("update sku set code = 'NEW-1' where id = '{sku}'")).await;
    let document = retry(&shop, "1").await.json();
    assert!(
        document["resolvedAt"].is_string() && document["resolvedBy"].as_str().unwrap().starts_with("user:"),
        "{document}"
    );
    assert_eq!(positions(&shop).await, "6 2, 6 2");
    assert_eq!(shop.db.count("allocation_ledger where actor like 'user:%' and qty = 2").await, 1);
    let again = retry(&shop, "1").await;
    assert_eq!((again.status, again.error().as_deref()), (409, Some("exception_resolved")));
    assert_eq!((retry_by_id(&shop, Uuid::new_v4()).await).error().as_deref(), Some("not_found"));
    assert_eq!(shop.db.count("outbox where event_type = 'inbox.exception'").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn two_people_who_retry_at_once_move_it_once() {
    let (shop, webhook) = open(Seed { on_hand: 100, ..Seed::default() }).await;
    for n in 1..=8 {
        let mut body = order(n, &[(10 * n, 0, 1)]);
        body["line_items"][0]["sku"] = json!("NEW-1");
        took(&webhook, &n.to_string(), "orders/create", &body).await;
    }
    shop.db.execute("update sku set code = 'NEW-1'").await;
    for n in 1..=8 {
        let id = n.to_string();
        let replies = futures_util::future::join_all((0..4).map(|_| retry(&shop, &id))).await;
        let done = replies.iter().filter(|reply| reply.status == 200).count();
        let late =
            replies.iter().filter(|reply| reply.error().as_deref() == Some("exception_resolved")).count();
        assert_eq!((done, late), (1, 3), "{replies:?}");
    }
    assert_eq!(positions(&shop).await, "100 8");
    assert_eq!(shop.db.count("inbox_exception where attempts = 2 and resolved_at is not null").await, 8);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_redelivery_after_the_reaper_meets_its_own_exception() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["sku"] = json!("NEW-1");
    took(&webhook, "1", "orders/create", &body).await;
    shop.db.execute("update inbox_exception set resolved_at = now(), resolved_by = 'user:x'; delete from webhook_inbox").await;
    took(&webhook, "1", "orders/create", &body).await;
    let again = "inbox_exception where attempts = 2 and resolved_at is null and resolved_by is null and last_tried_at > received_at";
    assert_eq!(shop.db.count(again).await, 1);
    assert_eq!(shop.db.count("outbox where event_type = 'inbox.exception'").await, 2);
    let payload = shop.db.text("select payload::json ->> 'data' from outbox order by id limit 1").await;
    let id = id_of(&shop, "1").await;
    let told: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(
        told,
        json!({"exceptionId": id, "provider": format!("shopify:{DOMAIN}"), "eventId": "1", "topic": "orders/create",
            "reason": "no SKU of ours: NEW-1"})
    );
}

#[tokio::test]
async fn an_exception_stays_its_tenants_wherever_the_shop_goes() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["sku"] = json!("NEW-1");
    // From an unknown shop; retried when the shop is known.
    let event = signed("new.myshopify.com", "n", "orders/create", body.to_string().as_bytes());
    send(&webhook, &event).await;
    let (mine, theirs) = (shop.tenant.id, shop.db.seed(Seed::default()).await.id);
    shop.db
        .execute(format!(
            "insert into shopify_shop (domain, tenant_id) values ('new.myshopify.com', '{mine}'); delete from webhook_inbox"
        ))
        .await;
    send(&webhook, &event).await;
    let kept = format!(
        "inbox_exception where tenant_id = '{mine}' and reason = 'no SKU of ours: NEW-1' and attempts = 2"
    );
    assert_eq!(shop.db.count(&kept).await, 1);
    // The shop moves to another tenant; its earlier events stay with the first one.
    shop.db
        .execute(format!("update shopify_shop set tenant_id = '{theirs}'; update sku set code = 'NEW-1'"))
        .await;
    assert!(retry(&shop, "n").await.json()["resolvedAt"].is_string());
    assert_eq!(positions(&shop).await, "6 2");
    assert_eq!(
        shop.db.count(&format!("sku_position where tenant_id = '{theirs}' and allocated > 0")).await,
        0
    );
}

#[tokio::test]
async fn exceptions_are_listed_newest_first_page_by_page() {
    let (shop, webhook) = open(Seed::default()).await;
    for n in 1..=5 {
        took(&webhook, &format!("w{n}"), "orders/create", &json!({"id": n, "line_items": "none"})).await;
    }
    let page = list(&shop, "/admin/exceptions?limit=3&state=open").await.json();
    let ids = |page: &Value| {
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i["eventId"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&page), ["w5", "w4", "w3"]);
    let first = &page["items"][0];
    assert_eq!(
        (first["provider"].as_str(), first["topic"].as_str()),
        (Some("shopify:alder.myshopify.com"), Some("orders/create"))
    );
    assert_eq!(first["excerpt"], json!(r#"{"id":5,"line_items":"none"}"#));
    let next = page["next"].as_str().unwrap();
    let rest = list(&shop, &format!("/admin/exceptions?limit=3&after={next}")).await.json();
    assert_eq!((ids(&rest), &rest["next"]), (vec!["w2".to_owned(), "w1".to_owned()], &Value::Null));
    assert_eq!(list(&shop, "/admin/exceptions?state=resolved").await.json()["items"], json!([]));
    let nowhere = format!("after={}", Uuid::new_v4());
    for wrong in ["state=closed", "after=x", "colour=x", &nowhere] {
        let reply = list(&shop, &format!("/admin/exceptions?{wrong}")).await;
        assert_eq!((reply.status, reply.error().as_deref()), (400, Some("invalid_query")), "{wrong}");
    }
}

#[tokio::test]
async fn an_excerpt_shows_text_as_it_is_and_anything_else_without_failing() {
    let (shop, webhook) = open(Seed::default()).await;
    // ä is C3 A4, € is E2 82 AC, U+1F600 is F0 9F 98 80. The cut is after 2,000 bytes.
    let cut =
        |before: usize, last: &str| format!("{}{last}{}", "x".repeat(before), "x".repeat(9)).into_bytes();
    let bodies: [(Vec<u8>, String); 13] = [
        (
            "Zoë says \"ä€\u{1f600}\" \\303\\244 \\u00e4".into(),
            "Zoë says \"ä€\u{1f600}\" \\303\\244 \\u00e4".into(),
        ),
        (b"\0\x01\t\n\r\x1b[31m\x7f".into(), "␀␁\t\n␍␛[31m␡".into()),
        (b"Zo\xeb, Zo\xc3\xab".into(), "Zo\u{fffd}, Zoë".into()),
        (b"\xc2\x85\xc0\x80\xed\xa0\x80".into(), "\u{fffd}".repeat(7)),
        (vec![0xff; 3_000], "\u{fffd}".repeat(2_000)),
        ("ä".repeat(1_500).into(), "ä".repeat(1_000)),
        (cut(1_998, "ä"), "x".repeat(1_998) + "ä"),
        (cut(1_999, "ä"), "x".repeat(1_999)),
        (cut(1_998, "€"), "x".repeat(1_998)),
        (cut(1_999, "€"), "x".repeat(1_999)),
        (cut(1_996, "\u{1f600}"), "x".repeat(1_996) + "\u{1f600}"),
        (cut(1_997, "\u{1f600}"), "x".repeat(1_997)),
        (cut(1_998, "\u{1f600}"), "x".repeat(1_998)),
    ];
    for (n, (body, _)) in bodies.iter().enumerate() {
        send(&webhook, &signed(DOMAIN, &format!("w{n}"), "orders/create", body)).await;
    }
    let page = list(&shop, "/admin/exceptions?limit=200").await.json();
    let items = page["items"].as_array().unwrap();
    assert_eq!(items.len(), bodies.len());
    for (n, (body, excerpt)) in bodies.iter().enumerate() {
        let item = items.iter().find(|item| item["eventId"] == format!("w{n}")).unwrap();
        assert_eq!((&item["excerpt"], &item["sizeBytes"]), (&json!(excerpt), &json!(body.len())), "w{n}");
    }
}

#[tokio::test]
async fn a_list_where_an_object_belongs_is_kept_whole_and_takes_nothing() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2), (12, 0, 1)]);
    body["line_items"][1] = json!([12, "SKU-0001", 1, 1]);
    took(&webhook, "1", "orders/create", &body).await;
    took(&webhook, "2", "orders/create", &json!([1, [], [], null])).await;
    assert_eq!(positions(&shop).await, "6 0");
    let kept = "select string_agg(concat_ws(' ', convert_from(body, 'UTF8'), reason), '; ' order by event_id) from inbox_exception";
    assert_eq!(
        shop.db.text(kept).await,
        format!("{body} line_items[1] is not an object; [1,[],[],null] the body is not an object")
    );
}

#[tokio::test]
async fn what_an_unknown_shop_sent_is_kept_and_becomes_its_tenants_when_it_is_known() {
    let (shop, webhook) = open(Seed::default()).await;
    let body = order(1, &[(11, 0, 2)]).to_string();
    let event = signed("New.myshopify.com", "1", "orders/create", body.as_bytes());
    assert_eq!(send(&webhook, &event).await.json(), received());
    assert_eq!(
        shop.db
            .count("inbox_exception where tenant_id is null and provider = 'shopify:new.myshopify.com'")
            .await,
        1
    );
    assert_eq!(shop.db.count("webhook_inbox").await, 1);
    assert_eq!(shop.db.count("outbox").await, 0);
    let mut app = shop.db.app().await;
    let seen: i64 =
        sqlx::query_scalar("select count(*) from inbox_exception").fetch_one(&mut app).await.unwrap();
    assert_eq!(seen, 0, "a query that forgets its tenant sees nothing of it");
    assert_eq!(list(&shop, "/admin/exceptions").await.json()["items"], json!([]));
    let tenant = shop.tenant.id;
    shop.db
        .execute(format!(
            "insert into shopify_shop (domain, tenant_id) values ('new.myshopify.com', '{tenant}')"
        ))
        .await;
    assert_eq!(list(&shop, "/admin/exceptions").await.json()["items"][0]["eventId"], json!("1"));
    assert!(retry(&shop, "1").await.json()["resolvedAt"].is_string());
    assert_eq!(positions(&shop).await, "6 2");
}

#[tokio::test]
async fn a_shortfall_is_listed_and_settled_once() {
    let (shop, webhook) = open(Seed { on_hand: 1, ..Seed::default() }).await;
    took(&webhook, "1", "orders/create", &order(1, &[(11, 0, 4)])).await;
    let item = list(&shop, "/admin/shortfalls?state=open").await.json()["items"][0].clone();
    assert_eq!(
        (&item["qty"], &item["cause"], &item["code"], &item["unbooked"]),
        (&json!(3), &json!("channel_order"), &json!("SKU-0001"), &json!(0))
    );
    let id: Uuid = item["id"].as_str().unwrap().parse().unwrap();
    for wrong in [
        json!({}),
        json!({"note": ""}),
        json!({"note": null}),
        json!({"note": "x", "qty": 1}),
        json!({"note": "x".repeat(2_001)}),
    ] {
        assert_eq!(settle(&shop, id, wrong).await.error().as_deref(), Some("invalid_body"));
    }
    let settled = settle(&shop, id, json!({"note": "bought in"})).await;
    assert_eq!((settled.status, &settled.json()["note"]), (200, &json!("bought in")));
    assert_eq!(settle(&shop, id, json!({"note": "x"})).await.error().as_deref(), Some("shortfall_settled"));
    assert_eq!(
        settle(&shop, Uuid::new_v4(), json!({"note": "x"})).await.error().as_deref(),
        Some("not_found")
    );
    // The next one opens another row, which the end of the first order does not change.
    took(&webhook, "2", "orders/create", &order(2, &[(21, 0, 2)])).await;
    took(&webhook, "3", "orders/cancelled", &order(1, &[(11, 0, 4)])).await;
    assert_eq!(
        (positions(&shop).await, open_shortfalls(&shop).await),
        ("1 1".into(), "channel_order 1".into()),
        "the unit that came back goes to the order that lacks two"
    );
    assert_eq!(list(&shop, "/admin/shortfalls").await.json()["items"].as_array().unwrap().len(), 2);
    shop.db.assert_consistent().await;
}
