//! How long what is kept is kept.

use shared::runtime::config::{ConfigError, optional};

/// Promised by the API; also the default.
const KEY_RETENTION_MIN_HOURS: i32 = 24;
/// Senders redeliver webhooks for days, and a redelivery must be seen as a duplicate; also the default.
const INBOX_RETENTION_MIN_DAYS: i32 = 30;

/// Retention by table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// `KEY_RETENTION_HOURS`: idempotency keys with their answers; at least 24.
    pub keys_hours: i32,
    /// `INBOX_RETENTION_DAYS`: received webhooks; at least 30.
    pub inbox_days: i32,
    /// `OUTBOX_RETENTION_DAYS`: delivered outbox rows.
    pub outbox_days: i32,
    /// `DEAD_RETENTION_DAYS`: dead letters, from their last attempt on.
    pub dead_days: i32,
    /// `DISCARDED_RETENTION_DAYS`: outbox rows that a person set aside.
    pub discarded_days: i32,
    /// `EXCEPTION_RETENTION_DAYS`: bodies of exceptions, from the exception's end on.
    pub exception_days: i32,
    /// `SECRET_RETENTION_DAYS`: secrets, after the day from which nothing is signed with them.
    pub secret_days: i32,
    /// `SNAPSHOT_RETENTION_DAYS`: inventory snapshots.
    pub snapshot_days: i32,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            keys_hours: KEY_RETENTION_MIN_HOURS,
            inbox_days: INBOX_RETENTION_MIN_DAYS,
            outbox_days: 30,
            // Somebody may still want to send them again, or ask who set them aside.
            dead_days: 90,
            discarded_days: 90,
            exception_days: 90,
            secret_days: 30,
            // A year, and some time for a late audit.
            snapshot_days: 400,
        }
    }
}

impl Retention {
    /// Reads the variables named above; see [`Retention::as_promised`].
    pub(crate) fn from_env() -> Result<Self, ConfigError> {
        let default = Self::default();
        Ok(Self {
            keys_hours: optional("KEY_RETENTION_HOURS", default.keys_hours)?,
            inbox_days: optional("INBOX_RETENTION_DAYS", default.inbox_days)?,
            outbox_days: optional("OUTBOX_RETENTION_DAYS", default.outbox_days)?,
            dead_days: optional("DEAD_RETENTION_DAYS", default.dead_days)?,
            discarded_days: optional("DISCARDED_RETENTION_DAYS", default.discarded_days)?,
            exception_days: optional("EXCEPTION_RETENTION_DAYS", default.exception_days)?,
            secret_days: optional("SECRET_RETENTION_DAYS", default.secret_days)?,
            snapshot_days: optional("SNAPSHOT_RETENTION_DAYS", default.snapshot_days)?,
        }
        .as_promised())
    }

    /// Raises values below the promised minimum, and logs that.
    pub fn as_promised(self) -> Self {
        let kept = Self {
            keys_hours: self.keys_hours.max(KEY_RETENTION_MIN_HOURS),
            inbox_days: self.inbox_days.max(INBOX_RETENTION_MIN_DAYS),
            outbox_days: self.outbox_days.max(0),
            dead_days: self.dead_days.max(0),
            discarded_days: self.discarded_days.max(0),
            exception_days: self.exception_days.max(0),
            secret_days: self.secret_days.max(0),
            snapshot_days: self.snapshot_days.max(0),
        };
        if kept != self {
            tracing::warn!(?kept, "retention raised to what is promised");
        }
        kept
    }
}
