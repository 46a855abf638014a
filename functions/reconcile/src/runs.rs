//! The SQL side of a run: `migrations/functions/7_operations/reconcile*.sql`. Each call is one message and one transaction.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use shared::db::call::Statement;
use shared::db::connection::Db;
use shared::db::error::DbError;
use sqlx::Row;
use uuid::Uuid;

use crate::Terms;
use crate::page::Page;

/// Where a 3PL account reports its stock.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Account {
    pub(crate) id: String,
    pub(crate) base_url: String,
    /// As it is stored: sealed.
    pub(crate) token: String,
}

/// A state in which a run can be worked at, or any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Walking,
    Measuring,
    Booking,
    Held,
    #[serde(other)]
    Ended,
}

/// Where a walk goes on: an account, and the cursor of its next page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
pub(crate) struct Place {
    #[serde(default)]
    pub(crate) account: String,
    #[serde(default)]
    pub(crate) after: Option<String>,
}

/// A run that this invocation works at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Claimed {
    pub(crate) tenant_id: Uuid,
    pub(crate) run_id: Uuid,
    /// Of the lease.
    #[serde(skip)]
    pub(crate) token: Uuid,
    pub(crate) state: State,
    /// Pages that have committed.
    pub(crate) step: i64,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) cursor: Place,
    pub(crate) accounts: Vec<Account>,
}

fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Place, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The result of [`Runs::claim`].
pub(crate) struct Claim {
    pub(crate) run: Option<Claimed>,
    /// How long another's lease still lasts.
    pub(crate) busy: Option<Duration>,
    /// Runs that wait for a person.
    pub(crate) held: u64,
}

/// The numbers of a run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Totals {
    pub(crate) pages: u64,
    pub(crate) lines: u64,
    pub(crate) skus: u64,
    pub(crate) unknown: u64,
    pub(crate) invalid: u64,
    pub(crate) duplicates: u64,
    pub(crate) missing: u64,
    pub(crate) variances: u64,
    pub(crate) booked: u64,
    pub(crate) units_up: u64,
    pub(crate) units_down: u64,
    pub(crate) units_short: u64,
    /// Units of a run that is held.
    pub(crate) variance_units: u64,
}

/// The calls.
pub(crate) struct Runs<'a> {
    pub(crate) db: &'a Db,
    pub(crate) lease: Duration,
}

fn decode<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, DbError> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(Box::new(error)).into())
}

impl Runs<'_> {
    /// Opens a run for each tenant that has none; returns how many.
    pub(crate) async fn begin(&self, tenant: Option<Uuid>, zone: &str) -> Result<i64, DbError> {
        let begin = Statement::new("holdfast.reconcile_begin", json!({"tenantId": tenant, "zone": zone}));
        Ok(self.db.call_one(&begin).await?.try_get("reconcile_begin")?)
    }

    /// Leases the oldest open run, but for those in `except`.
    pub(crate) async fn claim(&self, tenant: Option<Uuid>, except: &[Uuid]) -> Result<Claim, DbError> {
        let token = Uuid::new_v4();
        let argument = json!({"tenantId": tenant, "token": token, "leaseSecs": self.lease.as_secs_f64(), "except": except});
        let row = self.db.call_one(&Statement::new("holdfast.reconcile_claim", argument)).await?;
        let run = row.try_get::<Option<String>, _>("run")?;
        let run = run.map(|run| decode::<Claimed>(&run)).transpose()?;
        Ok(Claim {
            run: run.map(|run| Claimed { token, ..run }),
            busy: row
                .try_get::<Option<f64>, _>("busy_secs")?
                .map(|secs| Duration::from_secs_f64(secs.max(0.0))),
            held: u64::try_from(row.try_get::<i64, _>("held")?).unwrap_or(0),
        })
    }

    fn about(&self, run: &Claimed, function: &'static str) -> Statement {
        let argument = json!({"tenantId": run.tenant_id, "runId": run.run_id, "token": run.token, "step": run.step,
            "leaseSecs": self.lease.as_secs_f64()});
        Statement::new(function, argument)
    }

    /// Prolongs the lease; `false`: it was lost.
    pub(crate) async fn renew(&self, run: &Claimed) -> Result<bool, DbError> {
        Ok(self
            .db
            .call_one(&self.about(run, "holdfast.reconcile_renew"))
            .await?
            .try_get("reconcile_renew")?)
    }

    /// Gives the run back; `error`: why it did not go on.
    pub(crate) async fn release(&self, run: &Claimed, error: Option<&str>) -> Result<(), DbError> {
        self.db.call(&self.about(run, "holdfast.reconcile_release").with("error", error)).await?;
        Ok(())
    }

    /// The numbers of a run so far.
    pub(crate) async fn totals(&self, run: &Claimed) -> Result<Totals, DbError> {
        let row = self.db.call_one(&self.about(run, "holdfast.reconcile_totals")).await?;
        decode(row.try_get("reconcile_totals")?)
    }

    /// Takes a page of a report; `next`: where the walk goes on.
    pub(crate) fn walk(&self, run: &Claimed, account: &str, page: &Page, next: Option<&Place>) -> Statement {
        let column =
            |value: fn(&crate::page::Line) -> Value| page.lines.iter().map(value).collect::<Vec<_>>();
        let invalid = page.invalid.iter().map(|line| json!({"code": line.code, "reason": line.reason}));
        self.about(run, "holdfast.reconcile_walk")
            .with("account", account)
            .with("codes", column(|line| line.code.as_str().into()))
            .with("counts", column(|line| line.count.into()))
            .with("times", column(|line| line.as_of.to_string().into()))
            .with("invalid", invalid.collect::<Vec<_>>())
            .with("next", next)
    }

    /// Compares the next SKUs with the books.
    pub(crate) fn measure(&self, run: &Claimed, limit: usize, terms: &Terms) -> Statement {
        self.about(run, "holdfast.reconcile_measure").with("limit", limit).with("terms", terms)
    }

    /// Books the next differences.
    pub(crate) fn book(&self, run: &Claimed, limit: usize) -> Statement {
        self.about(run, "holdfast.reconcile_book").with("limit", limit)
    }

    /// Sends one of these three; returns the run's state behind the page, `None` where the run was lost.
    pub(crate) async fn page(&self, page: &Statement) -> Result<Option<State>, DbError> {
        let row = self.db.call_one(page).await?;
        match row.try_get(0)? {
            "lost" => Ok(None),
            state => Ok(Some(decode(&json!(state).to_string())?)),
        }
    }
}
