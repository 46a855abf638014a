//! `/console` and `/admin/…`: the page of account managers and operators, and the routes for outbox, destinations, exceptions
//! and shortfalls.
//!
//! Promises: every change is one keyed, audited transaction; a caller sees only its own tenant.

mod page;

use lambda_http::{Body, Request, Response};
use shared::db::call::Statement;
use shared::delivery::address::Guard;
use shared::http::auth::Scope;
use shared::http::event::Answer;
use shared::http::fields::read_empty;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::{once, once_with};
use shared::operations::{attention, destinations, events, exceptions, outbox_admin, reconciliations};
use shared::runtime::config::ConfigError;
use shared::runtime::sealed::{self, Sealer};
use uuid::Uuid;

pub use page::{Page, SignIn};

/// The state of one sandbox.
pub struct Console {
    /// Credentials and the connection.
    pub endpoint: Endpoint,
    /// Admits addresses of destinations.
    pub guard: Guard,
    /// The page, as this deployment serves it.
    pub page: Page,
    /// Seals and opens the secrets of destinations.
    pub sealer: Sealer,
}

impl Console {
    /// From the environment, with the connection opened. The error names the variable that is missing or wrong.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let (guard, page, sealer) = (Guard::from_env()?, Page::from_env()?, sealed::from_env().await?);
        Ok(Self { endpoint: Endpoint::cold_start().await?, guard, page, sealer })
    }
}

const ADMIN: Access = Access::Scope(Scope::OutboxAdmin);
const ADMIN_OR_PLATFORM: Access = Access::ScopeOrPlatform(Scope::OutboxAdmin);

/// Methods, paths, scopes and handlers.
pub const ROUTES: &[Route<Console>] = &[
    Route::new("GET", "/console", Access::Open, |c, r| Box::pin(async { Ok(c.page.document(r.incoming)) })),
    Route::new("GET", "/console/{version}/{file}", Access::Open, |_, r| {
        Box::pin(async { page::file(r.incoming, r.text("version"), r.text("file")) })
    }),
    Route::new("GET", "/admin/outbox", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |r| outbox_admin::list(r.query())))
    }),
    Route::new("GET", "/admin/outbox/{outboxId}", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |r| Ok(outbox_admin::event(r.outbox_id()?))))
    }),
    Route::new("POST", "/admin/outbox/requeue", ADMIN, |c, r| Box::pin(c.requeue_by_filter(r))),
    Route::new("POST", "/admin/outbox/discard", ADMIN, |c, r| Box::pin(c.discard_by_filter(r))),
    Route::new("POST", "/admin/outbox/{outboxId}/requeue", ADMIN, |c, r| Box::pin(c.requeue(r))),
    Route::new("POST", "/admin/outbox/{outboxId}/discard", ADMIN, |c, r| Box::pin(c.discard(r))),
    Route::new("GET", "/admin/destinations", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |r| destinations::list(r.query())))
    }),
    Route::new("POST", "/admin/destinations", ADMIN, |c, r| Box::pin(c.create_destination(r))),
    Route::new("PATCH", "/admin/destinations/{destinationId}", ADMIN, |c, r| {
        Box::pin(c.change_destination(r))
    }),
    Route::new("DELETE", "/admin/destinations/{destinationId}", ADMIN, |c, r| {
        Box::pin(c.delete_destination(r))
    }),
    Route::new("GET", "/admin/destinations/{destinationId}/secret", ADMIN, |c, r| {
        Box::pin(c.read_secrets(r))
    }),
    Route::new("POST", "/admin/destinations/{destinationId}/rotate", ADMIN, |c, r| Box::pin(c.rotate(r))),
    Route::new("POST", "/admin/destinations/{destinationId}/test", ADMIN, |c, r| {
        Box::pin(c.test_destination(r))
    }),
    Route::new("GET", "/events", Access::Scope(Scope::EventsRead), |c, r| {
        Box::pin(c.endpoint.read(r, |r| events::list(r.query())))
    }),
    Route::new("POST", "/events/replay", Access::Scope(Scope::EventsRead), |c, r| Box::pin(c.replay(r))),
    Route::new("GET", "/admin/exceptions", ADMIN_OR_PLATFORM, |c, r| {
        Box::pin(c.endpoint.read(r, |r| exceptions::exceptions(r.query())))
    }),
    Route::new("POST", "/admin/exceptions/retry", ADMIN, |c, r| Box::pin(c.retry_exceptions(r))),
    Route::new("POST", "/admin/exceptions/dismiss", ADMIN, |c, r| Box::pin(c.dismiss_exceptions(r))),
    Route::new("POST", "/admin/exceptions/{exceptionId}/dismiss", ADMIN, |c, r| {
        Box::pin(c.dismiss_exception(r))
    }),
    Route::new("POST", "/admin/exceptions/{exceptionId}/retry", ADMIN, |c, r| Box::pin(c.retry_exception(r))),
    Route::new("GET", "/admin/shortfalls", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |r| exceptions::shortfalls(r.query())))
    }),
    Route::new("POST", "/admin/shortfalls/{shortfallId}/settle", ADMIN, |c, r| {
        Box::pin(c.settle_shortfall(r))
    }),
    Route::new("GET", "/admin/reconcile", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |r| reconciliations::runs(r.query())))
    }),
    Route::new("GET", "/admin/reconcile/{runId}", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |r| Ok(reconciliations::run(r.id("runId")?))))
    }),
    Route::new("GET", "/admin/reconcile/{runId}/variances", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |r| reconciliations::findings(r.id("runId")?, r.query())))
    }),
    Route::new("GET", "/admin/reconcile/{runId}/variances.csv", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |r| reconciliations::csv(r.id("runId")?, r.query())))
    }),
    Route::new("POST", "/admin/reconcile/{runId}/accept", ADMIN, |c, r| {
        Box::pin(c.decide(r, reconciliations::accept))
    }),
    Route::new("POST", "/admin/reconcile/{runId}/drop", ADMIN, |c, r| {
        Box::pin(c.decide(r, reconciliations::drop))
    }),
    Route::new("GET", "/admin/health", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |_| Ok(outbox_admin::health())))
    }),
    Route::new("GET", "/admin/health/rates", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |_| Ok(attention::rates())))
    }),
    Route::new("GET", "/admin/attention", ADMIN, |c, r| {
        Box::pin(c.endpoint.read(r, |_| Ok(attention::waiting())))
    }),
];

/// Serves one request.
pub async fn handle(console: &Console, request: Request) -> Response<Body> {
    console.endpoint.serve(console, ROUTES, request).await
}

impl Console {
    async fn requeue(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, ()) = self.endpoint.mutation(request, read_empty).await?;
        once(&self.endpoint.db, &call, outbox_admin::requeue(request.outbox_id()?)).await
    }

    async fn requeue_by_filter(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, batch) = self.endpoint.mutation(request, outbox_admin::read_requeue).await?;
        once(&self.endpoint.db, &call, outbox_admin::requeue_next(&batch)).await
    }

    async fn discard_by_filter(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, (batch, reason)) = self.endpoint.mutation(request, outbox_admin::read_discard).await?;
        once(&self.endpoint.db, &call, outbox_admin::discard_next(&batch, &reason)).await
    }

    async fn discard(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, reason) = self.endpoint.mutation(request, outbox_admin::read_reason).await?;
        once(&self.endpoint.db, &call, outbox_admin::discard(request.outbox_id()?, &reason)).await
    }

    async fn replay(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, replay) = self.endpoint.mutation(request, events::read_replay).await?;
        once(&self.endpoint.db, &call, events::replay(replay)).await
    }

    async fn create_destination(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, mut fields) = self.endpoint.mutation(request, destinations::read_create).await?;
        fields.check_address(&self.guard).await.map_err(|errors| Problem::invalid_body(&errors))?;
        let id = Uuid::new_v4();
        let creation = destinations::sealed(&self.sealer, id, destinations::create(&fields).with("id", id))?;
        once(&self.endpoint.db, &call, creation).await
    }

    async fn change_destination(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, mut fields) = self.endpoint.mutation(request, destinations::read_change).await?;
        fields.check_address(&self.guard).await.map_err(|errors| Problem::invalid_body(&errors))?;
        let id = request.id("destinationId")?;
        let change = destinations::sealed(&self.sealer, id, destinations::change(id, &fields))?;
        once(&self.endpoint.db, &call, change).await
    }

    async fn read_secrets(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let stored =
            self.endpoint.read(request, |r| Ok(destinations::secrets(r.id("destinationId")?))).await?;
        destinations::opened(&self.sealer, request.id("destinationId")?, stored)
    }

    async fn delete_destination(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, reason) = self.endpoint.mutation(request, destinations::read_deletion).await?;
        let deletion = destinations::delete(request.id("destinationId")?, reason.as_deref());
        once(&self.endpoint.db, &call, deletion).await
    }

    async fn rotate(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, immediate) = self.endpoint.mutation(request, destinations::read_rotation).await?;
        let id = request.id("destinationId")?;
        let rotation = destinations::rotate(id, &destinations::new_secret(), immediate);
        let rotation = destinations::sealed(&self.sealer, id, rotation)?;
        once(&self.endpoint.db, &call, rotation).await
    }

    async fn test_destination(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, ()) = self.endpoint.mutation(request, read_empty).await?;
        once(&self.endpoint.db, &call, destinations::test(request.id("destinationId")?)).await
    }

    async fn retry_exception(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, ()) = self.endpoint.mutation(request, read_empty).await?;
        let id = request.id("exceptionId")?;
        once_with(&self.endpoint.db, &call, &id, |connection, call, id| {
            Box::pin(exceptions::retry(connection, call, id))
        })
        .await
    }

    async fn decide(
        &self,
        request: &Matched<'_>,
        decision: fn(Uuid) -> Statement,
    ) -> Result<Answer, Problem> {
        let (call, ()) = self.endpoint.mutation(request, read_empty).await?;
        once(&self.endpoint.db, &call, decision(request.id("runId")?)).await
    }

    async fn retry_exceptions(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, filter) = self.endpoint.mutation(request, exceptions::read_filter).await?;
        once_with(&self.endpoint.db, &call, &filter, |connection, call, filter| {
            Box::pin(exceptions::retry_all(connection, call, filter))
        })
        .await
    }

    async fn dismiss_exceptions(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, (filter, reason)) =
            self.endpoint.mutation(request, exceptions::read_filter_and_reason).await?;
        once(&self.endpoint.db, &call, exceptions::dismiss_all(&filter, &reason)).await
    }

    async fn dismiss_exception(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, reason) = self.endpoint.mutation(request, exceptions::read_reason).await?;
        once(&self.endpoint.db, &call, exceptions::dismiss(request.id("exceptionId")?, &reason)).await
    }

    async fn settle_shortfall(&self, request: &Matched<'_>) -> Result<Answer, Problem> {
        let (call, note) = self.endpoint.mutation(request, exceptions::read_note).await?;
        once(&self.endpoint.db, &call, exceptions::settle(request.id("shortfallId")?, &note)).await
    }
}
