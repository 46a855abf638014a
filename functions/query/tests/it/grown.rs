//! What lists cost, and how they end, when there is much: bounds on blocks, with the statistics of an empty table; pages that end by
//! bytes; one snapshot.

use serde_json::{Value, json};
use testing::{Seed, Tenant, TestDb, blocks};

use crate::reader::Reader;

const SEARCHED: [&str; 3] = ["wholesale_order", "customer", "customer_word"];
const ORDERS: i64 = 30_000;

/// Grows a tenant to [`ORDERS`] orders of 1,000 customers, of which five are cancelled.
async fn grow(db: &TestDb, tenant: &Tenant) {
    let (id, ann) = (tenant.id, tenant.users[0]);
    db.execute(format!(
        "insert into customer (tenant_id, id, name, currency)
         select '{id}', ('33333333-3333-4333-8333-' || lpad(n::text, 12, '0'))::uuid, 'House h' || n || ' of Linen', 'USD'
         from generate_series(1, 1000) n;
         insert into wholesale_order (tenant_id, number, customer_id, status, currency, customer_po, created_by, updated_by, created_at)
         select '{id}', n::text, ('33333333-3333-4333-8333-' || lpad((1 + n % 1000)::text, 12, '0'))::uuid,
           case when n % 6000 = 7 then 'cancelled' else 'shipped' end, 'USD', 'PO-' || md5(n::text), '{ann}', '{ann}',
           '2026-01-01'::timestamptz + n * interval '1 s'
         from generate_series(1, {ORDERS}) n"
    ))
    .await;
}

fn list(tenant: &Tenant, filters: &Value) -> String {
    let mut read =
        json!({"tenantId": tenant.id, "userId": tenant.users[0], "list": "wholesale_order", "limit": 50});
    read.as_object_mut().unwrap().extend(filters.as_object().unwrap().clone());
    format!("select * from holdfast.list('{read}')")
}

#[tokio::test]
async fn what_is_looked_for_among_many_orders_is_found_by_an_index() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 0, ..Seed::default() }).await;
    db.keep_statistics(&SEARCHED).await;
    grow(&db, &tenant).await;
    let reader = Reader::of(&db, &tenant);
    let customer = "33333333-3333-4333-8333-000000000007";
    let mut app = db.app().await;
    // A walk along all orders meets more than 1,500 blocks, and as many again for each customer's. An item takes about ten.
    for (query, filters, found, at_most) in [
        ("q=12345", json!({"q": "12345"}), 1, 150),
        ("q=PO-cc1a", json!({"q": "PO-cc1a"}), 1, 150),
        ("q=nothing", json!({"q": "nothing"}), 0, 100),
        ("q=house+h77+of", json!({"q": "house h77 of"}), 30, 600),
        ("q=h77+of", json!({"q": "h77 of"}), 30, 600),
        ("status=cancelled", json!({"status": "cancelled"}), 5, 150),
        ("status=cancelled&q=1", json!({"status": "cancelled", "q": "1"}), 2, 1200),
        // A look at each of a thousand customers of that name, however many orders they have: three blocks each.
        ("status=cancelled&q=house", json!({"status": "cancelled", "q": "house"}), 5, 4000),
        (&format!("customerId={customer}"), json!({"customerId": customer}), 30, 600),
        (
            &format!("customerId={customer}&status=open"),
            json!({"customerId": customer, "status": "open"}),
            0,
            100,
        ),
        (&format!("customerId={customer}&q=house"), json!({"customerId": customer, "q": "house"}), 30, 600),
    ] {
        let (ids, _) = reader.page(&format!("/orders?{query}")).await;
        assert_eq!(ids.len(), found, "{query}");
        let met = blocks(&mut app, &list(&tenant, &filters)).await;
        assert!(met <= at_most, "{query}: {met} blocks");
    }
}

/// Of a table that was small when it was analyzed, not empty, the planner believes that an index with the rows in the order wanted meets the
/// few that fit at once.
#[tokio::test]
async fn an_index_that_has_the_order_only_is_not_walked_where_the_statistics_are_of_few_orders() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 500, ..Seed::default() }).await;
    db.keep_statistics(&SEARCHED).await;
    grow(&db, &tenant).await;
    let mut app = db.app().await;
    let customer = "33333333-3333-4333-8333-000000000007";
    for (filters, at_most) in [
        (json!({"q": "1"}), 3000),
        (json!({"q": "2"}), 3000),
        (json!({"q": "h77 of"}), 500),
        (json!({"status": "cancelled"}), 150),
        (json!({"customerId": customer}), 600),
        (json!({"customerId": customer, "status": "cancelled"}), 100),
    ] {
        let met = blocks(&mut app, &list(&tenant, &filters)).await;
        assert!(met <= at_most, "{filters}: {met} blocks");
    }
}

#[tokio::test]
async fn what_fits_very_many_orders_is_still_shown_newest_first() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 0, ..Seed::default() }).await;
    db.keep_statistics(&SEARCHED).await;
    grow(&db, &tenant).await;
    let reader = Reader::of(&db, &tenant);
    let numbers = async |query: &str| -> (Vec<i64>, Option<String>) {
        let page = reader.get(&format!("/orders?{query}")).await.json();
        let items = page["items"].as_array().unwrap().iter();
        let numbers = items.map(|item| item["number"].as_str().unwrap().parse().unwrap()).collect();
        (numbers, page["next"].as_str().map(str::to_owned))
    };
    // 11,111 numbers begin with 1, the newest of them far from the newest order; all POs begin with po-; all customers with house.
    for (query, newest) in [("q=1", 19_999), ("q=13", 13_999), ("q=po-", ORDERS), ("q=House", ORDERS)] {
        let (page, next) = numbers(&format!("{query}&limit=20")).await;
        assert_eq!(page, (0..20).map(|n| newest - n).collect::<Vec<_>>(), "{query}");
        let (page, _) = numbers(&format!("{query}&limit=20&after={}", next.unwrap())).await;
        assert_eq!(page, (20..40).map(|n| newest - n).collect::<Vec<_>>(), "{query}");
    }
}

#[tokio::test]
async fn a_search_that_must_give_up_its_walk_goes_on_behind_it() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 0, ..Seed::default() }).await;
    grow(&db, &tenant).await;
    // 5,000 orders that fit, all older than the 25,000 that do not: more than are sorted, farther than is walked.
    db.execute(format!(
        "update wholesale_order set customer_po = 'Drop ' || number where number::int <= {ORDERS} - 25000"
    ))
    .await;
    let reader = Reader::of(&db, &tenant);
    let (mut path, mut seen, mut pages) = ("/orders?q=drop&limit=200".to_owned(), Vec::new(), 0);
    loop {
        let (ids, next) = reader.page(&path).await;
        seen.extend(ids);
        pages += 1;
        let Some(next) = next else { break };
        assert!(pages <= 40, "5,000 orders in pages of 200");
        path = format!("/orders?q=drop&limit=200&after={next}");
    }
    let expected: Vec<String> =
        sqlx::query_scalar("select id::text from wholesale_order where customer_po like 'Drop%' order by created_at desc, id desc")
            .fetch_all(&mut db.owner().await)
            .await
            .unwrap();
    assert_eq!(seen, expected, "each once, newest first");
}

#[tokio::test]
async fn a_page_of_large_orders_ends_before_four_megabytes_and_next_goes_on() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 500, orders: 60, ..Seed::default() }).await;
    let reader = Reader::of(&db, &tenant);
    let (mut path, mut seen, mut sizes) = ("/orders?limit=200".to_owned(), Vec::new(), Vec::new());
    loop {
        let reply = reader.get(&path).await;
        assert_eq!(reply.status, 200);
        sizes.push(reply.body.len());
        let (ids, next) = reader.page(&path).await;
        seen.extend(ids);
        let Some(next) = next else { break };
        path = format!("/orders?limit=200&after={next}");
    }
    let expected: Vec<String> =
        sqlx::query_scalar("select id::text from wholesale_order order by created_at desc, id desc")
            .fetch_all(&mut db.owner().await)
            .await
            .unwrap();
    assert_eq!(seen, expected);
    assert!(sizes.len() > 1 && sizes.iter().all(|size| *size < 4_000_000), "{sizes:?}");
    assert!(sizes[0] > 3_500_000, "a page is filled: {sizes:?}");
    let (ids, next) = reader.page("/orders?limit=200&lines=false").await;
    assert_eq!((ids, next), (expected, None), "without lines they fit");
    let mut whole = reader.get("/orders?limit=1").await.json()["items"][0].clone();
    assert!(whole.as_object_mut().unwrap().remove("lines").is_some());
    assert_eq!(reader.get("/orders?limit=1&lines=false").await.json()["items"][0], whole);
    assert!(reader.get("/orders?limit=1&lines=true").await.json()["items"][0]["lines"].is_array());
}

#[tokio::test]
async fn a_page_shows_one_moment() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 40, ..Seed::default() }).await;
    let reader = Reader::of(&db, &tenant);
    // All orders turn at once, again and again: a page that shows both states has read two moments.
    let mut owner = db.owner().await;
    let turning = async {
        for n in 0..300 {
            let status = if n % 2 == 0 { "cancelled" } else { "open" };
            sqlx::query("update wholesale_order set status = $1, customer_po = 'turned'")
                .bind(status)
                .execute(&mut owner)
                .await
                .unwrap();
        }
    };
    let reading = async {
        for _ in 0..100 {
            for query in ["status=open", "status=cancelled", "q=turned"] {
                let page = reader.get(&format!("/orders?limit=200&{query}")).await.json();
                let items = page["items"].as_array().unwrap();
                let statuses: std::collections::HashSet<_> =
                    items.iter().map(|item| item["status"].as_str().unwrap()).collect();
                let wanted = query.strip_prefix("status=");
                assert!(
                    statuses.len() <= 1
                        && statuses.iter().all(|status| wanted.is_none_or(|wanted| wanted == *status)),
                    "{query}: {statuses:?}"
                );
                assert!([0, 40].contains(&items.len()), "{query}: {}", items.len());
            }
        }
    };
    tokio::join!(turning, reading);
    let volatile: i64 = db
        .scalar(
            "select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                 where n.nspname = 'holdfast' and p.proname like 'page\\_of\\_%'
                   and p.provolatile <> 's' and p.proname <> 'page_of_inbox_exception'",
        )
        .await;
    assert_eq!(volatile, 0, "a page that is read by several statements, each with a snapshot of its own");
}
