//! Runs of the reconciliation, what they found, and the decision about one that is held.

use serde_json::json;
use testing::Event;

use crate::Desk;

const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

impl Desk {
    /// A run in `state` with three findings; returns its id.
    async fn run(&self, state: &str) -> String {
        let tenant = self.shop.tenant.id;
        let finished = if ["done", "dropped"].contains(&state) { "now()" } else { "null" };
        self.shop
            .db
            .execute(format!(
                "with run as (
                   insert into reconcile_run (tenant_id, snapshot_date, state, variances, held_reason, finished_at)
                   values ('{tenant}', current_date, '{state}', 1, 'too much', {finished}) returning id)
                 insert into reconcile_finding (tenant_id, run_id, kind, code, account_id, counted, expected, reason)
                 select '{tenant}', id, f.* from run, (values
                   ('variance', 'A', null, 4, 6, null), ('unknown', '=cmd(),\"x\"', 'wms', null, null, null),
                   ('invalid', 'C', 'wms', null, null, 'onHand is not a whole number')) f"
            ))
            .await;
        self.shop.db.scalar("select id::text from reconcile_run order by started_at desc limit 1").await
    }
}

#[tokio::test]
async fn runs_are_listed_with_their_progress_and_what_they_found() {
    let desk = Desk::open().await;
    let done = desk.run("done").await;
    let held = desk.run("held").await;
    assert_eq!(desk.ids("/admin/reconcile").await, [held.as_str(), &done]);
    assert_eq!(desk.ids("/admin/reconcile?state=held").await, [held.as_str()]);
    assert_eq!(desk.ids(&format!("/admin/reconcile?limit=1&after={held}")).await, [done.as_str()]);
    let run = desk.read(&format!("/admin/reconcile/{held}")).await;
    assert_eq!((&run["state"], &run["heldReason"]), (&json!("held"), &json!("too much")));
    assert_eq!(run["progress"], json!({"pages": 0, "lines": 0, "skus": 0, "variances": 1, "booked": 0}));

    let found = desk.read(&format!("/admin/reconcile/{held}/variances")).await;
    let codes: Vec<_> = found["items"].as_array().unwrap().iter().map(|item| &item["code"]).collect();
    assert_eq!(codes, ["=cmd(),\"x\"", "A", "C"]);
    let varied = desk.read(&format!("/admin/reconcile/{held}/variances?kind=variance")).await;
    let item = &varied["items"][0];
    assert_eq!((&item["counted"], &item["expected"], &item["variance"]), (&json!(4), &json!(6), &json!(-2)));
    let first = desk.read(&format!("/admin/reconcile/{held}/variances?limit=1")).await;
    let next = format!("/admin/reconcile/{held}/variances?limit=1&after={}", first["next"].as_str().unwrap());
    assert_eq!(desk.read(&next).await["items"][0]["code"], "A");
}

#[tokio::test]
async fn what_a_run_found_is_downloaded_as_csv() {
    let desk = Desk::open().await;
    let run = desk.run("done").await;
    let reply = desk.get(&format!("/admin/reconcile/{run}/variances.csv")).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/csv; charset=utf-8"));
    let text = String::from_utf8(reply.body).unwrap();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(
        lines[0],
        "kind,sku,account,counted,counted_at,expected,variance,adjusted,short,booked_at,reason,id"
    );
    // No formula, no broken field.
    assert!(lines[1].starts_with("unknown,\"'=cmd(),\"\"x\"\"\",\"wms\",,,,,0,0,,,"), "{}", lines[1]);
    assert!(lines[2].starts_with("variance,\"A\",,4,,6,-2,0,0,,,"), "{}", lines[2]);
    assert_eq!(lines.len(), 5);
    let after = lines[2].rsplit(',').next().unwrap();
    let rest = desk.get(&format!("/admin/reconcile/{run}/variances.csv?after={after}")).await;
    assert_eq!(String::from_utf8(rest.body).unwrap().split("\r\n").nth(1).unwrap(), lines[3]);
    for (path, status) in [
        (format!("/admin/reconcile/{NOBODY}/variances.csv"), 404),
        (format!("/admin/reconcile/{run}/variances.csv?after={NOBODY}"), 400),
        (format!("/admin/reconcile/{run}/variances?kind=all"), 400),
        (format!("/admin/reconcile/{NOBODY}"), 404),
        ("/admin/reconcile?state=sleeping".into(), 400),
    ] {
        assert_eq!(desk.get(&path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_held_run_is_decided_once() {
    let desk = Desk::open().await;
    let run = desk.run("held").await;
    let accept = format!("/admin/reconcile/{run}/accept");
    let event = desk.posting(&accept, &json!({}));
    let reply = desk.send(&event).await;
    assert_eq!((reply.status, reply.json()["state"].clone()), (200, json!("booking")));
    assert_eq!(reply.json()["decidedBy"], json!(format!("user:{}", desk.shop.tenant.users[0])));
    assert_eq!(desk.send(&event).await.header("idempotent-replayed"), Some("true"));
    for path in [accept, format!("/admin/reconcile/{run}/drop")] {
        let reply = desk.post(&path, &json!({})).await;
        assert_eq!((reply.status, reply.json()["error"].clone()), (409, json!("reconcile_state")));
    }
    desk.shop.db.execute("update reconcile_run set state = 'done', finished_at = now()").await;
    // A walk that fails again and again can be dropped, but there is nothing to accept.
    let walking = desk.run("walking").await;
    assert_eq!(desk.post(&format!("/admin/reconcile/{walking}/accept"), &json!({})).await.status, 409);
    let dropped = desk.post(&format!("/admin/reconcile/{walking}/drop"), &json!({})).await.json();
    assert_eq!((&dropped["state"], dropped["finishedAt"].is_string()), (&json!("dropped"), true));
    assert_eq!(desk.post(&format!("/admin/reconcile/{NOBODY}/drop"), &json!({})).await.status, 404);
}

#[tokio::test]
async fn another_tenants_run_is_not_there() {
    let desk = Desk::open().await;
    let run = desk.run("held").await;
    let other = desk.shop.db.seed(testing::Seed::default()).await;
    for path in ["", "/variances.csv"] {
        let event = Event::get(&format!("/admin/reconcile/{run}{path}")).bearer(&other.token());
        assert_eq!(desk.send(&event).await.status, 404, "{path}");
    }
    for path in ["/admin/reconcile".to_owned(), format!("/admin/reconcile/{run}/variances")] {
        let list = desk.send(&Event::get(&path).bearer(&other.token())).await.json();
        assert_eq!(list["items"], json!([]), "{path}");
    }
    let event = Event::post(&format!("/admin/reconcile/{run}/accept")).bearer(&other.token());
    assert_eq!(desk.send(&event.key("k").json(&json!({}))).await.status, 404);
    assert_eq!(desk.read(&format!("/admin/reconcile/{run}")).await["state"], "held");
}
