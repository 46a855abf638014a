//! A minimal HTTP function, with which `cargo xtask bench` compares cold starts.

use lambda_http::{Body, Error, Request, Response, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    lambda_http::tracing::init_default_subscriber();
    lambda_http::run(service_fn(async |_: Request| Ok::<_, Error>(Response::new(Body::from("ok"))))).await
}
