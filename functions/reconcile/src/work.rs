//! The work at one run: walk, compare, book, until it has ended or must stop.

use std::time::Duration;

use shared::db::call::Statement;
use shared::db::error::DbError;
use shared::delivery::fetch::Fetcher;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Reconciler;
use crate::page::Page;
use crate::runs::{Claimed, Place, Runs, State};
use crate::source::{Source, SourceError};

/// Pause before a call to the database is made again; n times this before attempt n + 1.
const DATABASE_PAUSE: Duration = Duration::from_millis(500);

/// How the work at a run ended.
pub(crate) enum End {
    /// The run has ended, or is held.
    State(State),
    /// Time was up.
    Stopped,
    /// Another owns it now, or a person dropped it.
    Lost,
    /// For a person; the checkpoint stands.
    Failed(String),
}

type Step<T> = Result<T, End>;

impl From<DbError> for End {
    fn from(error: DbError) -> Self {
        Self::Failed(format!("the database: {error}"))
    }
}

pub(crate) struct Work<'a> {
    reconciler: &'a Reconciler,
    runs: &'a Runs<'a>,
    fetcher: &'a Fetcher,
    pub(crate) run: Claimed,
    stop_at: Instant,
}

/// A page that is being fetched.
struct Fetching {
    task: JoinSet<Result<Page, SourceError>>,
    after: Option<String>,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        reconciler: &'a Reconciler,
        runs: &'a Runs<'a>,
        fetcher: &'a Fetcher,
        run: Claimed,
        stop_at: Instant,
    ) -> Self {
        Self { reconciler, runs, fetcher, run, stop_at }
    }

    /// Works until the run has ended or must stop; then gives it back.
    pub(crate) async fn run(&mut self) -> End {
        let end = loop {
            let done = match self.run.state {
                State::Walking => self.walk().await,
                State::Measuring => self.measure().await,
                State::Booking => self.book().await,
                State::Held | State::Ended => return End::State(self.run.state),
            };
            if let Err(end) = done {
                break end;
            }
        };
        let error = if let End::Failed(error) = &end { Some(error.as_str()) } else { None };
        if !matches!(end, End::Lost)
            && let Err(error) = self.runs.release(&self.run, error).await
        {
            tracing::warn!(%error, "the run was not given back; its lease will end");
        }
        end
    }

    fn in_time(&self) -> Step<()> {
        if Instant::now() < self.stop_at { Ok(()) } else { Err(End::Stopped) }
    }

    fn source(&self, index: usize) -> Step<Source> {
        let Reconciler { limits, sealer, .. } = self.reconciler;
        let account = &self.run.accounts[index];
        Source::new(self.fetcher, *limits, sealer, account)
            .map_err(|error| End::Failed(format!("account {}: its token: {error}", account.id)))
    }

    /// All accounts, from the checkpoint on. The next page is fetched while this one is stored.
    async fn walk(&mut self) -> Step<()> {
        let Place { account, mut after } = std::mem::take(&mut self.run.cursor);
        // An account that is gone: from the first one, for what was stored before is only stored again.
        let begin = self.run.accounts.iter().position(|known| known.id == account).unwrap_or_else(|| {
            after = None;
            0
        });
        for index in begin..self.run.accounts.len() {
            let source = self.source(index)?;
            let mut fetching = fetch(&source, after.take());
            let mut may_begin_anew = true;
            loop {
                self.in_time()?;
                let page = match self.fetched(&mut fetching).await? {
                    Ok(page) => page,
                    Err(SourceError::Cursor(error)) if may_begin_anew => {
                        tracing::warn!(error, "the cursor is not known any more; walking the account again");
                        may_begin_anew = false;
                        fetching = fetch(&self.source(index)?, None);
                        continue;
                    }
                    Err(SourceError::Cursor(error) | SourceError::Failed(error)) => {
                        return Err(End::Failed(format!("account {}: {error}", self.run.accounts[index].id)));
                    }
                };
                let ahead = page.next.clone().map(|next| fetch(&source, Some(next)));
                let last = page.next.is_none();
                self.store(index, &page).await?;
                match ahead {
                    Some(next) if !last => fetching = next,
                    _ => break,
                }
            }
        }
        if self.run.state == State::Walking {
            return Err(End::Failed("the tenant has no 3PL account with an inventory any more".into()));
        }
        Ok(())
    }

    async fn store(&mut self, index: usize, page: &Page) -> Step<()> {
        let account = self.run.accounts[index].id.clone();
        let next = match &page.next {
            Some(cursor) => Some(Place { account: account.clone(), after: Some(cursor.clone()) }),
            None => self
                .run
                .accounts
                .get(index + 1)
                .map(|account| Place { account: account.id.clone(), after: None }),
        };
        self.commit(self.runs.walk(&self.run, &account, page, next.as_ref())).await?;
        let (tenant, run) = (self.run.tenant_id, self.run.run_id);
        let (page, lines, invalid) = (self.run.step, page.lines.len(), page.invalid.len());
        tracing::info!(%tenant, %run, account, page, lines, invalid, "page walked");
        Ok(())
    }

    async fn measure(&mut self) -> Step<()> {
        self.in_time()?;
        let limits = &self.reconciler.limits;
        self.commit(self.runs.measure(&self.run, limits.compared, &self.reconciler.terms)).await?;
        let (tenant, run, page) = (self.run.tenant_id, self.run.run_id, self.run.step);
        tracing::info!(%tenant, %run, page, "page compared");
        Ok(())
    }

    async fn book(&mut self) -> Step<()> {
        self.in_time()?;
        self.commit(self.runs.book(&self.run, self.reconciler.limits.page)).await?;
        let (tenant, run, page) = (self.run.tenant_id, self.run.run_id, self.run.step);
        tracing::info!(%tenant, %run, page, "page booked");
        Ok(())
    }

    /// Sends a page until it is known to have committed: sent again it changes nothing.
    async fn commit(&mut self, page: Statement) -> Step<()> {
        let mut attempt = 1;
        let state = loop {
            match self.runs.page(&page).await {
                Ok(state) => break state.ok_or(End::Lost)?,
                Err(error) if attempt >= self.reconciler.limits.attempts => return Err(error.into()),
                Err(error) => tracing::warn!(%error, attempt, "a page did not commit; sending it again"),
            }
            tokio::time::sleep(DATABASE_PAUSE * attempt).await;
            attempt += 1;
        };
        (self.run.state, self.run.step) = (state, self.run.step + 1);
        Ok(())
    }

    /// Waits for a page, and prolongs the lease meanwhile.
    async fn fetched(&self, fetching: &mut Fetching) -> Step<Result<Page, SourceError>> {
        loop {
            tokio::select! {
                Some(fetched) = fetching.task.join_next() => match fetched {
                    Ok(page) => return Ok(page),
                    Err(error) => return Err(End::Failed(format!("the page behind {:?}: {error}", fetching.after))),
                },
                () = tokio::time::sleep(self.reconciler.limits.renewal) => {
                    self.in_time()?;
                    if !self.runs.renew(&self.run).await? {
                        return Err(End::Lost);
                    }
                }
            }
        }
    }
}

/// Ended when it is dropped: nothing is left behind an answer.
fn fetch(source: &Source, after: Option<String>) -> Fetching {
    let mut task = JoinSet::new();
    task.spawn(source.clone().page(after.clone()));
    Fetching { task, after }
}
