//! A reconciliation beside everything that moves stock: allocations, releases, receipts, shipments, channel orders. What moved
//! after a count stays, there is no deadlock, and all numbers agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use reconcile::{Limits, Reconciler, Request, Terms};
use shared::delivery::address::Guard;
use sqlx::AssertSqlSafe;
use testing::{Seed, Shop, Warehouse, fresh_key, lines};
use tokio::time::Instant;

use crate::send;

const SKUS: usize = 60;
const WORKERS: usize = 4;
const ON_HAND: i64 = 40;
const PATIENCE: Duration = Duration::from_secs(120);
const ANY: Terms = Terms { sku_share: 1e9, sku_floor: i64::MAX, run_share: 1e9, run_floor: i64::MAX };

/// Allocates and releases at random until it is over; returns how much went through.
async fn trade(shop: Arc<Shop>, over: Arc<AtomicBool>, worker: usize) -> usize {
    let sandbox = shop.db.endpoint();
    let mut passed = 0;
    for round in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let pick = |n: usize| shop.tenant.skus[(round * 7 + worker * 13 + n * 11) % SKUS];
        let wanted: Vec<_> = (0..5).map(|n| (pick(n), 1)).collect();
        let event = if round % 3 == 2 { shop.release(worker % 2) } else { shop.allocate(worker % 2) };
        let reply = send(&sandbox, &event.key(&fresh_key()).json(&lines(&wanted))).await;
        assert!(reply.status < 500, "{reply:?}");
        passed += usize::from(reply.status == 200);
    }
    passed
}

/// Receipts, shipments and channel orders as their webhooks book them; returns the units that came and went.
async fn move_goods(shop: Arc<Shop>, over: Arc<AtomicBool>) -> i64 {
    let mut app = shop.db.app().await;
    let (tenant, mut sum) = (shop.tenant.id, 0);
    for round in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let (up, down) = (shop.tenant.skus[round * 17 % SKUS], shop.tenant.skus[(round * 29 + 5) % SKUS]);
        let (first, second) = (up.min(down), up.max(down));
        let sql = format!(
            "begin; set local app.tenant_id = '{tenant}';
             select from sku_position where sku_id in ('{first}', '{second}') order by sku_id for no key update;
             select holdfast.shift('{tenant}', array[row('{up}', 3, 0, 0, 'asn.received')::holdfast.position_change], null, null, null, '3pl:wms/{round}');
             select holdfast.shift('{tenant}', array[row('{down}', -least(1, p.on_hand + p.on_order - p.allocated), 0, 0, 'ship')::holdfast.position_change],
               null, null, null, '3pl:wms/s{round}') from sku_position p where p.sku_id = '{down}';
             commit"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut app).await.unwrap();
        sum += 1;
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciliation_beside_all_that_moves_stock_takes_back_nothing_that_moved_after_the_count() {
    let seed = Seed { skus: SKUS, on_hand: ON_HAND, orders: 2, order_qty: 1_000, ..Seed::default() };
    let shop = Arc::new(Shop::open(seed).await);
    let warehouse = Warehouse::start().await;
    warehouse.serve(&shop.db, shop.tenant.id, &["wms"]).await;
    let mut owner = shop.db.owner().await;
    // Counted: two more of each third SKU, one less of each third; then everything moves.
    let difference = |n: usize| [2, -1, 0][n % 3];
    let stock: Vec<_> = (0..SKUS).map(|n| (format!("SKU-{:04}", n + 1), ON_HAND + difference(n))).collect();
    warehouse.counted("wms", &stock);
    let over = Arc::new(AtomicBool::new(false));
    let mut trades = Vec::new();
    for worker in 0..WORKERS {
        trades.push(tokio::spawn(trade(shop.clone(), over.clone(), worker)));
    }
    let goods = tokio::spawn(move_goods(shop.clone(), over.clone()));

    let mut reconciler =
        Reconciler::with(shop.db.worker(), Limits { page: 7, compared: 11, ..Limits::default() }, ANY);
    reconciler.guard = Guard::allowing("127.0.0.1").unwrap();
    for night in 0..6 {
        let request = Request { tenant: Some(shop.tenant.id), resume: false };
        let summary = reconciler.run_once(request, Instant::now() + PATIENCE).await.unwrap();
        assert_eq!((summary.completed, &summary.errors), (1, &vec![]), "{night}");
        // The count is told again as it was: it has been heeded.
        let booked = if night == 0 { SKUS as u64 * 2 / 3 } else { 0 };
        assert_eq!(summary.booked, booked, "night {night}");
    }
    over.store(true, Ordering::Relaxed);
    let traded: usize = join_all(trades).await.into_iter().map(Result::unwrap).sum();
    assert!(traded > 0 && goods.await.unwrap() > 0);

    shop.db.assert_no_deadlock().await;
    shop.db.assert_consistent().await;
    // What is there is what was counted and what moved since, unit by unit, with what is owed taken off.
    let odd: i64 = sqlx::query_scalar(
        "select count(*) from (
           select p.on_hand - coalesce((select sum(s.owed_on_hand) from shortfall s where s.sku_id = p.sku_id), 0) as there,
             (select s.on_hand from inventory_snapshot s where s.sku_id = p.sku_id)
             + coalesce((select sum(l.on_hand_delta) from stock_ledger l
                         where l.sku_id = p.sku_id and l.entry_type in ('asn.received', 'ship')), 0) as moved
           from sku_position p) q where there <> moved",
    )
    .fetch_one(&mut owner)
    .await
    .unwrap();
    assert_eq!(odd, 0, "positions that are not what was counted and what moved since");
}
