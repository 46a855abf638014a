//! The age of the oldest snapshot in the database: while it is held, no vacuum removes what has died since, and whatever changes
//! often becomes slower with each change.

use shared::db::connection::Db;
use shared::delivery::outbox;
use shared::runtime::metrics::{Line, Unit};

/// Writes it as a metric.
pub async fn tell_oldest(db: &Db) {
    match outbox::oldest_snapshot_secs(db).await {
        Ok(secs) => Line::of("relay").with("OldestSnapshotAge", Unit::Seconds, secs).write(),
        Err(error) => tracing::warn!(%error, "the oldest snapshot is not known"),
    }
}
