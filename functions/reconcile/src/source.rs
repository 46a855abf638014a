//! The report of one 3PL account: asks for a page, and again where that is worth it.
//!
//! Promises: bounded attempts with backoff, or as long a pause as the partner asks for; a report that goes round in a circle
//! or does not keep to its pages is an error.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use shared::delivery::fetch::{FetchError, Fetcher};
use shared::runtime::sealed::{NotOpened, Sealer, inventory_place};

use crate::Limits;
use crate::page::Page;
use crate::runs::Account;

/// Asks one account for its pages.
#[derive(Clone)]
pub(crate) struct Source {
    fetcher: Fetcher,
    limits: Limits,
    url: String,
    token: String,
    /// The cursors that were asked for.
    seen: Arc<Mutex<HashSet<String>>>,
}

/// Why there is no page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SourceError {
    /// The partner does not know the cursor (any more).
    Cursor(String),
    /// Anything else; for a person.
    Failed(String),
}

/// An attempt that failed.
struct Missed {
    error: SourceError,
    /// Whether another attempt may help, and how long the partner asks to wait before.
    again: Option<Option<Duration>>,
}

impl Source {
    pub(crate) fn new(
        fetcher: &Fetcher,
        limits: Limits,
        sealer: &Sealer,
        account: &Account,
    ) -> Result<Self, NotOpened> {
        let url = format!("{}/inventory", account.base_url.trim_end_matches('/'));
        let token = sealer.open(&inventory_place(&account.id), &account.token)?;
        Ok(Self { fetcher: fetcher.clone(), limits, url, token, seen: Arc::default() })
    }

    /// The page behind a cursor; `None`: the first one.
    pub(crate) async fn page(self, after: Option<String>) -> Result<Page, SourceError> {
        let mut attempt = 1;
        loop {
            let Missed { error, again } = match self.attempt(after.as_deref()).await {
                Ok(page) => {
                    self.seen.lock().unwrap_or_else(PoisonError::into_inner).extend(after);
                    return Ok(page);
                }
                Err(missed) => missed,
            };
            let Some(asked) = again.filter(|_| attempt < self.limits.attempts) else { return Err(error) };
            let backoff = self.limits.backoff * 2_u32.pow(attempt - 1);
            let pause = asked.unwrap_or_else(|| backoff.mul_f64(rand::random_range(1.0..1.5)));
            if pause > self.limits.longest_pause {
                return Err(error);
            }
            tracing::warn!(?error, attempt, ?pause, "no page; asking again");
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    async fn attempt(&self, after: Option<&str>) -> Result<Page, Missed> {
        let limit = self.limits.page.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(after.map(|after| ("cursor", after)));
        let body = self.fetcher.get(&self.url, &query, Some(&self.token)).await.map_err(|error| {
            let again = error.passes().then(|| error.retry_after());
            let unknown =
                after.is_some() && matches!(error, FetchError::Refused { status: 400 | 404 | 410 | 422, .. });
            let error = format!("the inventory cannot be read: {error}");
            Missed {
                error: if unknown { SourceError::Cursor(error) } else { SourceError::Failed(error) },
                again,
            }
        })?;
        let missed = |error: String| Missed { error: SourceError::Failed(error), again: Some(None) };
        let page = Page::read(&body, Timestamp::now(), self.limits.max_age)
            .map_err(|error| missed(format!("the inventory cannot be read: {error}")))?;
        if page.size() > self.limits.page_max {
            return Err(missed(format!(
                "the inventory cannot be read: {} lines on a page, and not {limit}",
                page.size()
            )));
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = &page.next
            && (Some(next.as_str()) == after || seen.contains(next))
        {
            return Err(missed("the inventory cannot be read: its cursor repeats".into()));
        }
        Ok(page)
    }
}
