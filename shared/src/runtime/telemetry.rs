//! Structured logs to standard output, where Lambda collects them.

/// The log level comes from `AWS_LAMBDA_LOG_LEVEL` or `RUST_LOG`.
pub fn init() {
    lambda_http::tracing::init_default_subscriber();
}
