//! What was counted becomes what positions say.

use serde_json::json;

use crate::support::Stage;

#[tokio::test]
async fn positions_follow_the_counts_and_a_second_night_changes_nothing() {
    let stage = Stage::open(4, 10).await;
    stage.counts(&[10, 13, 8, 0]);
    let summary = stage.reconcile().await;
    assert_eq!(stage.on_hand().await, [10, 13, 8, 0]);
    let told = (
        summary.pages,
        summary.skus,
        summary.variances,
        summary.booked,
        summary.units_up,
        summary.units_down,
    );
    assert_eq!(told, (1, 4, 3, 3, 3, 12));
    let booked = stage
        .rows(
            "select on_hand_delta, entry_type, actor like 'reconcile/%' as by_run from stock_ledger
               where entry_type <> 'opening' order by sku_id",
        )
        .await;
    let line = |delta| json!({"on_hand_delta": delta, "entry_type": "reconcile", "by_run": true});
    assert_eq!(booked, [line(3), line(-2), line(-10)]);
    assert_eq!(
        stage
            .rows(
                "select s.on_hand, s.account_id, s.snapshot_date = (now() at time zone 'UTC')::date as today
                   from inventory_snapshot s order by sku_id"
            )
            .await
            .len(),
        4
    );
    assert_eq!(
        stage.rows("select job_name, cursor from sync_checkpoint").await,
        [json!({"job_name": "reconcile", "cursor": null})]
    );

    let summary = stage.reconcile().await;
    assert_eq!((summary.skus, summary.variances, summary.units_up + summary.units_down), (4, 0, 0));
    stage.counts(&[10, 13, 8, 0]);
    assert_eq!(stage.reconcile().await.variances, 0);
    assert_eq!(stage.shop.db.count("stock_ledger where entry_type = 'reconcile'").await, 3);
    assert_eq!(stage.shop.db.count("reconcile_finding").await, 3);
}

#[tokio::test]
async fn what_moved_after_the_count_is_not_taken_back() {
    let stage = Stage::open(3, 10).await;
    stage.shift(0, 5, "test").await;
    // Counted after the receipt: 15 − 2 = 13 of the first; the others agree.
    stage.counts(&[13, 10, 10]);
    stage.shift(0, 4, "test").await;
    stage.shift(1, -3, "test").await;
    let summary = stage.reconcile().await;
    assert_eq!((summary.variances, summary.units_down), (1, 2));
    assert_eq!(stage.on_hand().await, [17, 7, 10]);
}

#[tokio::test]
async fn below_the_promise_the_rest_is_a_shortfall_once_and_the_next_counts_close_it() {
    let stage = Stage::open(1, 10).await;
    stage.shop.db.destination(&stage.shop.tenant, "https://all.test", &["*"]).await;
    stage.promise(0, 8).await;
    let shortfalls = "select qty, owed_on_hand, cause, settled_at is not null as settled, note from shortfall order by opened_at";
    let open = |qty: i64| json!({"qty": qty, "owed_on_hand": qty, "cause": "reconcile", "settled": false, "note": null});

    stage.counts(&[5]);
    let summary = stage.reconcile().await;
    assert_eq!((summary.units_down, summary.units_short), (2, 3));
    assert_eq!((stage.on_hand().await, stage.rows(shortfalls).await), (vec![8], vec![open(3)]));
    let events = "outbox where event_type = 'inventory.shortfall'";
    assert_eq!(stage.shop.db.count(events).await, 1);
    // Not again where the same count is told once more, and not again each night.
    assert_eq!(stage.reconcile().await.variances, 0);
    stage.counts(&[5]);
    assert_eq!(stage.reconcile().await.variances, 0);
    assert_eq!((stage.on_hand().await, stage.rows(shortfalls).await), (vec![8], vec![open(3)]));
    assert_eq!(stage.shop.db.count(events).await, 1);
    // One turns up, then all, and two more.
    stage.counts(&[6]);
    assert_eq!(stage.reconcile().await.units_up, 0);
    assert_eq!((stage.on_hand().await, stage.rows(shortfalls).await), (vec![8], vec![open(2)]));
    stage.counts(&[10]);
    assert_eq!(stage.reconcile().await.units_up, 2);
    let closed =
        json!({"qty": 2, "owed_on_hand": 0, "cause": "reconcile", "settled": true, "note": "counted again"});
    assert_eq!((stage.on_hand().await, stage.rows(shortfalls).await), (vec![10], vec![closed]));
    stage.counts(&[10]);
    assert_eq!(stage.reconcile().await.variances, 0);
}

#[tokio::test]
async fn a_shortfall_that_a_person_settled_is_still_owed_and_not_counted_again() {
    let stage = Stage::open(1, 10).await;
    stage.promise(0, 10).await;
    stage.counts(&[7]);
    stage.reconcile().await;
    stage
        .shop
        .db
        .execute("update shortfall set settled_at = now(), settled_by = 'test', note = 'seen'")
        .await;
    stage.counts(&[7]);
    assert_eq!(stage.reconcile().await.variances, 0);
    // Two are found: the row that carries them is lowered though it is settled.
    stage.counts(&[9]);
    stage.reconcile().await;
    assert_eq!(stage.numbers("select owed_on_hand from shortfall").await, [1]);
    assert_eq!(stage.on_hand().await, [10]);
}

#[tokio::test]
async fn units_that_left_and_are_owed_are_missing_from_the_count_and_from_nothing_else() {
    let stage = Stage::open(2, 10).await;
    stage.promise(0, 10).await;
    stage.promise(1, 10).await;
    let ship = |sku: usize| {
        let (tenant, sku) = (stage.shop.tenant.id, stage.shop.tenant.skus[sku]);
        stage.shop.db.execute(format!(
            "begin; select from sku_position where sku_id = '{sku}' for no key update;
             select holdfast.add_shortfall('{tenant}', array['{sku}']::uuid[], array[4], array[4], array[0], 'order.shipped');
             commit"
        ))
    };
    // Four of the first left before the count, and four of the second after it: promised, so on_hand goes on carrying them.
    ship(0).await;
    stage.counts(&[6, 10]);
    ship(1).await;
    assert_eq!(stage.reconcile().await.variances, 0);
    assert_eq!(stage.on_hand().await, [10, 10]);
    // The next count sees both.
    stage.counts(&[6, 5]);
    let summary = stage.reconcile().await;
    assert_eq!((summary.variances, summary.units_short), (1, 1));
    // Found after all: the books give what is owed out of it first.
    stage.counts(&[8, 5]);
    stage.reconcile().await;
    assert_eq!(
        stage
            .numbers("select sum(owed_on_hand)::bigint from shortfall group by sku_id order by sku_id")
            .await,
        [2, 5]
    );
    assert_eq!(stage.on_hand().await, [10, 10]);
    stage.counts(&[8, 5]);
    assert_eq!(stage.reconcile().await.variances, 0);
}

#[tokio::test]
async fn several_warehouses_add_up_and_each_is_compared_at_its_own_moment() {
    let stage = Stage::open(2, 10).await;
    stage.warehouse.serve(&stage.shop.db, stage.shop.tenant.id, &["annex"]).await;
    stage.counts(&[6, 4]);
    // Between the two counts the annex, and it alone, received three: its count has them.
    stage.shift(0, 3, "3pl:annex/event-1").await;
    stage.warehouse.counted("annex", &[(stage.codes[0].clone(), 7), (stage.codes[1].clone(), 6)]);
    // And later the first warehouse two, which no count has.
    stage.shift(1, 2, "3pl:wms/event-2").await;
    let summary = stage.reconcile().await;
    assert_eq!((summary.skus, summary.variances, summary.pages), (2, 0, 2));
    assert_eq!(stage.on_hand().await, [13, 12]);
    assert_eq!(stage.shop.db.count("inventory_snapshot").await, 4);
}

#[tokio::test]
async fn what_nobody_lists_is_reported_and_not_zeroed() {
    let stage = Stage::open(3, 10).await;
    stage.counts(&[10]);
    let summary = stage.reconcile().await;
    assert_eq!((summary.skus, summary.missing, summary.variances), (1, 2, 0));
    assert_eq!(stage.on_hand().await, [10, 10, 10]);
    let found = stage.rows("select kind, code, expected from reconcile_finding order by code").await;
    let missing = |code| json!({"kind": "missing", "code": code, "expected": 10});
    assert_eq!(found, [missing("SKU-0002"), missing("SKU-0003")]);
}

#[tokio::test]
async fn unknown_codes_are_one_exception_per_night_and_code() {
    let stage = Stage::open(1, 10).await;
    let (known, strange) = ((stage.codes[0].clone(), 9), ("STRANGE".to_owned(), 3));
    stage.warehouse.counted("wms", &[strange.clone(), known.clone(), strange.clone(), ("ODD".to_owned(), 1)]);
    for _ in 0..2 {
        let summary = stage.reconcile().await;
        assert_eq!((summary.unknown, summary.skus, summary.duplicates), (2, 1, 1));
    }
    assert_eq!(stage.on_hand().await, [9]);
    let kept = stage.rows("select provider, topic, reason, event_id like '____-__-__/%' as dated from inbox_exception order by reason").await;
    let exception = |code: &str| {
        json!({"provider": "reconcile:wms", "topic": "inventory", "dated": true,
        "reason": format!("no SKU of ours: {code}")})
    };
    assert_eq!(kept, [exception("ODD"), exception("STRANGE")]);
    assert_eq!(stage.shop.db.count("outbox where event_type = 'inbox.exception'").await, 2);
}

#[tokio::test]
async fn stock_that_is_found_goes_first_to_channel_orders_that_lack_it() {
    let stage = Stage::open(1, 0).await;
    let (tenant, sku) = (stage.shop.tenant.id, stage.shop.tenant.skus[0]);
    stage
        .shop
        .db
        .execute(format!(
            "with o as (insert into channel_order (tenant_id, shop_domain, external_id) values ('{tenant}', 'a.test', '1') returning id)
             insert into channel_hold (tenant_id, channel_order_id, sku_id, qty_wanted, placed_at, external_id)
             select '{tenant}', id, '{sku}', 4, now(), '1' from o"
        ))
        .await;
    stage.counts(&[6]);
    stage.reconcile().await;
    assert_eq!(stage.numbers("select qty_held from channel_hold").await, [4]);
    assert_eq!(stage.numbers("select allocated from sku_position").await, [4]);
    assert_eq!(stage.on_hand().await, [6]);
}

#[tokio::test]
async fn a_day_of_another_time_zone_dates_the_run() {
    let stage = Stage::open(1, 10).await;
    stage.counts(&[10]);
    let mut reconciler = stage.reconciler(crate::support::hasty(), crate::support::ANY);
    // Two zones that never share a day.
    for zone in ["Pacific/Kiritimati", "Etc/GMT+12"] {
        reconciler.zone = zone.into();
        let request = reconcile::Request { tenant: Some(stage.shop.tenant.id), resume: false };
        reconciler.run_once(request, tokio::time::Instant::now() + crate::support::PATIENCE).await.unwrap();
    }
    assert_eq!(stage.numbers("select count(distinct snapshot_date) from inventory_snapshot").await, [2]);
}
