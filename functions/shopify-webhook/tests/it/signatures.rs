//! Signatures: the published vectors and variations of them.

use shared::webhooks::signature::Secrets;

use super::*;

#[tokio::test]
async fn every_published_vector_is_answered_as_it_was_meant() {
    let Some(cases) = case("shopify/hmac-cases.json") else { return };
    let (_shop, mut webhook) = open(Seed::default()).await;
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    assert!(cases.len() >= 15);
    for (index, case) in cases.iter().enumerate() {
        let [name, expect, secret, body] =
            ["name", "expect", "secret", "body"].map(|member| case[member].as_str().unwrap());
        webhook.secrets = secret.into();
        let mut event = Event::post("/webhooks/shopify").body(body.as_bytes());
        for (header, value) in case["headers"].as_object().unwrap() {
            // As the gateway would pass it on; a header cannot contain a line break.
            let value = value.as_str().unwrap().trim_end_matches('\n');
            let id = header.eq_ignore_ascii_case("x-shopify-webhook-id");
            event =
                event.header(header, if id { format!("{value}-{index}") } else { value.to_owned() }.as_str());
        }
        // The API version is not used; a blank around the signature is accepted.
        let accepted = expect == "ok" || expect.contains("policy");
        for event in [event.clone(), event.base64()] {
            let reply = send(&webhook, &event).await;
            assert_eq!(reply.status, if accepted { 200 } else { 401 }, "{name}");
            assert_eq!(reply.error().as_deref(), (!accepted).then_some("bad_signature"), "{name}");
        }
    }
}

#[tokio::test]
async fn published_hmacs_hold_and_any_of_several_secrets_will_do() {
    let Some(cases) = case("shopify/published-hmacs.json") else { return };
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    for case in &cases {
        let (secret, body) = (case["secret"].as_str().unwrap(), case["body"].as_str().unwrap());
        let name = http::HeaderName::from_static("x-shopify-hmac-sha256");
        let headers = http::HeaderMap::from_iter([(name, case["hmac"].as_str().unwrap().parse().unwrap())]);
        for configured in [secret.to_owned(), format!("old,{secret}"), format!("{secret}\nnew")] {
            assert!(shared::webhooks::signature::shopify(
                &Secrets::plain(&configured),
                &headers,
                body.as_bytes()
            ));
        }
        for configured in ["old", "", " , "] {
            assert!(!shared::webhooks::signature::shopify(
                &Secrets::plain(configured),
                &headers,
                body.as_bytes()
            ));
        }
    }
}

#[tokio::test]
async fn without_a_signature_that_holds_nothing_is_stored() {
    let (shop, webhook) = open(Seed::default()).await;
    let body = order(1, &[(1, 0, 1)]).to_string();
    let event = |hmac: &str| {
        Event::post("/webhooks/shopify")
            .header("x-shopify-shop-domain", DOMAIN)
            .header("x-shopify-webhook-id", "1")
            .header("x-shopify-topic", "orders/create")
            .header("x-shopify-hmac-sha256", hmac)
            .body(body.as_bytes())
    };
    for hmac in ["", "x", &sign("other", body.as_bytes()), &sign("", body.as_bytes()), &sign(SECRET, b"")] {
        let reply = send(&webhook, &event(hmac)).await;
        assert_eq!((reply.status, reply.error().as_deref()), (401, Some("bad_signature")), "{hmac}");
    }
    assert_eq!(shop.db.count("webhook_inbox").await + shop.db.count("inbox_exception").await, 0);
    assert_eq!(send(&webhook, &Event::get("/webhooks/shopify")).await.status, 405);
    assert_eq!(send(&webhook, &Event::post("/webhooks")).await.status, 404);
}

#[tokio::test]
async fn a_shop_with_a_secret_of_its_own_is_proved_by_that_one_only() {
    let (shop, webhook) = open(Seed::default()).await;
    let tenant = shop.tenant.id;
    let sealed = |secret: &str| testing::sealer().seal(&format!("shop {DOMAIN}"), secret).unwrap();
    let set = |columns: String| format!("update shopify_shop set {columns} where domain = '{DOMAIN}'");
    shop.db
        .execute(format!(
            "insert into shopify_shop (domain, tenant_id) values ('birch.myshopify.com', '{tenant}')"
        ))
        .await;
    shop.db.execute(set(format!("secret = '{}'", sealed("own_secret_of_alder")))).await;
    let mut id = 0;
    let mut status = async |domain: &str, secret: &str| {
        id += 1;
        let body = order(id, &[(id, 0, 1)]).to_string();
        let event = Event::post("/webhooks/shopify")
            .header("X-Shopify-Shop-Domain", domain)
            .header("X-Shopify-Webhook-Id", &id.to_string())
            .header("X-Shopify-Topic", "orders/create")
            .header("X-Shopify-Hmac-Sha256", &sign(secret, body.as_bytes()))
            .body(body.as_bytes());
        send(&webhook, &event).await.status
    };
    assert_eq!(status(DOMAIN, SECRET).await, 401, "the app's secret speaks for other shops");
    assert_eq!(status(DOMAIN, "own_secret_of_alder").await, 200);
    assert_eq!(status("Alder.MyShopify.com", "own_secret_of_alder").await, 200, "in any case");
    assert_eq!(status("birch.myshopify.com", SECRET).await, 200);
    assert_eq!(status("birch.myshopify.com", "own_secret_of_alder").await, 401, "and that one for no other");
    assert_eq!(status("nobody.myshopify.com", SECRET).await, 200, "an unknown shop is one of the app's");
    // Rotated, then removed.
    let rotated = format!(
        "previous_secret = secret, previous_retires_at = now() + interval '1 h', secret = '{}'",
        sealed("second_of_alder")
    );
    shop.db.execute(set(rotated)).await;
    assert_eq!(
        (status(DOMAIN, "own_secret_of_alder").await, status(DOMAIN, "second_of_alder").await),
        (200, 200)
    );
    shop.db.execute(set("previous_retires_at = now()".into())).await;
    assert_eq!(
        (status(DOMAIN, "own_secret_of_alder").await, status(DOMAIN, "second_of_alder").await),
        (401, 200)
    );
    shop.db.execute(set("secret = null".into())).await;
    assert_eq!((status(DOMAIN, "second_of_alder").await, status(DOMAIN, SECRET).await), (401, 200));
}
