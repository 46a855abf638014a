//! Who may read what, and what others are answered.

use std::time::{Duration, Instant};

use crate::reader::Reader;
use shared::idempotency::endpoint::Endpoint;
use shared::runtime::config::DatabaseConfig;
use testing::{Event, Reply, Seed, Tenant, TestDb, auth_config, issue_api_key, token};
use uuid::Uuid;

/// Every read of a tenant's data.
async fn addresses(db: &TestDb, tenant: &Tenant) -> Vec<String> {
    let invoice = Uuid::new_v4();
    db.execute(format!(
        "insert into invoice (tenant_id, id, customer_id, total_minor, currency)
         values ('{}', '{invoice}', '{}', 5000, 'USD')",
        tenant.id, tenant.customer
    ))
    .await;
    let style: Uuid = sqlx::query_scalar("select id from style where tenant_id = $1")
        .bind(tenant.id)
        .fetch_one(&mut db.owner().await)
        .await
        .unwrap();
    vec![
        format!("/orders/{}", tenant.orders[0]),
        format!("/skus/{}", tenant.skus[0]),
        format!("/styles/{style}"),
        format!("/invoices/{invoice}"),
    ]
}

const LISTS: [&str; 3] = ["/orders", "/skus", "/customers"];

#[tokio::test]
async fn without_a_credential_of_a_known_user_everything_is_401() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let ghost = Reader::with(&db, token(tenant.id, Uuid::new_v4(), "orders:read"));
    let mut paths = addresses(&db, &tenant).await;
    paths.extend(LISTS.map(String::from));
    // Other mistakes come second.
    paths.extend(
        ["/orders/nonsense", "/skus/nonsense", "/orders?limit=0", "/orders?after=x"].map(String::from),
    );
    for path in &paths {
        for reply in [ghost.send(Event::get(path)).await, ghost.get(path).await] {
            assert_eq!((reply.status, reply.error().as_deref()), (401, Some("unauthenticated")), "{path}");
            assert_eq!(reply.header("www-authenticate"), Some(r#"Bearer realm="holdfast""#));
        }
    }
}

#[tokio::test]
async fn reading_needs_the_scope_for_it() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let writer = Reader::with(&db, token(tenant.id, tenant.users[0], "orders:write outbox:admin"));
    let partner = issue_api_key(&db, tenant.id, tenant.users[0], &["orders:read"]).await;
    let partner = Reader::with(&db, partner);
    let mut paths = addresses(&db, &tenant).await;
    paths.extend(LISTS.map(String::from));
    for path in &paths {
        let refused = writer.get(path).await;
        assert_eq!((refused.status, refused.error().as_deref()), (403, Some("forbidden")), "{path}");
        assert_eq!(partner.get(path).await.status, 200, "{path}");
    }
    for path in ["/orders/nonsense", "/invoices/nonsense", "/skus?limit=0"] {
        assert_eq!(writer.get(path).await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn another_tenants_things_do_not_exist() {
    let db = TestDb::create().await;
    let mine = db.seed(Seed { orders: 1, ..Seed::default() }).await;
    let theirs = db.seed(Seed { orders: 1, ..Seed::default() }).await;
    let (me, them) = (Reader::of(&db, &mine), Reader::of(&db, &theirs));
    let unknown = Uuid::new_v4();
    for path in addresses(&db, &theirs).await {
        assert_eq!(them.get(&path).await.status, 200, "{path}");
        let (kind, _) = path.rsplit_once('/').unwrap();
        let refused = me.get(&path).await;
        let code = if kind == "/orders" { "order_not_found" } else { "not_found" };
        assert_eq!((refused.status, refused.error().as_deref()), (404, Some(code)), "{path}");
        for id in [unknown.to_string(), "nonsense".into(), String::new(), format!("{{{unknown}}}")] {
            let missing = me.get(&format!("{kind}/{id}")).await;
            assert_eq!((missing.status, &missing.body), (404, &refused.body), "{kind}/{id}");
        }
    }
    for (list, id) in
        [("/orders", theirs.orders[0]), ("/skus", theirs.skus[0]), ("/customers", theirs.customer)]
    {
        let (ids, _) = me.page(list).await;
        assert_eq!(ids.len(), 1, "{list} holds mine");
        assert_ne!(ids[0], id.to_string());
        let reply = me.get(&format!("{list}?after={id}")).await;
        assert_eq!((reply.status, reply.error().as_deref()), (400, Some("invalid_query")), "{list}");
    }
    assert_eq!(me.page(&format!("/orders?customerId={}", theirs.customer)).await, (vec![], None));
}

#[tokio::test]
async fn ids_are_taken_in_either_case() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let reader = Reader::of(&db, &tenant);
    let order = tenant.orders[0].to_string();
    assert_eq!(reader.get(&format!("/orders/{}", order.to_uppercase())).await.json()["id"], order);
    assert_eq!(
        reader
            .page(&format!("/orders?customerId={}", tenant.customer.to_string().to_uppercase()))
            .await
            .0
            .len(),
        2
    );
}

#[tokio::test]
async fn what_is_no_read_is_refused() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let reader = Reader::of(&db, &tenant);
    for path in ["/", "/order", "/orders/1/lines", "/styles", "/customers/x/y", "/health/x"] {
        let reply = reader.get(path).await;
        assert_eq!((reply.status, reply.error().as_deref()), (404, Some("not_found")), "{path}");
    }
    for (method, path) in
        [("HEAD", "/orders"), ("POST", "/skus"), ("DELETE", "/health"), ("OPTIONS", "/customers")]
    {
        let reply = reader.send(Event::new(method, path).bearer(&tenant.token())).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")), "{method} {path}");
    }
    let large = Event::get("/orders").bearer(&tenant.token()).body(&vec![b'x'; 1024 * 1024 + 1]);
    let reply = reader.send(large).await;
    assert_eq!((reply.status, reply.error().as_deref()), (413, Some("body_too_large")));
}

#[tokio::test]
async fn a_validator_never_turns_an_answer_into_304() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let reader = Reader::of(&db, &tenant);
    let event = Event::get(&format!("/orders/{}", tenant.orders[0])).bearer(&tenant.token());
    let reply = reader.send(event.header("if-none-match", "\"1\"")).await;
    assert_eq!((reply.status, reply.header("etag")), (200, Some("\"1\"")));
}

#[tokio::test]
async fn behind_a_stage_the_addresses_are_the_same() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let reader = Reader::of(&db, &tenant);
    let event = Event::get("/orders?limit=1").bearer(&tenant.token()).stage("prod");
    assert_eq!(reader.send(event).await.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn health_needs_no_token() {
    let db = TestDb::create().await;
    let endpoint = db.endpoint();
    let reply = Reply::from(query::handle(&endpoint, Event::get("/health").request()).await);
    assert_eq!((reply.status, reply.body.as_slice()), (200, br#"{"ok":true}"#.as_slice()));
    assert!(reply.header("x-request-id").is_some());
}

/// The answer of a sandbox whose database is at this address.
async fn without_database(url: String) {
    let endpoint = Endpoint::new(&auth_config(), &DatabaseConfig::direct(url)).unwrap();
    let bearer = token(Uuid::new_v4(), Uuid::new_v4(), "orders:read");
    for event in [Event::get("/health"), Event::get("/orders").bearer(&bearer)] {
        let started = Instant::now();
        let reply = Reply::from(query::handle(&endpoint, event.request()).await);
        assert!(started.elapsed() < Duration::from_secs(7), "took {:?}", started.elapsed());
        assert_eq!((reply.status, reply.error().as_deref()), (503, Some("unavailable")));
        assert!(reply.header("retry-after").unwrap().parse::<u32>().unwrap() > 0);
    }
}

#[tokio::test]
async fn a_database_that_is_down_is_503_in_time() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    without_database(format!("postgres://holdfast_app@127.0.0.1:{port}/holdfast")).await;
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_503_in_time() {
    // Accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    without_database(format!("postgres://holdfast_app@127.0.0.1:{port}/holdfast")).await;
}
