//! Counts beside a movement whose transaction is still open: made before the count, and not to be seen by the comparison.

use reconcile::Summary;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::support::Stage;

/// Three units of the first SKU leave, in a transaction that the caller ends.
async fn three_leave(stage: &Stage) -> PgConnection {
    let (tenant, sku) = (stage.shop.tenant.id, stage.shop.tenant.skus[0]);
    let mut open = stage.shop.db.owner().await;
    let shift = format!(
        "begin; select from sku_position where sku_id = '{sku}' for no key update;
         select holdfast.shift('{tenant}', array[row('{sku}', -3, 0, 0, 'test')::holdfast.position_change],
           null, null, null, 'test')"
    );
    sqlx::raw_sql(AssertSqlSafe(shift)).execute(&mut open).await.unwrap();
    open
}

/// Reconciles; commits the open transaction when the run waits for it.
async fn reconciled_beside(stage: &Stage, mut open: PgConnection) -> Summary {
    let commits = async {
        stage
            .until(
                "exists (select from pg_stat_activity where datname = current_database() and usename = 'holdfast_worker'
                   and wait_event_type = 'Lock')",
            )
            .await;
        sqlx::raw_sql("commit").execute(&mut open).await.unwrap();
        open.close().await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        summary = stage.reconcile() => summary,
        () = commits => unreachable!(),
    }
}

#[tokio::test]
async fn what_left_before_the_count_and_commits_while_it_is_booked_is_not_taken_twice() {
    let stage = Stage::open(1, 10).await;
    let open = three_leave(&stage).await;
    stage.counts(&[7]);
    let summary = reconciled_beside(&stage, open).await;
    assert_eq!((summary.booked, summary.units_down), (0, 0), "{summary:?}");
    assert_eq!(stage.on_hand().await, [7]);
}

#[tokio::test]
async fn a_count_that_agrees_with_books_that_are_still_moving_is_compared_again() {
    let stage = Stage::open(1, 10).await;
    let open = three_leave(&stage).await;
    // What the books will say is 7.
    stage.counts(&[10]);
    let summary = reconciled_beside(&stage, open).await;
    assert_eq!((summary.booked, summary.units_up), (1, 3), "{summary:?}");
    assert_eq!(stage.on_hand().await, [10]);
}
