//! Lists: pages, search, filters and their parameters.

use std::collections::HashSet;

use crate::reader::Reader;
use testing::{Seed, Tenant, TestDb};
use uuid::Uuid;

/// Creates `count` orders of the tenant's customer, some of them at the same instant; returns the ids, newest first.
async fn orders(db: &TestDb, tenant: &Tenant, count: usize) -> Vec<String> {
    db.execute(format!(
        "insert into wholesale_order (tenant_id, number, customer_id, currency, created_by, updated_by, created_at)
         select '{id}', 'N-' || n, '{customer}', 'USD', '{ann}', '{ann}', '2026-01-01T00:00:00Z'::timestamptz + n / 7 * interval '1 s'
         from generate_series(1, {count}) n",
        id = tenant.id,
        customer = tenant.customer,
        ann = tenant.users[0]
    ))
    .await;
    sqlx::query_scalar(
        "select id::text from wholesale_order where tenant_id = $1 order by created_at desc, id desc",
    )
    .bind(tenant.id)
    .fetch_all(&mut db.owner().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn paging_meets_every_order_once_while_new_ones_arrive() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 0, ..Seed::default() }).await;
    let reader = Reader::of(&db, &tenant);
    let expected = orders(&db, &tenant, 120).await;
    let (mut seen, mut path, mut pages) = (Vec::new(), "/orders?limit=17".to_owned(), 0);
    loop {
        let (ids, next) = reader.page(&path).await;
        seen.extend(ids);
        pages += 1;
        assert!(pages <= 8, "120 orders in pages of 17");
        let Some(next) = next else { break };
        assert_eq!(seen.last(), Some(&next), "next is the last item of the page");
        path = format!("/orders?limit=17&after={next}");
        db.execute(format!(
            "insert into wholesale_order (tenant_id, number, customer_id, currency, created_by, updated_by)
             select '{}', 'LATE-{pages}', '{}', 'USD', '{ann}', '{ann}'",
            tenant.id,
            tenant.customer,
            ann = tenant.users[0]
        ))
        .await;
    }
    assert_eq!(seen, expected, "newest first, without gap or repeat");
    assert_eq!(reader.page("/orders").await.0.len(), 50, "fifty unless asked otherwise");
    assert_eq!(
        reader.page("/orders?limit=200").await,
        (
            sqlx::query_scalar("select id::text from wholesale_order order by created_at desc, id desc")
                .fetch_all(&mut db.owner().await)
                .await
                .unwrap(),
            None
        )
    );
}

#[tokio::test]
async fn the_last_page_has_no_next_even_when_it_is_full() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 0, ..Seed::default() }).await;
    let reader = Reader::of(&db, &tenant);
    assert_eq!(reader.get("/orders").await.body, br#"{"items":[],"next":null}"#);
    let ids = orders(&db, &tenant, 4).await;
    assert_eq!(reader.page("/orders?limit=2").await, (ids[..2].to_vec(), Some(ids[1].clone())));
    assert_eq!(reader.page(&format!("/orders?limit=2&after={}", ids[1])).await, (ids[2..].to_vec(), None));
    assert_eq!(reader.page(&format!("/orders?after={}", ids[3])).await, (vec![], None));
}

#[tokio::test]
async fn skus_go_by_code_and_customers_by_name() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 5, ..Seed::default() }).await;
    let reader = Reader::of(&db, &tenant);
    let names =
        ["Boutique", "Atelier", "Zoe", "Boutique"].map(|name| format!("('{}', '{name}', 'USD')", tenant.id));
    db.execute(format!("insert into customer (tenant_id, name, currency) values {}", names.join(","))).await;
    for (list, sql) in [
        ("/skus", "select id::text from sku order by code"),
        ("/customers", "select id::text from customer order by name, id"),
    ] {
        let expected: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut db.owner().await).await.unwrap();
        assert_eq!(expected.len(), 5);
        let (mut seen, mut after) = (Vec::new(), String::new());
        for _ in 0..5 {
            let (ids, next) = reader.page(&format!("{list}?limit=1{after}")).await;
            seen.extend(ids);
            after = next.map(|next| format!("&after={next}")).unwrap_or_default();
        }
        assert_eq!((seen, after), (expected, String::new()), "{list}");
    }
    assert_eq!(reader.page("/skus?q=sku-0004").await.0, [tenant.skus[3].to_string()]);
    assert_eq!(reader.page("/customers?q=TIQUE").await.0.len(), 3);
}

#[tokio::test]
async fn search_finds_the_beginning_of_number_po_and_a_word_of_the_customer_in_any_case() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 3, ..Seed::default() }).await;
    let reader = Reader::of(&db, &tenant);
    let [first, second, third] = [tenant.orders[0], tenant.orders[1], tenant.orders[2]];
    let other = Uuid::new_v4();
    db.execute(format!(
        r"insert into customer (tenant_id, id, name, currency) values ('{id}', '{other}', 'North_Sea & Sons 100%', 'USD');
          update wholesale_order set number = 'HF-77', customer_po = 'Spring' where id = '{first}';
          update wholesale_order set number = 'HF-78', customer_po = 'back\slash' where id = '{second}';
          update wholesale_order set number = 'HF-79', customer_id = '{other}' where id = '{third}'",
        id = tenant.id
    ))
    .await;
    for (q, expected) in [
        ("hf-7", vec![first, second, third]),
        ("hf-78", vec![second]),
        ("f-78", vec![]),
        ("SPRING", vec![first]),
        ("pring", vec![]),
        ("back%5Cs", vec![second]),
        ("boutiq", vec![first, second]),
        ("outiq", vec![]),
        ("north_sea+%26", vec![third]),
        ("Sea+%26+s", vec![third]),
        ("sons", vec![third]),
        ("%26+S", vec![third]),
        ("100%25", vec![third]),
        ("00%25", vec![]),
        ("+sons+", vec![third]),
        ("+", vec![first, second, third]),
        // Wildcards are plain characters.
        ("%25", vec![]),
        ("_", vec![]),
        ("h%25-7", vec![]),
        ("'%20or%20true--", vec![]),
        ("*", vec![]),
        ("", vec![first, second, third]),
    ] {
        let found: HashSet<String> = reader.page(&format!("/orders?q={q}")).await.0.into_iter().collect();
        assert_eq!(found, expected.iter().map(Uuid::to_string).collect(), "{q}");
    }
}

#[tokio::test]
async fn filters_go_together_and_blank_ones_do_not_count() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { orders: 4, ..Seed::default() }).await;
    let reader = Reader::of(&db, &tenant);
    let (other, [open, cancelled, theirs, shipped]) = (
        Uuid::new_v4(),
        [tenant.orders[0], tenant.orders[1], tenant.orders[2], tenant.orders[3]].map(|id| id.to_string()),
    );
    db.execute(format!(
        "insert into customer (tenant_id, id, name, currency) values ('{id}', '{other}', 'Other', 'USD');
         update wholesale_order set status = 'cancelled' where id = '{cancelled}';
         update wholesale_order set status = 'shipped' where id = '{shipped}';
         update wholesale_order set customer_id = '{other}' where id = '{theirs}'",
        id = tenant.id
    ))
    .await;
    let customer = tenant.customer;
    for (query, expected) in [
        ("status=cancelled".to_owned(), vec![&cancelled]),
        ("status=shipped".to_owned(), vec![&shipped]),
        (format!("status=open&customerId={customer}"), vec![&open]),
        (format!("customerId={other}&q=SO"), vec![&theirs]),
        (format!("customerId={other}&status=shipped"), vec![]),
        ("q=&status=&customerId=".to_owned(), vec![&open, &cancelled, &theirs, &shipped]),
    ] {
        let found: HashSet<String> = reader.page(&format!("/orders?{query}")).await.0.into_iter().collect();
        assert_eq!(found, expected.into_iter().cloned().collect(), "{query}");
    }
}

#[tokio::test]
async fn a_bad_parameter_is_named() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let reader = Reader::of(&db, &tenant);
    let long = "x".repeat(201);
    let unknown = Uuid::new_v4();
    for (query, name) in [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=-1", "limit"),
        ("limit=%2B5", "limit"),
        ("limit=5.0", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("limit=5&limit=5", "limit"),
        ("after=", "after"),
        ("after=x", "after"),
        (&format!("after={unknown}"), "after"),
        ("status=Open", "status"),
        ("status=draft", "status"),
        ("status=open&status=open", "status"),
        ("customerId=x", "customerId"),
        ("q=a%00b", "q"),
        (&format!("q={long}"), "q"),
        ("offset=3", "offset"),
        ("Limit=3", "Limit"),
    ] {
        let reply = reader.get(&format!("/orders?{query}")).await;
        assert_eq!((reply.status, reply.error().as_deref()), (400, Some("invalid_query")), "{query}");
        let errors = reply.json()["errors"].clone();
        assert_eq!(errors.as_array().unwrap().len(), 1, "{query}: {errors}");
        assert_eq!(errors[0]["path"], name, "{query}");
        assert!(!errors[0]["message"].as_str().unwrap().is_empty());
    }
    for list in ["/skus", "/customers"] {
        for query in ["status=open", "limit=0", "after=x", &format!("after={unknown}")] {
            assert_eq!(
                reader.get(&format!("{list}?{query}")).await.error().as_deref(),
                Some("invalid_query"),
                "{list} {query}"
            );
        }
    }
    let all = reader.get("/orders?limit=0&after=x&status=x&customerId=x&y=1").await.json()["errors"].clone();
    assert_eq!(all.as_array().unwrap().len(), 5, "every mistake at once: {all}");
    assert_eq!(reader.get("/orders?limit=200").await.status, 200);
    assert_eq!(reader.get("/orders?limit=1").await.status, 200);
}
