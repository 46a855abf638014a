//! The commands as an operator runs them: the built program, against a database for each test.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::process::{Command, Output};

use serde_json::Value;
use sha2::{Digest, Sha256};
use testing::{TempFile, TestDb};

fn xtask(db: &TestDb, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(args).env("DATABASE_URL", &db.owner_url).output().unwrap()
}

/// Runs a command that must succeed and reads the JSON objects that it prints, one per line.
fn printed(db: &TestDb, args: &[&str]) -> Vec<Value> {
    let output = xtask(db, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn scenario(db: &TestDb, args: &[&str]) -> Value {
    let env = TempFile::with(&format!(
        "DATABASE_URL={}\nJWT_SECRET=of a stack that runs, 32 bytes or more\nJWT_ISSUER=i\nJWT_AUDIENCE=a\n\
         JWT_TENANT_CLAIM=org\nJWT_SCOPE_CLAIM=scp\nPARTNER_URL=http://127.0.0.1:9\n\
         SECRETS_KEYS={}\n",
        db.owner_url,
        testing::SECRETS_KEYS
    ));
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("scenario")
        .args(args)
        .env("HOLDFAST_DEV_ENV", env.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(object: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_scenario_has_the_promised_members_and_what_they_name_is_there() {
    let db = TestDb::create().await;
    let args = ["--skus", "3", "--on-hand", "7", "--orders", "4", "--order-qty", "2", "--invoices", "5"];
    let s = scenario(&db, &[&args[..], &["--credit-limit-minor", "90000"]].concat());
    assert_eq!(
        names(&s),
        [
            "customerId",
            "destinationId",
            "destinationSecret",
            "invoices",
            "orders",
            "shopDomain",
            "skus",
            "tenantId",
            "threeplAccount",
            "threeplSecret",
            "users"
        ]
    );
    assert_eq!(names(&s["users"][0]), ["displayName", "id", "token"]);
    assert_eq!(names(&s["skus"][0]), ["code", "id"]);
    assert_eq!(s["orders"][0]["version"], 1);
    assert_eq!(
        (&s["invoices"][0]["totalMinor"], &s["invoices"][0]["currency"]),
        (&5000.into(), &"USD".into())
    );
    let len = |name: &str| s[name].as_array().unwrap().len();
    assert_eq!((len("users"), len("skus"), len("orders"), len("invoices")), (2, 3, 4, 5));

    let counts: String = db
        .scalar(
            "select concat_ws(' ',
               (select count(*) from sku_position where on_hand = 7),
               (select count(*) from order_line l join wholesale_order o on o.id = l.order_id
                where o.status = 'open' and l.qty = 2 and l.unit_price_minor = 1000),
               (select count(*) from invoice where status = 'awaiting_payment' and order_id is null),
               (select credit_limit_minor from customer), (select count(*) from outbox))",
        )
        .await;
    assert_eq!(counts, "3 12 5 90000 0");
    let sealed: bool = db
        .scalar("select bool_and(secret like 'sealed:test:%') from (
            select secret from destination_secret union all select secret from threepl_account union all select token from threepl_inventory) s")
        .await;
    assert!(sealed, "secrets are sealed with the stack's key");
    db.assert_consistent().await;
}

#[tokio::test]
async fn a_bare_scenario_is_two_orders_over_the_last_six() {
    let db = TestDb::create().await;
    let s = scenario(&db, &[]);
    let found: String = db
        .scalar(
            "select concat_ws(' ', (select sum(on_hand) from sku_position), (select count(*) from order_line),
               (select sum(qty) from order_line), (select count(*) from invoice),
               (select count(*) from customer where credit_limit_minor is null))",
        )
        .await;
    assert_eq!(found, "6 2 12 0 1");

    let mut validation = jsonwebtoken::Validation::default();
    validation.set_audience(&["a"]);
    validation.set_issuer(&["i"]);
    let key = jsonwebtoken::DecodingKey::from_secret(b"of a stack that runs, 32 bytes or more").unwrap();
    let token = jsonwebtoken::decode::<Value>(text(&s["users"][0]["token"]), &key, &validation).unwrap();
    assert_eq!((&token.claims["sub"], &token.claims["org"]), (&s["users"][0]["id"], &s["tenantId"]));
    assert_eq!(token.claims["scp"], "orders:write orders:read credit:write outbox:admin events:read");
    assert!(standardwebhooks::Webhook::new(text(&s["destinationSecret"])).is_ok());
}

#[tokio::test]
async fn an_api_key_is_shown_once_and_only_its_hash_is_kept() {
    let db = TestDb::create().await;
    let tenant = printed(&db, &["admin", "tenant", "create", "--name", "Alder"])[0]["id"].clone();
    let user = &printed(
        &db,
        &[
            "admin",
            "user",
            "create",
            "--tenant",
            text(&tenant),
            "--name",
            "EDI",
            "--email",
            "edi@alder.example",
        ],
    )[0];
    let issue =
        ["admin", "api-key", "issue", "--tenant", text(&tenant), "--user", text(&user["id"]), "--scopes"];
    let issued =
        &printed(&db, &[&issue[..], &["orders:read,orders:write", "--expires-days", "7"]].concat())[0];
    let key = text(&issued["key"]);
    assert!(key.starts_with("hf_") && key.len() == 3 + 64, "{key}");

    let stored: String = db.scalar("select encode(key_hash, 'hex') from api_key").await;
    assert_eq!(stored, hex::encode(Sha256::digest(key.as_bytes())));
    let listed = &printed(&db, &["admin", "api-key", "list"])[0];
    assert!(listed.get("key").is_none() && listed["revokedAt"].is_null());
    assert_eq!(listed["scopes"], serde_json::json!(["orders:read", "orders:write"]));

    printed(&db, &["admin", "api-key", "revoke", "--id", text(&issued["id"])]);
    assert!(printed(&db, &["admin", "api-key", "list"])[0]["revokedAt"].is_string());
    assert!(
        !xtask(&db, &[&issue[..], &["orders:all"]].concat()).status.success(),
        "a scope that does not exist"
    );
}

#[tokio::test]
async fn a_csv_import_can_be_repeated_and_counts_stock_once() {
    let db = TestDb::create().await;
    let tenant = printed(&db, &["admin", "tenant", "create", "--name", "Alder"])[0]["id"].clone();
    let import = |what: &str, csv: &str| {
        let file = TempFile::with(csv);
        xtask(&db, &["admin", "import", "--tenant", text(&tenant), what, file.path()])
    };
    let added = |what: &str, csv: &str| {
        let output = import(what, csv);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        (printed["added"].as_u64().unwrap(), printed["thereAlready"].as_u64().unwrap())
    };
    let styles = "name,currency,wholesaleMinor,msrpMinor\n\"Jacket, Harbor\",USD,8900,19800\n";
    let skus = "code,style\nHJ-S,\"Jacket, Harbor\"\nHJ-M,\"Jacket, Harbor\"\n";
    let stock = "code,onHand\nHJ-S,6\nHJ-M,0\n";
    assert_eq!(added("styles", styles), (1, 0));
    assert_eq!(added("skus", skus), (2, 0));
    assert_eq!(added("customers", "name,currency,creditLimitMinor\nNorth,USD,\nSouth,USD,5000\n"), (2, 0));
    assert_eq!(added("stock", stock), (1, 1));
    assert_eq!(
        (added("styles", styles), added("skus", skus), added("stock", stock)),
        ((0, 1), (0, 2), (0, 2))
    );

    let style = "name,currency,wholesaleMinor,msrpMinor\nParka";
    let customer = "name,currency,creditLimitMinor\nWest";
    for (what, csv, problem) in [
        ("stock", "code,onHand\nHJ-M,3\nHJ-X,1\n", "line 3: there is no SKU \"HJ-X\""),
        ("stock", "code,onHand\nHJ-M,3\nHJ-M,3\n", "line 3: SKU \"HJ-M\" is on an earlier line"),
        ("stock", "code,onHand\nHJ-M,-3\n", "line 2: -3 on hand"),
        ("stock", "code,onHand\nHJ-M,many\n", "line 2"),
        (
            "styles",
            &format!("{style},usd,1,2\n"),
            "error: line 2: a currency is three capital letters, like USD\n",
        ),
        ("styles", &format!("{style},USD,-1,2\n"), "line 2: a price is an integer from 0"),
        ("customers", &format!("{customer},USD,-1\n"), "line 2: a credit limit is 0 or more"),
    ] {
        let refused = import(what, csv);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(problem), "{said}");
    }
    let nowhere = ["--tenant", "00000000-0000-0000-0000-000000000000"];
    let refused = xtask(
        &db,
        &[&["admin", "user", "create", "--name", "Ana", "--email", "a@b.example"], &nowhere[..]].concat(),
    );
    assert_eq!(String::from_utf8_lossy(&refused.stderr), "error: there is no tenant with this id\n");
    let state: String = db
        .scalar(
            "select concat_ws(' ', (select sum(on_hand) from sku_position),
               (select string_agg(event_type || ' ' || sequence, ',') from outbox))",
        )
        .await;
    assert_eq!(state, "6 sku.ats_changed 1");
    db.assert_consistent().await;
}

#[tokio::test]
async fn migrating_again_and_side_by_side_keeps_what_is_there() {
    let mut dbs = Vec::new();
    for _ in 0..6 {
        dbs.push(TestDb::create().await);
    }
    scenario(&dbs[0], &[]);
    let migrating: Vec<_> = dbs
        .iter()
        // Each database twice at the same time. The roles are shared, so all of them conflict with each other.
        .flat_map(|db| [db, db])
        .map(|db| {
            Command::new(env!("CARGO_BIN_EXE_xtask"))
                .arg("migrate")
                .env("DATABASE_URL", &db.owner_url)
                .env_remove("HOLDFAST_APP_PASSWORD")
                .env_remove("HOLDFAST_WORKER_PASSWORD")
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in migrating {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(dbs[0].scalar::<i64>("select count(*) from wholesale_order").await, 2);
    dbs[0].assert_consistent().await;
}
