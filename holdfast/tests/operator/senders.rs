//! Who may send, with which secrets; what was told before an operator had created what it needs.

use std::process::{Child, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use shared::runtime::sealed::{Sealer, destination_place, inventory_place, shop_place, threepl_place};
use shared::webhooks::inbox::Receiver;
use testing::{Event, Reply, Seed, Shop};

use super::*;

const KEYS: &str = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEW_KEYS: &str =
    "k2:HxAdHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=,k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// As `printed`, with keys.
fn sealing(url: &str, keys: &str, args: &[&str]) -> Value {
    printed(url, &[args, &["--secrets-keys", keys]].concat())
}

/// As `refused`, with keys.
fn refused_with_keys(url: &str, args: &[&str]) -> String {
    refused(url, &[args, &["--secrets-keys", KEYS]].concat(), FAILED)
}

fn sealer(keys: &str) -> Sealer {
    Sealer::read(keys).unwrap()
}

#[tokio::test]
async fn a_shops_own_secret_is_set_rotated_and_removed_and_never_shown() {
    let db = TestDb::create().await;
    let (url, tenant) = (db.owner_url.as_str(), new_tenant(&db.owner_url));
    let domain = "birch.myshopify.com";
    printed(url, &["admin", "shop", "create", "--tenant", &tenant, "--domain", domain]);
    let secret = |verb, secret| ["admin", "shop", verb, "--domain", domain, "--secret", secret];
    let listed = || printed(url, &["admin", "shop", "list"])["hasOwnSecret"].clone();
    assert_eq!(listed(), false);

    let early = refused_with_keys(url, &secret("rotate-secret", "shpss_first"));
    assert!(early.contains("no secret of its own yet"), "{early}");
    for wrong in ["short", "with,comma", "with blank"] {
        let told = refused(url, &secret("set-secret", wrong), FAILED);
        assert!(told.contains("8 to 255 visible characters") && !told.contains(wrong), "{told}");
    }
    let nowhere = ["admin", "shop", "set-secret", "--domain", "no.myshopify.com", "--secret", "shpss_first"];
    refused_with_keys(url, &nowhere);

    let set = sealing(url, KEYS, &secret("set-secret", "shpss_first"));
    assert_eq!((&set["hasOwnSecret"], &set["previousRetiresAt"]), (&json!(true), &Value::Null));
    let rotated = sealing(url, KEYS, &secret("rotate-secret", "shpss_second"));
    assert!(rotated["previousRetiresAt"].is_string(), "{rotated}");
    assert_eq!(listed(), true);
    let stored = "select concat_ws(' ', secret, previous_secret) from shopify_shop";
    let both = db.text(stored).await;
    assert!(!both.contains("shpss") && both.matches("sealed:k1:").count() == 2, "{both}");
    let opened: Vec<_> =
        both.split(' ').map(|secret| sealer(KEYS).open(&shop_place(domain), secret).unwrap()).collect();
    assert_eq!(opened, ["shpss_second", "shpss_first"]);
    assert_eq!(db.count("shopify_shop where previous_retires_at between now() + interval '23 h' and now() + interval '24 h'").await, 1);

    // A leaked one ends at once.
    sealing(url, KEYS, &[&secret("rotate-secret", "shpss_third")[..], &["--overlap-hours", "0"]].concat());
    assert_eq!(
        db.count("shopify_shop where previous_secret is null and previous_retires_at is null").await,
        1
    );
    printed(url, &["admin", "shop", "remove-secret", "--domain", domain]);
    assert_eq!(listed(), false);
    refused(url, &["admin", "shop", "remove-secret", "--domain", domain], FAILED);
}

#[tokio::test]
async fn a_3pls_secret_is_rotated_and_the_one_before_counts_for_a_while() {
    let db = TestDb::create().await;
    let (url, tenant) = (db.owner_url.as_str(), new_tenant(&db.owner_url));
    let made = sealing(url, KEYS, &["admin", "threepl", "create", "--tenant", &tenant, "--account", "north"]);
    let rotated = sealing(url, KEYS, &["admin", "threepl", "rotate", "--account", "north"]);
    assert_ne!(made["secret"], rotated["secret"]);
    let both = db.text("select secret || ' ' || previous_secret from threepl_account").await;
    let opened: Vec<_> =
        both.split(' ').map(|secret| sealer(KEYS).open(&threepl_place("north"), secret).unwrap()).collect();
    assert_eq!(json!(opened), json!([rotated["secret"], made["secret"]]));
    let short = ["admin", "threepl", "rotate", "--account", "north", "--secret", "whsec_c2VjcmV0"];
    assert!(refused(url, &short, FAILED).contains("this one is 6 bytes"));
    refused_with_keys(url, &["admin", "threepl", "rotate", "--account", "south"]);
}

#[tokio::test]
async fn stored_secrets_are_sealed_with_the_first_key_and_then_the_other_can_go() {
    let db = TestDb::create().await;
    let (url, tenant) = (db.owner_url.as_str(), new_tenant(&db.owner_url));
    let warned = holdfast(url, &["admin", "threepl", "create", "--tenant", &tenant, "--account", "plain"]);
    let (said, plain) =
        (String::from_utf8(warned.stderr).unwrap(), String::from_utf8(warned.stdout).unwrap());
    assert!(said.contains("SECRETS_KEYS is not set") && plain.contains("whsec_"), "{said}");
    sealing(url, KEYS, &["admin", "threepl", "create", "--tenant", &tenant, "--account", "old"]);
    sealing(url, KEYS, &["admin", "threepl", "rotate", "--account", "old"]);
    // Where stock is reported: one sealed, one not.
    let inventory = |account| {
        [
            "admin",
            "threepl",
            "inventory",
            "--account",
            account,
            "--url",
            "https://wms.example/v1",
            "--token",
            "wms_token_1",
        ]
    };
    printed(url, &inventory("plain"));
    sealing(url, KEYS, &inventory("old"));
    let tokens = "select string_agg(token, ' ' order by account_id desc) from threepl_inventory";
    assert!(db.text(tokens).await.starts_with("wms_token_1 sealed:k1:"));
    let destination = uuid::Uuid::new_v4();
    db.execute(format!(
        "insert into destination (tenant_id, id, name, kind, url, event_types)
           values ('{tenant}', '{destination}', 'd', 'webhook', 'https://a.example/', array['*']);
         insert into destination_secret (tenant_id, destination_id, secret) values ('{tenant}', '{destination}', 'whsec_plain')"
    ))
    .await;
    assert!(refused(url, &["admin", "reseal"], FAILED).contains("SECRETS_KEYS is not set"));
    assert_eq!(sealing(url, NEW_KEYS, &["admin", "reseal"]), json!({"resealed": 6, "alreadyCurrent": 0}));
    assert_eq!(sealing(url, NEW_KEYS, &["admin", "reseal"]), json!({"resealed": 0, "alreadyCurrent": 6}));
    let only_new = sealer(NEW_KEYS.split(',').next().unwrap());
    let stored = db.text("select secret from destination_secret").await;
    assert_eq!(only_new.open(&destination_place(destination), &stored).as_deref(), Ok("whsec_plain"));
    for account in ["plain", "old"] {
        let token =
            db.text(format!("select token from threepl_inventory where account_id = '{account}'")).await;
        assert_eq!(
            only_new.open(&inventory_place(account), &token).as_deref(),
            Ok("wms_token_1"),
            "{account}"
        );
    }
    let told: Value = serde_json::from_str(&plain).unwrap();
    let stored = db.text("select secret from threepl_account where id = 'plain'").await;
    assert_eq!(only_new.open(&threepl_place("plain"), &stored).unwrap(), told["secret"].as_str().unwrap());
    // One that cannot be opened stops it in words, and shows nothing.
    let told = refused(url, &["admin", "reseal", "--secrets-keys", KEYS], FAILED);
    assert!(told.contains("sealed with the key \"k2\""), "{told}");
    let told = refused(url, &["admin", "reseal", "--secrets-keys", "k1:short"], FAILED);
    assert!(told.contains("SECRETS_KEYS is wrong") && !told.contains("short"), "{told}");
}

#[tokio::test]
async fn a_customers_limit_and_hold_are_set_as_the_api_saves_them() {
    let shop = Shop::open(Seed::default()).await;
    let (url, tenant) = (shop.db.owner_url.as_str(), shop.tenant.id.to_string());
    let customer = shop.tenant.customer.to_string();
    let set = ["admin", "customer", "set", "--tenant", &tenant, "--id", &customer];
    let with = |more: &[&str]| printed(url, &[&set[..], more].concat());
    let saved = with(&["--credit-limit-minor", "890000"]);
    assert_eq!((&saved["creditLimitMinor"], &saved["version"]), (&json!(890_000), &json!(2)));
    let saved = with(&["--on-hold", "true", "--no-credit-limit"]);
    assert_eq!(
        (&saved["creditLimitMinor"], &saved["onHold"], &saved["version"]),
        (&Value::Null, &json!(true), &json!(3))
    );
    assert_eq!(shop.db.count("outbox where event_type = 'customer.saved'").await, 2);
    let listed = printed(url, &["admin", "customer", "list", "--tenant", &tenant]);
    assert_eq!((&listed["id"], &listed["onHold"]), (&json!(customer), &json!(true)));
    refused(url, &set, FAILED);
    refused(url, &[&set[..], &["--credit-limit-minor", "-1"]].concat(), WRONG_ARGUMENTS);
    refused(url, &[&set[..], &["--credit-limit-minor", "1", "--no-credit-limit"]].concat(), WRONG_ARGUMENTS);
    let nobody = uuid::Uuid::new_v4().to_string();
    let stranger = ["admin", "customer", "set", "--tenant", &tenant, "--id", &nobody, "--on-hold", "true"];
    assert_eq!(refused(url, &stranger, FAILED), "There is no customer with this id.\n");
}

/// Tells what a 3PL announces, through the deployed handler.
async fn announce(shop: &Shop, id: &str, skus: &[&str]) {
    let webhook = threepl_webhook::Webhook {
        receiver: Receiver::new(&shop.db.app_config()).unwrap(),
        sealer: sealer(KEYS),
    };
    let secret = shop.db.text("select secret from threepl_account where id = 'north'").await;
    let secret = sealer(KEYS).open(&threepl_place("north"), &secret).unwrap();
    let lines: Vec<Value> =
        skus.iter().enumerate().map(|(n, sku)| json!({"lineId": n, "sku": sku, "qty": 2})).collect();
    let body = json!({"type": "asn.created", "asnId": id, "lines": lines}).to_string();
    let now = jiff::Timestamp::now().as_second();
    let signature = standardwebhooks::Webhook::new(&secret).unwrap().sign(id, now, body.as_bytes()).unwrap();
    let event = Event::post("/webhooks/3pl/north")
        .header("webhook-id", id)
        .header("webhook-timestamp", &now.to_string())
        .header("webhook-signature", &signature)
        .body(body.as_bytes());
    let reply = Reply::from(threepl_webhook::handle(&webhook, event.request()).await);
    assert_eq!((reply.status, reply.json()), (200, json!({"received": true})));
}

/// A tenant with a style and a 3PL account `north`.
async fn warehouse() -> Shop {
    let shop = Shop::open(Seed::default()).await;
    let tenant = shop.tenant.id.to_string();
    sealing(
        &shop.db.owner_url,
        KEYS,
        &["admin", "threepl", "create", "--tenant", &tenant, "--account", "north"],
    );
    shop
}

#[tokio::test]
async fn importing_skus_runs_what_waited_for_them_and_nothing_else() {
    let shop = warehouse().await;
    let (url, tenant) = (shop.db.owner_url.as_str(), shop.tenant.id.to_string());
    announce(&shop, "A", &["SKU-0001", "NEW-2", "NEW-1"]).await;
    announce(&shop, "B", &["NEVER", "NEW-1"]).await;
    announce(&shop, "C", &["NEW-2"]).await;
    let waits = "select string_agg(event_id || ' ' || waits_for, ', ' order by event_id) from inbox_exception where resolved_at is null";
    assert_eq!(shop.db.text(waits).await, "A sku:NEW-1, B sku:NEVER, C sku:NEW-2");
    let import = |csv: &str| {
        let file = TempFile::with(csv);
        printed(url, &["admin", "import", "--tenant", &tenant, "skus", file.path()])["exceptions"].clone()
    };
    assert_eq!(import("code,style\nNEW-1,Parka\n"), json!({"retried": 1, "processed": 0}));
    assert_eq!(shop.db.text(waits).await, "A sku:NEW-2, B sku:NEVER, C sku:NEW-2");
    assert_eq!(import("code,style\nNEW-2,Parka\n"), json!({"retried": 2, "processed": 2}));
    assert_eq!(shop.db.text(waits).await, "B sku:NEVER");
    assert_eq!(shop.db.count("inbox_exception where resolved_by = 'admin'").await, 2);
    let positions = "select string_agg(k.code || ' ' || p.on_order, ', ' order by k.code) from sku_position p join sku k on k.id = p.sku_id";
    assert_eq!(shop.db.text(positions).await, "NEW-1 2, NEW-2 4, SKU-0001 2");
    assert_eq!(import("code,style\nNEW-2,Parka\n"), json!({"retried": 0, "processed": 0}));
    shop.db.assert_consistent().await;
}

fn start(url: &str, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(args).env("DATABASE_URL", url).stdout(Stdio::piped()).spawn().unwrap()
}

#[tokio::test]
async fn a_delivery_that_is_under_way_while_its_sku_is_imported_is_not_forgotten() {
    let shop = warehouse().await;
    let (url, tenant) = (shop.db.owner_url.as_str(), shop.tenant.id.to_string());
    // It has looked for the SKU, and its exception is not committed yet.
    let mut under_way = shop.db.app().await;
    let command = r#"{"do":"asn.created","asnId":"A","documentId":"A","closed":false,"lines":[{"lineId":"1","sku":"NEW-1","qty":2}]}"#;
    let delivery =
        format!(r#"{{"provider":"3pl:north","eventId":"A","topic":"asn.created","command":{command}}}"#);
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("begin; select holdfast.receive('{delivery}', '')")))
        .execute(&mut under_way)
        .await
        .unwrap();
    let file = TempFile::with("code,style\nNEW-1,Parka\n");
    let import = start(url, &["admin", "import", "--tenant", &tenant, "skus", file.path()]);
    shop.db.until("exists (select from pg_locks where locktype = 'advisory' and not granted)").await;
    sqlx::raw_sql("commit").execute(&mut under_way).await.unwrap();
    let printed: Value = serde_json::from_slice(&import.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(printed["exceptions"], json!({"retried": 1, "processed": 1}));
    assert_eq!(shop.db.count("inbox_exception where resolved_at is null").await, 0);
}

#[tokio::test]
async fn binding_an_account_runs_what_it_told_before() {
    let shop = Shop::open(Seed::default()).await;
    let (url, tenant) = (shop.db.owner_url.as_str(), shop.tenant.id.to_string());
    let webhook = shopify_webhook::Webhook {
        receiver: Receiver::new(&shop.db.app_config()).unwrap(),
        secrets: "app_secret".into(),
        sealer: sealer(KEYS),
    };
    let domain = "birch.myshopify.com";
    let body = json!({"id": 1, "updated_at": "2026-11-30T10:00:00Z", "line_items": [
        {"id": 11, "variant_id": 1, "sku": "SKU-0001", "quantity": 2, "current_quantity": 2}]})
    .to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(b"app_secret").unwrap();
    mac.update(body.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let event = Event::post("/webhooks/shopify")
        .header("X-Shopify-Shop-Domain", domain)
        .header("X-Shopify-Webhook-Id", "1")
        .header("X-Shopify-Topic", "orders/create")
        .header("X-Shopify-Hmac-Sha256", &signature)
        .body(body.as_bytes());
    assert_eq!(Reply::from(shopify_webhook::handle(&webhook, event.request()).await).status, 200);
    assert_eq!(shop.db.count("inbox_exception where tenant_id is null and waits_for = 'account'").await, 1);
    let made = printed(url, &["admin", "shop", "create", "--tenant", &tenant, "--domain", domain]);
    assert_eq!(made["exceptions"], json!({"retried": 1, "processed": 1}));
    assert_eq!(shop.db.text("select allocated::text from sku_position").await, "2");
    assert_eq!(
        shop.db.count("inbox_exception where tenant_id is not null and resolved_at is not null").await,
        1
    );
}
