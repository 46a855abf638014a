//! Shopify's privacy topics: a person's data, a shop that uninstalls the app.

use super::*;

const TRACES: [&str; 4] = ["jo@buyer.test", "first_name", "Jo", "#1001"];

async fn bodies(shop: &Shop) -> String {
    shop.db.text("select coalesce(string_agg(encode(body, 'escape') || coalesce(command::text, ''), ' ' order by event_id), '') from inbox_exception").await
}

#[tokio::test]
async fn a_redacted_person_is_gone_and_the_order_can_still_be_retried() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["sku"] = json!("NEW-1");
    took(&webhook, "1", "orders/create", &body).await;
    took(&webhook, "2", "orders/create", &json!({"id": "x", "email": "jo@buyer.test", "line_items": 5}))
        .await;
    took(&webhook, "3", "customers/data_request", &json!({"customer": {"id": 77, "email": "jo@buyer.test"}}))
        .await;
    let mut other = order(2, &[(21, 0, 1)]);
    other["line_items"][0]["sku"] = json!("NEW-2");
    other["customer"] = json!({"id": 78, "first_name": "Kim"});
    other["email"] = json!("kim@buyer.test");
    took(&webhook, "4", "orders/create", &other).await;
    assert_eq!(shop.db.count("inbox_exception").await, 4);

    let redact = json!({"shop_domain": DOMAIN, "customer": {"id": 77, "email": "jo@buyer.test", "phone": null}, "orders_to_redact": [1]});
    took(&webhook, "5", "customers/redact", &redact).await;
    let left = bodies(&shop).await;
    assert!(!["jo@buyer.test", "\"Jo\""].iter().any(|trace| left.contains(*trace)), "{left}");
    assert!(left.contains("kim@buyer.test") && left.contains("Kim"), "another person's stands");
    assert_eq!(shop.db.count("inbox_exception where redacted_at is not null").await, 3);
    // At first no table of this tenant holds a name.
    let tables = "select string_agg(o::text || l::text, ' ') from channel_order o, channel_order_line l";
    let kept = shop.db.text(format!("select coalesce(({tables}), '')")).await;
    assert!(!TRACES.iter().any(|trace| kept.contains(trace)), "{kept}");

    shop.db.execute("update sku set code = 'NEW-1'").await;
    let reply = super::exceptions::retry(&shop, "1").await;
    assert_eq!(reply.status, 200);
    assert_eq!(positions(&shop).await, "6 2");
}

#[tokio::test]
async fn whoever_is_redacted_is_found_however_they_are_written_and_nobody_else() {
    let (shop, webhook) = open(Seed::default()).await;
    let unreadable = |about: Value| json!({"id": 1.5, "line_items": 5, "about": about});
    let bodies = [
        ("mail", unreadable(json!("JO+home@Buyer.Test ")), true),
        ("umlaut", unreadable(json!("Zoë@buyer.test")), false),
        ("phone", unreadable(json!("+4930123")), true),
        ("id", unreadable(json!({"customer": {"id": 77}})), true),
        ("gid", unreadable(json!("gid://shopify/Customer/77")), true),
        ("longer", unreadable(json!([770, 177, 77.5, 1.77, "a77b7"])), false),
    ];
    for (id, body, _) in &bodies {
        took(&webhook, id, "orders/create", body).await;
    }
    // The customer of an order is found by the order alone, whatever else is known; a guest has no id.
    let mut guest = order(5, &[(51, 0, 1)]);
    guest["line_items"][0]["sku"] = json!("NEW-1");
    guest["customer"] = json!({"id": null, "first_name": "Guest"});
    took(&webhook, "guest", "orders/create", &guest).await;
    guest["id"] = json!(6);
    took(&webhook, "other guest", "orders/create", &guest).await;
    // Another shop's customer with the same number is another person.
    let strange = unreadable(json!({"customer": {"id": 77}})).to_string();
    send(&webhook, &signed("strange.myshopify.com", "1", "orders/create", strange.as_bytes())).await;
    let redact = json!({"shop_domain": DOMAIN, "customer": {"id": 77, "email": "jo+home@buyer.test", "phone": "+4930123"},
        "orders_to_redact": [5]});
    took(&webhook, "r", "customers/redact", &redact).await;
    let gone = "select string_agg(event_id, ' ' order by event_id) from inbox_exception where redacted_at is not null";
    assert_eq!(shop.db.text(gone).await, "gid guest id mail phone");
    for (id, body, redacted) in &bodies {
        let kept = format!("select convert_from(body, 'UTF8') from inbox_exception where event_id = '{id}'");
        assert_eq!(
            shop.db.text(&kept).await,
            if *redacted { String::new() } else { body.to_string() },
            "{id}"
        );
    }
    let zoe = json!({"shop_domain": DOMAIN, "customer": {"id": "a(77", "email": "ZOë@buyer.test"}});
    took(&webhook, "z", "customers/redact", &zoe).await;
    assert_eq!(shop.db.count("inbox_exception where redacted_at is not null").await, 6);
    assert_eq!(shop.db.count("inbox_exception where redacted_at is null").await, 3);
    let guests =
        shop.db.text("select convert_from(body, 'UTF8') from inbox_exception where event_id = 'guest'").await;
    assert!(guests.contains("NEW-1") && !guests.contains("customer"), "{guests}");
}

#[tokio::test]
async fn no_answer_reason_or_event_holds_what_would_have_to_be_erased() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["quantity"] = json!("jo@buyer.test");
    took(&webhook, "1", "orders/create", &body).await;
    body["line_items"][0]["quantity"] = json!(2);
    body["line_items"][0]["sku"] = json!("NEW-1");
    took(&webhook, "2", "orders/create", &body).await;
    took(&webhook, "3", "customers/data_request", &json!({"customer": {"id": 77, "email": "jo@buyer.test"}}))
        .await;
    for id in ["1", "2"] {
        let document = super::exceptions::retry(&shop, id).await.json();
        assert_eq!((&document["resolvedAt"], &document["excerpt"]), (&Value::Null, &Value::Null));
    }
    let everything = "select concat_ws(' ', (select string_agg(convert_from(response_body, 'UTF8'), ' ') from idempotency_key),
        (select string_agg(payload, ' ') from outbox), (select string_agg(reason, ' ') from inbox_exception),
        (select string_agg(event_id, ' ') from webhook_inbox), (select string_agg(actor, ' ') from allocation_ledger))";
    let told = shop.db.text(everything).await;
    assert!(told.contains("NEW-1") && !told.contains("buyer.test") && !told.contains("Jo"), "{told}");
    // A retry that read the body before it was erased does not bring it back.
    let (tenant, id) =
        (shop.tenant.id, shop.db.text("select id::text from inbox_exception where event_id = '2'").await);
    took(&webhook, "4", "customers/redact", &json!({"shop_domain": DOMAIN, "customer": {"id": 77}})).await;
    let late = shared::webhooks::inbox::reread(
        &format!("shopify:{DOMAIN}"),
        "orders/create",
        body.to_string().as_bytes(),
    );
    shop.db
        .execute(format!(
            "begin; select set_config('app.tenant_id', '{tenant}', true);
         select holdfast.retry_exception(jsonb_build_object('tenantId', '{tenant}', 'id', '{id}', 'actor', 'user:x', 'delivery', '{late}'::jsonb)); commit"
        ))
        .await;
    assert_eq!(shop.db.count("inbox_exception where command::text ~ '\\m77\\M'").await, 0);
    // The request for a person's data can still be marked as answered.
    assert!(super::exceptions::retry(&shop, "3").await.json()["resolvedAt"].is_string());
}

#[tokio::test]
async fn a_shop_that_leaves_is_remembered_as_gone_and_its_bodies_erased() {
    let (shop, webhook) = open(Seed::default()).await;
    let tenant = shop.tenant.id;
    shop.db
        .execute(format!(
            "insert into shopify_shop (domain, tenant_id) values ('birch.myshopify.com', '{tenant}')"
        ))
        .await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["sku"] = json!("NEW-1");
    took(&webhook, "1", "orders/create", &body).await;
    took(&webhook, "2", "app/uninstalled", &json!({"id": 5, "domain": DOMAIN})).await;
    let gone = format!("shopify_shop where uninstalled_at is not null and domain = '{DOMAIN}'");
    assert_eq!(shop.db.count(&gone).await, 1);
    assert_eq!(
        shop.db.count("shopify_shop where uninstalled_at is not null").await,
        1,
        "its other shop stays"
    );
    shop.db
        .execute("update shopify_shop set uninstalled_at = '2020-01-01' where uninstalled_at is not null")
        .await;
    took(&webhook, "2 again", "app/uninstalled", &json!({"id": 5, "domain": DOMAIN})).await;
    assert_eq!(shop.db.count("shopify_shop where uninstalled_at = '2020-01-01'").await, 1);
    assert!(bodies(&shop).await.contains("jo@buyer.test"));
    took(&webhook, "3", "shop/redact", &json!({"shop_id": 5, "shop_domain": DOMAIN})).await;
    let left = bodies(&shop).await;
    assert!(!TRACES.iter().any(|trace| left.contains(trace)), "{left}");
    // A shop that is not known may ask, too.
    let redact = json!({"shop_domain": "strange.myshopify.com", "customer": {"id": 77, "email": "jo@buyer.test"},
        "orders_to_redact": [1]});
    let redact = redact.to_string();
    assert_eq!(
        send(&webhook, &signed("strange.myshopify.com", "1", "orders/create", body.to_string().as_bytes()))
            .await
            .status,
        200
    );
    assert!(bodies(&shop).await.contains("jo@buyer.test"));
    assert_eq!(
        send(&webhook, &signed("strange.myshopify.com", "2", "customers/redact", redact.as_bytes()))
            .await
            .status,
        200
    );
    assert!(!bodies(&shop).await.contains("jo@buyer.test"));
    took(&webhook, "4", "products/update", &json!({"id": 1})).await;
    assert_eq!(shop.db.count("inbox_exception").await, 2);
}

#[tokio::test]
async fn a_privacy_request_counts_for_the_shop_that_its_signed_body_names() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["sku"] = json!("NEW-1");
    took(&webhook, "1", "orders/create", &body).await;
    let other = "birch.myshopify.com";
    // Another shop's request under this one's header; a signed order that is sent on as a request.
    for (id, topic, misdirected) in [
        ("2", "customers/redact", json!({"shop_domain": other, "customer": {"id": 77}})),
        ("3", "shop/redact", json!({"shop_id": 5, "shop_domain": other})),
        ("4", "customers/redact", body.clone()),
        ("5", "shop/redact", body.clone()),
        ("6", "shop/redact", json!({"shop_domain": 5})),
    ] {
        took(&webhook, id, topic, &misdirected).await;
        assert!(bodies(&shop).await.contains("jo@buyer.test"), "{topic} {misdirected}");
        assert_eq!(
            shop.db.count(&format!("inbox_exception where event_id = '{id}' and redacted_at is null")).await,
            1
        );
    }
    took(
        &webhook,
        "7",
        "customers/redact",
        &json!({"shop_domain": DOMAIN.to_uppercase(), "customer": {"id": 77}}),
    )
    .await;
    assert_eq!(shop.db.count("inbox_exception where event_id = '1' and redacted_at is not null").await, 1);
}

/// `state` of each destination, by name.
async fn states(shop: &Shop) -> String {
    shop.db.text("select string_agg(name || ' ' || state, ', ' order by name) from destination").await
}

#[tokio::test]
async fn pushes_to_a_shop_stop_while_the_app_is_not_installed() {
    let (shop, webhook) = open(Seed::default()).await;
    let tenant = shop.tenant.id;
    let insert = |name: &str, kind: &str, host: &str, state: &str| {
        format!("insert into destination (tenant_id, name, kind, url, event_types, state) values
            ('{tenant}', '{name}', '{kind}', 'https://{host}/admin/api/2026-04/graphql.json', array['*'], '{state}');")
    };
    let there = [
        insert("a", "shopify_inventory", "Alder.myshopify.com", "active"),
        insert("b", "shopify_inventory", "alder.myshopify.com:443", "active"),
        insert("c", "shopify_inventory", "alder.myshopify.com", "paused"),
        insert("d", "shopify_inventory", "birch.myshopify.com", "active"),
        insert("e", "webhook", "alder.myshopify.com", "active"),
        insert("f", "shopify_inventory", "proxy.test", "active"),
    ];
    shop.db.execute(there.concat()).await;
    shop.db
        .execute(format!(
            "insert into shopify_shop (domain, tenant_id) values ('birch.myshopify.com', '{tenant}')"
        ))
        .await;
    took(&webhook, "1", "app/uninstalled", &json!({"id": 5, "domain": DOMAIN})).await;
    let stopped = "a paused, b paused, c paused, d active, e active, f active";
    assert_eq!(states(&shop).await, stopped);
    // What Shopify sends on behalf of a shop that is gone does not mean that it is back.
    took(&webhook, "2", "shop/redact", &json!({"shop_domain": DOMAIN})).await;
    took(&webhook, "3", "customers/redact", &json!({"shop_domain": DOMAIN, "customer": {"id": 1}})).await;
    took(&webhook, "4", "customers/data_request", &json!({"customer": {"id": 1}})).await;
    took(&webhook, "5", "app/uninstalled", &json!({"id": 5, "domain": DOMAIN})).await;
    assert_eq!(states(&shop).await, stopped);
    assert_eq!(shop.db.count("shopify_shop where uninstalled_at is not null").await, 1);
    // A bad signature brings nothing back, a delivery of any other topic does; what a person had paused stays.
    let mut forged = signed(DOMAIN, "6", "products/update", b"{}");
    forged = forged.header("X-Shopify-Hmac-Sha256", &sign("other", b"{}"));
    assert_eq!(send(&webhook, &forged).await.status, 401);
    assert_eq!(states(&shop).await, stopped);
    took(&webhook, "7", "products/update", &json!({"id": 1})).await;
    assert_eq!(states(&shop).await, "a active, b active, c paused, d active, e active, f active");
    assert_eq!(shop.db.count("shopify_shop where uninstalled_at is not null").await, 0);
    // Of the tenant's only shop a proxy is the way, too.
    shop.db.execute("delete from shopify_shop where domain like 'birch%'").await;
    took(&webhook, "8", "app/uninstalled", &json!({"id": 5, "domain": DOMAIN})).await;
    assert_eq!(states(&shop).await, "a paused, b paused, c paused, d paused, e active, f paused");
}

#[tokio::test]
async fn a_person_is_found_by_key_however_many_bodies_are_kept() {
    let (shop, webhook) = open(Seed::default()).await;
    let tenant = shop.tenant.id;
    shop.db.keep_statistics(&["inbox_exception", "exception_trace"]).await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["sku"] = json!("NEW-1");
    let redact = |n: usize| {
        let command = json!({"do": "customers/redact", "shopDomain": DOMAIN, "customerId": "77", "orderIds": ["1"],
            "traces": ["jo@buyer.test", "+49 30 123"]});
        format!(
            "select holdfast.receive('{}'::jsonb, '')",
            json!({"provider": format!("shopify:{DOMAIN}"), "eventId": format!("r{n}"), "topic": "customers/redact",
                "command": command})
        )
    };
    took(&webhook, "1", "orders/create", &body).await;
    let mut app = shop.db.app().await;
    let alone = blocks(&mut app, &redact(1)).await;
    // Each of some kilobytes, about somebody else; one more is of the same person, and not of this shop.
    shop.db
        .execute(format!(
            "insert into inbox_exception (tenant_id, provider, event_id, topic, reason, body)
             select '{tenant}'::uuid, 'shopify:{DOMAIN}', 'n' || n, 'orders/create', 'x', convert_to(json_build_object('customer',
               json_build_object('id', 1000 + n, 'email', n || 'jo@buyer.test', 'note', repeat(md5(n::text), 20)))::text, 'UTF8')
             from generate_series(1, 3000) n
             union all select '{tenant}', 'shopify:birch.myshopify.com', 'other', 'orders/create', 'x', '{{\"id\":77}}'"
        ))
        .await;
    let beside = blocks(&mut app, &redact(2)).await;
    assert!(beside <= alone * 2 + 20, "{beside} blocks beside 3,000 bodies, {alone} without");
    took(
        &webhook,
        "2",
        "customers/redact",
        &json!({"shop_domain": DOMAIN, "customer": {"id": 77, "email": "jo@buyer.test"}}),
    )
    .await;
    assert_eq!(shop.db.count("inbox_exception where redacted_at is not null").await, 1);
    assert_eq!(
        shop.db.count("exception_trace t join inbox_exception e on e.id = t.exception_id where e.redacted_at is not null").await,
        0,
        "what a person was found by is erased as well"
    );
}

#[tokio::test]
async fn a_body_with_too_much_in_it_is_read_itself() {
    let (shop, webhook) = open(Seed::default()).await;
    let many: Vec<u32> = (100_000..106_000).collect();
    let body = |about: Value| json!({"id": 1.5, "line_items": 5, "many": many, "about": about});
    took(&webhook, "large", "orders/create", &body(json!("jo@buyer.test"))).await;
    took(&webhook, "other", "orders/create", &body(json!("kim@buyer.test"))).await;
    took(&webhook, "by id", "orders/create", &body(json!({"customer": {"id": 77}}))).await;
    assert!(shop.db.count("exception_trace").await <= 3);
    took(
        &webhook,
        "r",
        "customers/redact",
        &json!({"shop_domain": DOMAIN, "customer": {"id": 77, "email": "jo@buyer.test"}}),
    )
    .await;
    let gone = "select string_agg(event_id, ' ' order by event_id) from inbox_exception where redacted_at is not null";
    assert_eq!(shop.db.text(gone).await, "by id large");
}
