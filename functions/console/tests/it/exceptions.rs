//! Exceptions: found by a filter, retried and dismissed in bounded calls; those of no tenant.

use serde_json::{Value, json};
use testing::{Event, Seed, fresh_key, token};
use uuid::Uuid;

use crate::Desk;

const ACCOUNT: &str = "3pl:north";

/// Keeps an event of a 3PL that announces `qty` of a SKU, received `age` seconds ago.
async fn keep(desk: &Desk, event_id: &str, sku: &str, qty: i64, age: i64) -> Uuid {
    let body =
        json!({"type": "asn.created", "asnId": event_id, "lines": [{"lineId": 1, "sku": sku, "qty": qty}]});
    let (id, tenant) = (Uuid::new_v4(), desk.shop.tenant.id);
    desk.shop
        .db
        .execute(format!(
            "insert into inbox_exception (id, tenant_id, provider, event_id, topic, reason, body, received_at)
             values ('{id}', '{tenant}', '{ACCOUNT}', '{event_id}', 'asn.created', 'no SKU of ours: {sku}', convert_to($body${body}$body$, 'UTF8'),
               now() - make_interval(secs => {age}))"
        ))
        .await;
    id
}

/// The event ids of a list, in its order.
fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["eventId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_exception_is_dismissed_once_with_a_reason() {
    let desk = Desk::open().await;
    let id = keep(&desk, "e1", "NO-SUCH", 1, 0).await;
    let path = format!("/admin/exceptions/{id}/dismiss");
    for wrong in [
        json!({"reason": null}),
        json!({"reason": ""}),
        json!({"reason": "  "}),
        json!({"reason": "x".repeat(2_001)}),
        json!({"reason": 5}),
    ] {
        assert_eq!(desk.post(&path, &wrong).await.error().as_deref(), Some("invalid_body"), "{wrong}");
    }
    let dismissing = desk.posting(&path, &json!({"reason": "a test of theirs"}));
    let reply = desk.send(&dismissing).await;
    let document = reply.json();
    assert_eq!((reply.status, &document["dismissReason"]), (200, &json!("a test of theirs")));
    assert!(document["resolvedAt"].is_string() && document["excerpt"].is_null(), "{document}");
    assert_eq!(document["resolvedBy"], json!(format!("user:{}", desk.shop.tenant.users[0])));
    let again = desk.send(&dismissing).await;
    assert_eq!((again.status, again.json()), (200, document), "the same request is answered the same");
    let other = desk.post(&path, &json!({"reason": "again"})).await;
    assert_eq!((other.status, other.error().as_deref()), (409, Some("exception_resolved")));
    let retried = desk.post(&format!("/admin/exceptions/{id}/retry"), &json!({})).await;
    assert_eq!(retried.error().as_deref(), Some("exception_resolved"));
    let nowhere = format!("/admin/exceptions/{}/dismiss", Uuid::new_v4());
    assert_eq!(desk.post(&nowhere, &json!({"reason": "x"})).await.status, 404);
    let stranger = desk.shop.db.seed(Seed::default()).await;
    let event = Event::post(&path).bearer(&stranger.token()).key(&fresh_key()).json(&json!({"reason": "x"}));
    assert_eq!(desk.send(&event).await.status, 404, "another tenant's does not exist");
}

#[tokio::test]
async fn an_exception_that_is_dismissed_without_a_reason_is_told_apart_from_one_that_was_processed() {
    let desk = Desk::open().await;
    let id = keep(&desk, "e1", "NO-SUCH", 1, 0).await;
    let reply = desk.post(&format!("/admin/exceptions/{id}/dismiss"), &json!({})).await;
    assert_eq!((reply.status, &reply.json()["dismissReason"]), (200, &json!("no reason was given")));
    keep(&desk, "e2", "NO-SUCH", 1, 0).await;
    let reply = desk.post("/admin/exceptions/dismiss", &json!({})).await;
    assert_eq!((reply.status, reply.json()), (200, json!({"dismissed": 1, "next": null})));
    assert_eq!(desk.shop.db.count("inbox_exception where dismiss_reason = 'no reason was given'").await, 2);
}

#[tokio::test]
async fn lists_and_bulk_changes_have_the_same_filter() {
    let desk = Desk::open().await;
    for (n, provider) in
        ["shopify:a.myshopify.com", "shopify:b.myshopify.com", "3pl:north", "stripe"].iter().enumerate()
    {
        let id = keep(&desk, &format!("e{n}"), "NO-SUCH", 1, i64::try_from(n).unwrap() * 3_600).await;
        let sql = format!(
            "update inbox_exception set provider = '{provider}', topic = 't{}' where id = '{id}'",
            n % 2
        );
        desk.shop.db.execute(sql).await;
    }
    for (query, found) in [
        ("", &["e0", "e1", "e2", "e3"][..]),
        ("?provider=shopify", &["e0", "e1"]),
        ("?provider=shopify:b.myshopify.com", &["e1"]),
        ("?provider=shop", &[]),
        ("?topic=t1&state=open", &["e1", "e3"]),
        ("?state=resolved", &[]),
    ] {
        assert_eq!(ids(&desk.read(&format!("/admin/exceptions{query}")).await), found, "{query}");
    }
    let at = desk.shop.db.text("select to_char((now() - interval '90 min') at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
    )
    .await;
    assert_eq!(ids(&desk.read(&format!("/admin/exceptions?from={at}")).await), ["e0", "e1"]);
    assert_eq!(ids(&desk.read(&format!("/admin/exceptions?to={at}")).await), ["e2", "e3"]);
    for wrong in ["?provider=%00", "?from=yesterday", "?tenant=mine", "?waitsFor=x"] {
        let reply = desk.get(&format!("/admin/exceptions{wrong}")).await;
        assert_eq!(reply.error().as_deref(), Some("invalid_query"), "{wrong}");
    }
    for (path, wrong) in [
        ("retry", json!({"state": "resolved"})),
        ("retry", json!({"provider": 5})),
        ("retry", json!({"after": "x"})),
        ("retry", json!({"reason": "x"})),
        ("dismiss", json!({"reason": ""})),
        ("dismiss", json!({"reason": "x", "to": "x"})),
    ] {
        let reply = desk.post(&format!("/admin/exceptions/{path}"), &wrong).await;
        assert_eq!(reply.error().as_deref(), Some("invalid_body"), "{path} {wrong}");
    }
    let dismissed = desk
        .post(
            "/admin/exceptions/dismiss",
            &json!({"provider": "shopify", "topic": "t1", "state": "open", "reason": "old"}),
        )
        .await;
    assert_eq!((dismissed.status, dismissed.json()), (200, json!({"dismissed": 1, "next": null})));
    assert_eq!(ids(&desk.read("/admin/exceptions?state=resolved").await), ["e1"]);
    let rest = desk.post("/admin/exceptions/dismiss", &json!({"reason": "old", "from": at})).await;
    assert_eq!(rest.json(), json!({"dismissed": 1, "next": null}));
    assert_eq!(desk.shop.db.count("inbox_exception where resolved_at is null").await, 2);
}

/// Repeats a bulk change until nothing is left; returns the sums of its numbers and the number of calls.
async fn all_of(desk: &Desk, path: &str, body: &Value, number: &str) -> (i64, usize) {
    let (mut sum, mut body) = (0, body.clone());
    for call in 1..200 {
        let reply = desk.post(path, &body).await;
        let answer = reply.json();
        assert_eq!(reply.status, 200, "{answer}");
        sum += answer[number].as_i64().unwrap();
        if answer["next"].is_null() {
            return (sum, call);
        }
        body["after"] = answer["next"].clone();
    }
    panic!("{path} has no end");
}

#[tokio::test]
async fn all_of_a_filter_are_retried_in_bounded_calls_whatever_becomes_of_each() {
    let desk = Desk::open().await;
    for n in 0..50 {
        let sku = if n % 5 == 0 { "NO-SUCH" } else { "SKU-0001" };
        keep(&desk, &format!("e{n}"), sku, 2, n).await;
    }
    // One whose retry the database refuses does not stop the others.
    desk.shop
        .db
        .execute(
            "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
             create trigger refuse before insert on asn for each row when (new.external_id = 'e7') execute function refuse()",
        )
        .await;
    let (retried, calls) = all_of(&desk, "/admin/exceptions/retry", &json!({}), "retried").await;
    assert_eq!(retried, 50);
    assert!(calls >= 3, "{calls} calls");
    assert_eq!(desk.shop.db.count("inbox_exception where resolved_at is null").await, 11);
    assert_eq!(desk.shop.db.count("inbox_exception where attempts <> 2").await, 0);
    assert_eq!(desk.shop.db.text("select on_order::text from sku_position").await, "78");
    // They counted once: another round finds the eleven, and moves nothing.
    assert_eq!(all_of(&desk, "/admin/exceptions/retry", &json!({"provider": "3pl"}), "resolved").await.0, 0);
    desk.shop.db.execute("drop trigger refuse on asn; update sku set code = 'NO-SUCH'").await;
    assert_eq!(all_of(&desk, "/admin/exceptions/retry", &json!({}), "resolved").await.0, 10);
    assert_eq!(desk.shop.db.text("select on_order::text from sku_position").await, "98");
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn dismissals_of_a_filter_end_in_bounded_calls() {
    let desk = Desk::open().await;
    let tenant = desk.shop.tenant.id;
    desk.shop
        .db
        .execute(format!(
            "insert into inbox_exception (tenant_id, provider, event_id, topic, reason, body, received_at)
             select '{tenant}', 'stripe', 'e' || n, 't', 'r', '', now() - make_interval(secs => n % 700)
             from generate_series(1, 2500) n"
        ))
        .await;
    let (dismissed, calls) =
        all_of(&desk, "/admin/exceptions/dismiss", &json!({"reason": "old"}), "dismissed").await;
    assert_eq!((dismissed, calls), (2_500, 3));
    assert_eq!(
        desk.shop
            .db
            .count("inbox_exception where dismiss_reason = 'old' and resolved_by like 'user:%'")
            .await,
        2_500
    );
}

/// Somebody who holds what the second of a batch needs may be waiting for what the first one holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_ends_before_an_exception_that_another_session_holds() {
    let desk = Desk::open().await;
    for (n, id) in ["newest", "held", "oldest"].iter().enumerate() {
        keep(&desk, id, "SKU-0001", 1, i64::try_from(n).unwrap()).await;
    }
    let tenant = desk.shop.tenant.id;
    desk.shop
        .db
        .execute(format!(
            "insert into asn (tenant_id, account_id, external_id) values ('{tenant}', 'north', 'held')"
        ))
        .await;
    let mut holder = desk.shop.db.owner().await;
    sqlx::raw_sql("begin; select from asn for update").execute(&mut holder).await.unwrap();
    let first = desk.post("/admin/exceptions/retry", &json!({})).await.json();
    assert_eq!((&first["retried"], &first["resolved"]), (&json!(1), &json!(1)), "{first}");
    assert!(first["next"].is_string());
    // It comes first now, so it may wait as long as any request does.
    let body = json!({"after": first["next"]});
    let (second, ()) = tokio::join!(desk.post("/admin/exceptions/retry", &body), async {
        desk.shop.db.until("exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())").await;
        sqlx::raw_sql("commit").execute(&mut holder).await.unwrap();
    });
    assert_eq!(second.json(), json!({"retried": 2, "resolved": 2, "next": null}));
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_is_of_no_tenant_is_seen_with_the_platforms_scope_and_no_other() {
    let desk = Desk::open().await;
    keep(&desk, "mine", "NO-SUCH", 1, 0).await;
    desk.shop
        .db
        .execute(
            "insert into inbox_exception (provider, event_id, topic, reason, waits_for, body, received_at)
             select 'shopify:strange.myshopify.com', 'n' || n, 'orders/create', 'no shop of ours has this domain', 'account',
               '{\"id\":1}', now() - make_interval(secs => n) from generate_series(1, 3) n",
        )
        .await;
    let (tenant, user) = (desk.shop.tenant.id, desk.shop.tenant.users[0]);
    let ask = async |scopes: &str, path: &str| {
        desk.send(&Event::get(path).bearer(&token(tenant, user, scopes))).await
    };
    const NOBODYS: &str = "/admin/exceptions?tenant=none";
    let all_but_that = "orders:write orders:read credit:write outbox:admin events:read";
    assert_eq!(ask(all_but_that, NOBODYS).await.error().as_deref(), Some("forbidden"));
    assert_eq!(ask("platform:admin", "/admin/exceptions").await.error().as_deref(), Some("forbidden"));
    let nobody = token(tenant, Uuid::new_v4(), "platform:admin");
    assert_eq!(desk.send(&Event::get(NOBODYS).bearer(&nobody)).await.status, 401);
    let page = ask("platform:admin", NOBODYS).await.json();
    assert_eq!(ids(&page), ["n1", "n2", "n3"]);
    assert_eq!(page["items"][0]["waitsFor"], "account");
    assert_eq!(page["items"][0]["excerpt"], r#"{"id":1}"#);
    let first = ask("platform:admin", &format!("{NOBODYS}&limit=2")).await.json();
    assert_eq!(ids(&first), ["n1", "n2"]);
    let rest =
        ask("platform:admin", &format!("{NOBODYS}&after={}", first["next"].as_str().unwrap())).await.json();
    assert_eq!((ids(&rest), &rest["next"]), (vec!["n3"], &Value::Null));
    let mine = desk.read("/admin/exceptions").await["items"][0]["id"].clone();
    let strange = ask("platform:admin", &format!("{NOBODYS}&after={}", mine.as_str().unwrap())).await;
    assert_eq!(strange.error().as_deref(), Some("invalid_query"), "a tenant's is none of these");
    assert_eq!(ids(&desk.read("/admin/exceptions").await), ["mine"]);
}

#[tokio::test]
async fn bodies_are_deleted_some_time_after_their_end_and_not_before() {
    let desk = Desk::open().await;
    for (n, days) in [("open", 400), ("young", 89), ("old", 91), ("older", 200)] {
        let id = keep(&desk, n, "NO-SUCH", 1, days * 86_400).await;
        if n != "open" {
            let sql = format!(
                "update inbox_exception set resolved_at = received_at, command = '{{\"do\":1}}' where id = '{id}'"
            );
            desk.shop.db.execute(sql).await;
        }
    }
    let worker = desk.shop.db.worker();
    let delete = async |limit: i64| {
        let call = shared::db::call::Statement::new(
            "holdfast.reap",
            json!({"table": "inbox_exception", "age": 90, "limit": limit}),
        );
        sqlx::Row::try_get::<i64, _>(&worker.call_one(&call).await.unwrap(), "reap").unwrap()
    };
    assert_eq!((delete(1).await, delete(10).await, delete(10).await), (1, 1, 0));
    let left =
        "select string_agg(event_id, ' ' order by event_id) from inbox_exception where length(body) > 0";
    assert_eq!(desk.shop.db.text(left).await, "open young");
    assert_eq!(
        desk.shop.db.count("inbox_exception where body_deleted_at is not null and command is null").await,
        2
    );
    let page = desk.read("/admin/exceptions?state=resolved").await;
    let old = &page["items"][1];
    assert_eq!((&old["eventId"], &old["excerpt"], &old["sizeBytes"]), (&json!("old"), &json!(""), &json!(0)));
    assert!(old["bodyDeletedAt"].is_string() && old["reason"] == "no SKU of ours: NO-SUCH", "{old}");
}
