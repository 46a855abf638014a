//! Credentials and scopes are checked before any work.

use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use testing::{
    AUDIENCE, Event, ISSUER, JWT_SECRET, Reply, SCOPE_CLAIM, Seed, Shop, TENANT_CLAIM, Wire, issue_api_key,
    token, token_with,
};
use uuid::Uuid;

use crate::send;

fn seed() -> Seed {
    Seed { on_hand: 1_000, order_qty: 1_000, ..Seed::default() }
}

fn event(shop: &Shop, authorization: Option<&str>) -> Event {
    let event =
        Event::post(&format!("/orders/{}/allocate", shop.tenant.orders[0])).key(&Uuid::new_v4().to_string());
    let event = event.json(&shop.one(0, 1));
    match authorization {
        Some(value) => event.header("authorization", value),
        None => event,
    }
}

fn assert_unauthenticated(reply: &Reply, why: &str) {
    assert_eq!((reply.status, reply.error().as_deref()), (401, Some("unauthenticated")), "{why}: {reply:?}");
    assert!(reply.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")), "{why}");
}

fn detail(reply: &Reply) -> String {
    reply.json()["detail"].as_str().unwrap().to_owned()
}

/// A token signed by hand: any header, any claims, any secret.
fn forged(header: &Header, claims: &Value, secret: &str) -> String {
    encode(header, claims, &EncodingKey::from_secret(secret.as_bytes()).unwrap()).unwrap()
}

fn base64url(text: &str) -> String {
    let standard = base64(text.as_bytes());
    standard.trim_end_matches('=').replace('+', "-").replace('/', "_")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * n)) as usize & 63]));
        }
    }
    text
}

#[tokio::test]
async fn a_token_with_any_flaw_is_401() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let (tenant, user) = (shop.tenant.id, shop.tenant.users[0]);
    let good = shop.tenant.token();
    let now: i64 = shop.db.scalar("select extract(epoch from now())::bigint").await;
    let claims = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": user, TENANT_CLAIM: tenant, "iat": now, "exp": now + 600,
        SCOPE_CLAIM: "orders:write"});
    let unsigned =
        format!("{}.{}.", base64url(r#"{"alg":"none","typ":"JWT"}"#), base64url(&claims.to_string()));
    let parts: Vec<&str> = good.split('.').collect();
    let other_payload =
        base64url(&claims.to_string().replace(&tenant.to_string(), &Uuid::new_v4().to_string()));
    let bearer = |token: String| Some(format!("Bearer {token}"));
    let with = |claims: Value| bearer(token_with(tenant, user, claims));
    for (why, authorization) in [
        ("no header", None),
        ("empty", Some(String::new())),
        ("no scheme", Some(good.clone())),
        ("another scheme", Some(format!("Basic {good}"))),
        ("no token", Some("Bearer".into())),
        ("blank token", Some("Bearer  ".into())),
        ("rubbish", bearer("rubbish".into())),
        ("three dots", bearer("a.b.c".into())),
        ("not ASCII", bearer("тoken".into())),
        ("two tokens", bearer(format!("{good} {good}"))),
        ("expired", with(json!({"exp": now - 60}))),
        ("no expiry", with(json!({"exp": null}))),
        ("expiry of another type", with(json!({"exp": "tomorrow"}))),
        ("not yet valid", with(json!({"nbf": now + 600}))),
        ("wrong issuer", with(json!({"iss": "https://elsewhere.test"}))),
        ("no issuer", with(json!({"iss": null}))),
        ("wrong audience", with(json!({"aud": "another"}))),
        ("no audience", with(json!({"aud": null}))),
        ("no subject", with(json!({"sub": null}))),
        ("a subject that is no id", with(json!({"sub": "ann"}))),
        ("no tenant", with(json!({TENANT_CLAIM: null}))),
        ("a tenant that is no id", with(json!({TENANT_CLAIM: "acme"}))),
        ("a tenant of several", with(json!({TENANT_CLAIM: [tenant]}))),
        ("an unknown user", bearer(token(tenant, Uuid::new_v4(), "orders:write"))),
        ("an unknown tenant", bearer(token(Uuid::new_v4(), user, "orders:write"))),
        ("another secret", bearer(forged(&Header::default(), &claims, "another secret of 32 bytes or more"))),
        ("another HMAC", bearer(forged(&Header::new(Algorithm::HS512), &claims, JWT_SECRET))),
        ("alg none", bearer(unsigned)),
        ("no signature", bearer(format!("{}.{}.", parts[0], parts[1]))),
        ("another payload", bearer(format!("{}.{other_payload}.{}", parts[0], parts[2]))),
        ("an unknown API key", bearer(format!("hf_{}", Uuid::new_v4().simple()))),
        ("an empty API key", bearer("hf_".into())),
        ("an API key with a quote", bearer("hf_' or true --".into())),
    ] {
        let reply = send(&sandbox, &event(&shop, authorization.as_deref())).await;
        assert_unauthenticated(&reply, why);
    }
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    let reply =
        send(&sandbox, &event(&shop, bearer(forged(&Header::default(), &claims, JWT_SECRET)).as_deref()))
            .await;
    assert_eq!(reply.status, 200, "without a flaw the forged one is good: {reply:?}");
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_told_and_nothing_else() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let (tenant, user) = (shop.tenant.id, shop.tenant.users[0]);
    let now: i64 = shop.db.scalar("select floor(extract(epoch from clock_timestamp()))::bigint").await;
    let with = |claims: Value| token_with(tenant, user, claims);
    let told = async |token: String| {
        let reply = send(&sandbox, &event(&shop, Some(&format!("Bearer {token}")))).await;
        assert_unauthenticated(&reply, &token);
        detail(&reply)
    };
    // The test may take some seconds.
    let is_about = |detail: &str, wording: &str, secs: std::ops::RangeInclusive<i64>| {
        assert!(secs.into_iter().any(|s| detail == wording.replace('#', &s.to_string())), "{detail}");
    };
    let expired = "The token expired # s ago by this server's clock.";
    is_about(&told(with(json!({"exp": now - 42}))).await, expired, 42..=47);
    is_about(&told(with(json!({"exp": now as f64 - 42.5}))).await, expired, 42..=47);
    is_about(&told(with(json!({"exp": now - 42, "nbf": now + 30}))).await, expired, 42..=47);
    let early = "The token is not valid for another # s by this server's clock; check the issuer's clock.";
    is_about(&told(with(json!({"nbf": now + 30}))).await, early, 25..=30);

    let general = "Send Authorization: Bearer with a valid token or API key.";
    let claims = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": user, TENANT_CLAIM: tenant, "exp": now - 42});
    for (why, token) in [
        (
            "expired, another secret",
            forged(&Header::default(), &claims, "another secret of 32 bytes or more"),
        ),
        ("expired, another HMAC", forged(&Header::new(Algorithm::HS512), &claims, JWT_SECRET)),
        ("expired, wrong audience", with(json!({"exp": now - 42, "aud": "another"}))),
        ("too early, wrong issuer", with(json!({"nbf": now + 30, "iss": "https://elsewhere.test"}))),
        ("wrong audience", with(json!({"aud": "another"}))),
    ] {
        assert_eq!(told(token).await, general, "{why}");
    }
    // Within the leeway, and a time of issue that is not looked at.
    for claims in [json!({"exp": now - 2, "nbf": now + 4}), json!({"iat": now + 3_600})] {
        let reply = send(&sandbox, &event(&shop, Some(&format!("Bearer {}", with(claims))))).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}

#[tokio::test]
async fn the_scheme_is_taken_in_any_case_and_an_audience_may_be_one_of_several() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let good = shop.tenant.token();
    let several = token_with(shop.tenant.id, shop.tenant.users[0], json!({"aud": ["another", AUDIENCE]}));
    for authorization in [
        format!("bearer {good}"),
        format!("BEARER {good}"),
        format!("Bearer  {good} "),
        format!("Bearer {several}"),
    ] {
        assert_eq!(send(&sandbox, &event(&shop, Some(&authorization))).await.status, 200, "{authorization}");
    }
}

#[tokio::test]
async fn an_unknown_user_is_401_whatever_else_is_wrong() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let other = shop.db.seed(seed()).await;
    let path = format!("/orders/{}/allocate", shop.tenant.orders[0]);
    for stranger in [
        token(shop.tenant.id, Uuid::new_v4(), "orders:write"),
        token(shop.tenant.id, Uuid::new_v4(), ""),
        // A user of another tenant.
        token(shop.tenant.id, other.users[0], "orders:write"),
    ] {
        for event in [
            Event::post(&path).key("k").body(b"{"),
            Event::post(&path).key("a,b").json(&shop.one(0, 1)),
            Event::post("/orders/7/allocate").key("k").json(&shop.one(0, 1)),
            Event::post(&path).key("k").body(&vec![b' '; 1024 * 1024 + 1]),
            Event::post(&path).key("k").json(&shop.one(0, 1)),
        ] {
            assert_unauthenticated(&send(&sandbox, &event.bearer(&stranger)).await, "unknown user");
        }
    }
    // An unknown user gets no replay either.
    let known = Event::post(&path).key("k").json(&shop.one(0, 1));
    assert_eq!(send(&sandbox, &known.clone().bearer(&shop.tenant.token())).await.status, 200);
    let stranger = token(shop.tenant.id, Uuid::new_v4(), "orders:write");
    assert_unauthenticated(&send(&sandbox, &known.bearer(&stranger)).await, "replay");
}

#[tokio::test]
async fn scopes_come_as_a_string_or_an_array_and_must_hold_the_one_needed() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let with = |scope: Value| token_with(shop.tenant.id, shop.tenant.users[0], json!({SCOPE_CLAIM: scope}));
    for scope in [
        json!("orders:write"),
        json!("openid  orders:write profile"),
        json!(["orders:write"]),
        json!(["orders:read", "orders:write"]),
    ] {
        let reply = send(&sandbox, &event(&shop, Some(&format!("Bearer {}", with(scope.clone()))))).await;
        assert_eq!(reply.status, 200, "{scope}: {reply:?}");
    }
    for scope in [
        json!(null),
        json!(""),
        json!("orders:read outbox:admin"),
        json!("orders:writer"),
        json!("ORDERS:WRITE"),
        json!("orders"),
        json!("orders:write,orders:read"),
        json!([]),
        json!(["orders:read"]),
        json!([7, null]),
        json!({"orders:write": true}),
        json!(7),
        json!("*"),
    ] {
        let reply = send(&sandbox, &event(&shop, Some(&format!("Bearer {}", with(scope.clone()))))).await;
        assert_eq!((reply.status, reply.error().as_deref()), (403, Some("forbidden")), "{scope}: {reply:?}");
        assert_eq!(reply.header("www-authenticate"), None);
    }
}

#[tokio::test]
async fn an_api_key_works_until_revoked_or_expired_and_only_its_hash_is_stored() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let (tenant, user) = (shop.tenant.id, shop.tenant.users[1]);
    let ask = async |key: &str| send(&sandbox, &event(&shop, Some(&format!("Bearer {key}")))).await;
    let key = issue_api_key(&shop.db, tenant, user, &["orders:write"]).await;
    for _ in 0..3 {
        assert_eq!(ask(&key).await.status, 200);
    }
    assert_unauthenticated(
        &ask(&key.to_uppercase().replacen("HF_", "hf_", 1)).await,
        "keys are told apart by case",
    );
    assert_unauthenticated(&ask(&format!("{key}0")).await, "a longer key");
    let reader = issue_api_key(&shop.db, tenant, user, &["orders:read"]).await;
    assert_eq!(ask(&reader).await.status, 403);
    assert_eq!(ask(&reader).await.status, 403);

    let revoked = issue_api_key(&shop.db, tenant, user, &["orders:write"]).await;
    shop.db.execute("update api_key set revoked_at = now() where id = (select id from api_key order by created_at desc limit 1)").await;
    assert_unauthenticated(&ask(&revoked).await, "revoked");
    let expired = issue_api_key(&shop.db, tenant, user, &["orders:write"]).await;
    shop.db.execute("update api_key set expires_at = now() - interval '2 seconds' where id = (select id from api_key order by created_at desc limit 1)").await;
    assert_unauthenticated(&ask(&expired).await, "expired");
    let lasting = issue_api_key(&shop.db, tenant, user, &["orders:write"]).await;
    shop.db.execute("update api_key set expires_at = now() + interval '1 hour' where id = (select id from api_key order by created_at desc limit 1)").await;
    assert_eq!(ask(&lasting).await.status, 200);

    let plain: i64 = shop.db.scalar("select count(*) from api_key k where k::text like '%hf\\_%'").await;
    assert_eq!(plain, 0, "a key itself is stored nowhere");
}

/// Longer than an API key is known not to exist.
const UNKNOWN_FOR: Duration = Duration::from_millis(5_100);

#[tokio::test]
async fn a_flood_of_one_unknown_api_key_costs_one_look_up_and_an_issued_one_soon_works() {
    let shop = Shop::open(seed()).await;
    let wire = Wire::before(&shop.db).await;
    let sandbox = wire.endpoint(&shop.db);
    let ask = async |key: &str| send(&sandbox, &event(&shop, Some(&format!("Bearer {key}")))).await;
    let key = format!("hf_{}", Uuid::new_v4().simple());
    sandbox.db.warm().await;
    wire.take_counts();
    for _ in 0..50 {
        assert_unauthenticated(&ask(&key).await, "unknown");
    }
    assert_eq!(wire.take_counts().asked, 1);
    assert_unauthenticated(&ask("hf_another").await, "another unknown");
    assert_eq!(wire.take_counts().asked, 1, "of each key by itself");

    let (tenant, user) = (shop.tenant.id, shop.tenant.users[0]);
    shop.db
        .execute(format!(
            "insert into api_key (tenant_id, app_user_id, label, key_hash, scopes)
             values ('{tenant}', '{user}', 'test', sha256('{key}'), '{{orders:write}}')"
        ))
        .await;
    tokio::time::sleep(UNKNOWN_FOR).await;
    assert_eq!(ask(&key).await.status, 200);
    wire.take_counts();
    assert_eq!(ask(&key).await.status, 200);
    assert_eq!(wire.take_counts().asked, 1, "the allocation, and no look-up");
}

#[tokio::test]
async fn an_api_key_that_expires_while_it_is_cached_ends_on_time() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let key = issue_api_key(&shop.db, shop.tenant.id, shop.tenant.users[0], &["orders:write"]).await;
    shop.db
        .execute("update api_key set expires_at = date_trunc('second', now()) + interval '2 seconds'")
        .await;
    let bearer = format!("Bearer {key}");
    assert_eq!(send(&sandbox, &event(&shop, Some(&bearer))).await.status, 200);
    shop.db.until("(select expires_at < clock_timestamp() from api_key)").await;
    assert_unauthenticated(&send(&sandbox, &event(&shop, Some(&bearer))).await, "expired in the cache");
}

#[tokio::test]
async fn an_api_key_acts_only_in_its_own_tenant() {
    let shop = Shop::open(seed()).await;
    let other = shop.db.seed(seed()).await;
    let key = issue_api_key(&shop.db, other.id, other.users[0], &["orders:write"]).await;
    let reply = send(&shop.db.endpoint(), &event(&shop, Some(&format!("Bearer {key}")))).await;
    assert_eq!((reply.status, reply.error().as_deref()), (404, Some("order_not_found")));
}
