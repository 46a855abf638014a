//! The Runtime API (2018-06-01) of one sandbox.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::{Function, Invoked, event};

/// Lambda's limit of 6 MiB, and room for JSON escapes.
const ANSWER_MAX_BYTES: usize = 6 * 1024 * 1024 + 100 * 1024;

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Starting,
    /// Has asked for its first event, this long after exec.
    Ready(Duration),
    /// Reported this init error.
    InitFailed(String),
    /// The process has ended.
    Ended {
        status: String,
    },
}

/// An event for the function.
pub(super) struct Delivery {
    pub event: Bytes,
    pub timeout: Duration,
    /// Receives the response, or the function's error document.
    pub answer_to: oneshot::Sender<Result<Invoked, String>>,
}

/// The invocation in progress.
struct Current {
    request_id: String,
    delivered: Instant,
    answer_to: oneshot::Sender<Result<Invoked, String>>,
}

/// The state behind the routes.
pub(super) struct RuntimeApi {
    pid: Pid,
    started: Instant,
    arn: String,
    phase: watch::Sender<Phase>,
    pending: tokio::sync::Mutex<mpsc::Receiver<Delivery>>,
    current: Mutex<Option<Current>>,
    freezes_between: bool,
    /// Frozen by the caller, so an event does not thaw it.
    held: AtomicBool,
}

impl RuntimeApi {
    pub fn new(
        function: &Function,
        pid: Pid,
        started: Instant,
        pending: mpsc::Receiver<Delivery>,
    ) -> (Arc<Self>, watch::Receiver<Phase>) {
        let (phase, seen) = watch::channel(Phase::Starting);
        let api = Self {
            pid,
            started,
            arn: event::function_arn(&function.name),
            phase,
            pending: tokio::sync::Mutex::new(pending),
            current: Mutex::new(None),
            freezes_between: function.freezes_between,
            held: AtomicBool::new(false),
        };
        (Arc::new(api), seen)
    }

    /// The process has ended, so the invocation in progress gets no response.
    pub fn ended(&self, status: String) {
        self.phase.send_replace(Phase::Ended { status });
        drop(self.take_current(|_| true));
    }

    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    fn take_current(&self, is_meant: impl Fn(&Current) -> bool) -> Option<Current> {
        // A panic while it was locked leaves no change half made.
        let mut current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if current.as_ref().is_some_and(is_meant) { current.take() } else { None }
    }

    fn set_current(&self, new: Current) {
        *self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(new);
    }

    /// Waits for the next event; meanwhile the sandbox is frozen, if it is so configured.
    async fn next_delivery(&self) -> Option<Delivery> {
        let mut pending = self.pending.lock().await;
        if let Ok(delivery) = pending.try_recv() {
            return Some(delivery);
        }
        if !self.freezes_between {
            return pending.recv().await;
        }
        // Fails if the process has ended; then nobody waits for this event either.
        let _ = kill(self.pid, Signal::SIGSTOP);
        let delivery = pending.recv().await;
        if !self.held.load(Ordering::SeqCst) {
            let _ = kill(self.pid, Signal::SIGCONT);
        }
        delivery
    }

    fn answer(&self, request_id: &str, answer: Result<Bytes, String>) -> Response {
        let Some(current) = self.take_current(|current| current.request_id == request_id) else {
            return refuse(StatusCode::BAD_REQUEST, "InvalidRequestID", "Invalid request ID");
        };
        let duration = current.delivered.elapsed();
        // The caller may have given up.
        let _ = current.answer_to.send(answer.map(|payload| Invoked { payload, duration }));
        accepted()
    }
}

/// Serves one sandbox until aborted.
pub(super) async fn serve(listener: TcpListener, api: Arc<RuntimeApi>) {
    let routes = Router::new()
        .route("/2018-06-01/runtime/invocation/next", get(next))
        .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
        .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
        .route("/2018-06-01/runtime/init/error", post(init_error))
        .layer(DefaultBodyLimit::max(ANSWER_MAX_BYTES))
        .with_state(api.clone());
    let listener = listener.tap_io(|stream| {
        // Without this option answers are only slower.
        let _ = stream.set_nodelay(true);
    });
    if let Err(error) = axum::serve(listener, routes).await {
        api.phase.send_replace(Phase::InitFailed(format!("its Runtime API ended: {error}")));
    }
}

async fn next(State(api): State<Arc<RuntimeApi>>) -> Response {
    api.phase.send_if_modified(|phase| {
        let first = matches!(phase, Phase::Starting);
        if first {
            *phase = Phase::Ready(api.started.elapsed());
        }
        first
    });
    let Some(delivery) = api.next_delivery().await else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "Shutdown", "The sandbox is closing");
    };
    let request_id = Uuid::new_v4().to_string();
    let timeout_ms = i64::try_from(delivery.timeout.as_millis()).unwrap_or(i64::MAX);
    let deadline_ms = jiff::Timestamp::now().as_millisecond().saturating_add(timeout_ms);
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("lambda-runtime-aws-request-id", request_id.clone()),
        ("lambda-runtime-deadline-ms", deadline_ms.to_string()),
        ("lambda-runtime-invoked-function-arn", api.arn.clone()),
        ("lambda-runtime-trace-id", trace_id()),
    ];
    api.set_current(Current { request_id, delivered: Instant::now(), answer_to: delivery.answer_to });
    (headers, delivery.event).into_response()
}

async fn response(State(api): State<Arc<RuntimeApi>>, Path(id): Path<String>, body: Bytes) -> Response {
    api.answer(&id, Ok(body))
}

async fn error(State(api): State<Arc<RuntimeApi>>, Path(id): Path<String>, body: Bytes) -> Response {
    api.answer(&id, Err(String::from_utf8_lossy(&body).into_owned()))
}

async fn init_error(State(api): State<Arc<RuntimeApi>>, headers: HeaderMap, body: Bytes) -> Response {
    let kind = headers
        .get("lambda-runtime-function-error-type")
        .and_then(|value| value.to_str().ok())
        .unwrap_or("Runtime.Unknown");
    let said = format!("{kind}: {}", String::from_utf8_lossy(&body));
    api.phase.send_replace(Phase::InitFailed(said));
    accepted()
}

fn accepted() -> Response {
    (StatusCode::ACCEPTED, [("content-type", "application/json")], r#"{"status":"OK"}"#).into_response()
}

fn refuse(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = serde_json::json!({"errorType": kind, "errorMessage": message});
    (status, axum::Json(body)).into_response()
}

/// An X-Ray trace header that is not sampled.
fn trace_id() -> String {
    let now = jiff::Timestamp::now().as_second();
    let random = Uuid::new_v4().simple().to_string();
    format!("Root=1-{now:08x}-{};Parent={};Sampled=0", &random[..24], &random[16..])
}
