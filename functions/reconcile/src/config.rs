//! What is set from outside, and the sizes and times of a run.

use std::time::Duration;

use serde::Serialize;
use shared::delivery::address::Guard;
use shared::runtime::config::{ConfigError, DatabaseConfig, optional};

/// The function's time limit in template.yaml.
const TIMEOUT_SECS: u64 = 900;
const MAX_AGE_HOURS: u64 = 48;

/// Which differences a person must look at first: those above the floor in units and above the share of the stock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// `RECONCILE_SKU_SHARE`: of one SKU; 0.5 is half of its stock.
    pub sku_share: f64,
    /// `RECONCILE_SKU_FLOOR`.
    pub sku_floor: i64,
    /// `RECONCILE_RUN_SHARE`: of all SKUs together, ups and downs added.
    pub run_share: f64,
    /// `RECONCILE_RUN_FLOOR`.
    pub run_floor: i64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { sku_share: 0.5, sku_floor: 50, run_share: 0.2, run_floor: 500 }
    }
}

/// The environment, read once at cold start.
#[derive(Clone, Debug)]
pub struct Config {
    /// `WORKER_DATABASE_URL`, `DATABASE_POOLER`.
    pub database: DatabaseConfig,
    /// Has variables of its own.
    pub terms: Terms,
    /// `RECONCILE_TIME_ZONE`: the day on which a run begins there is its snapshot date; UTC by default.
    pub zone: String,
    /// `RECONCILE_MAX_AGE_HOURS`: older counts are not used.
    pub max_age: Duration,
    /// `RECONCILE_TIMEOUT_SECONDS`: the function's time limit, used where the runtime gives no usable deadline.
    pub timeout: Duration,
    /// `DESTINATION_ALLOW`.
    pub guard: Guard,
    /// Whether `AWS_REGION` is set, as Lambda does: without it no continuation is asked for.
    pub aws: bool,
}

impl Config {
    /// Reads the variables named above. The error names the one that is missing or wrong.
    pub fn from_env() -> Result<Self, ConfigError> {
        let default = Terms::default();
        Ok(Self {
            database: DatabaseConfig::worker()?,
            terms: Terms {
                sku_share: optional("RECONCILE_SKU_SHARE", default.sku_share)?,
                sku_floor: optional("RECONCILE_SKU_FLOOR", default.sku_floor)?,
                run_share: optional("RECONCILE_RUN_SHARE", default.run_share)?,
                run_floor: optional("RECONCILE_RUN_FLOOR", default.run_floor)?,
            },
            zone: optional("RECONCILE_TIME_ZONE", "UTC".to_owned())?,
            max_age: Duration::from_secs(optional("RECONCILE_MAX_AGE_HOURS", MAX_AGE_HOURS)? * 3600),
            timeout: Duration::from_secs(optional("RECONCILE_TIMEOUT_SECONDS", TIMEOUT_SECS)?),
            guard: Guard::from_env()?,
            aws: !optional("AWS_REGION", String::new())?.is_empty(),
        })
    }
}

/// The sizes and times of a run; the defaults are the deployed ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Lines that a page of a report is asked for, and differences that are booked in one transaction.
    pub page: usize,
    /// Most lines that are taken of a page, whatever was asked for.
    pub page_max: usize,
    /// Most bytes of a page.
    pub page_max_bytes: usize,
    /// SKUs that are compared in one statement: it only reads, and locks nothing.
    pub compared: usize,
    /// Time limit for one request.
    pub request: Duration,
    /// Requests for one page, and calls for one transaction.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles, and has a jitter of up to half.
    pub backoff: Duration,
    /// Where a partner asks for a longer pause, the run stops, and goes on with the next invocation.
    pub longest_pause: Duration,
    /// Older counts are not used.
    pub max_age: Duration,
    /// Outlasts the pause between two renewals and a call to the database.
    pub lease: Duration,
    /// Between two renewals while a page is waited for.
    pub renewal: Duration,
    /// No page begins later than this before the deadline.
    pub margin: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            page: 500,
            page_max: 5_000,
            page_max_bytes: 8 << 20,
            compared: 2_000,
            request: Duration::from_secs(15),
            attempts: 4,
            backoff: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            max_age: Duration::from_secs(MAX_AGE_HOURS * 3600),
            lease: Duration::from_secs(15),
            renewal: Duration::from_secs(4),
            margin: Duration::from_secs(20),
        }
    }
}
