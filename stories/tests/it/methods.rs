//! At every path of every function, a method that is not served there is 405 and names those that are.

use lambda_http::{Body, Request, Response};
use shared::delivery::address::Guard;
use shared::http::route::Route;
use shared::idempotency::endpoint::Endpoint;
use shared::runtime::config::DatabaseConfig;
use shared::webhooks::inbox::Receiver;
use testing::{Event, Reply, auth_config};
use uuid::Uuid;

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"];

/// Nobody listens there: a wrong method is told without the database.
fn nowhere() -> DatabaseConfig {
    DatabaseConfig::direct("postgres://nobody:none@127.0.0.1:1/none".into())
}

fn endpoint() -> Endpoint {
    Endpoint::new(&auth_config(), &nowhere()).unwrap()
}

fn receiver() -> Receiver {
    Receiver::new(&nowhere()).unwrap()
}

/// A path of a pattern.
fn path(pattern: &str) -> String {
    let segments = pattern.split('/').map(|segment| match segment {
        "{outboxId}" => "7".to_owned(),
        _ if segment.starts_with('{') => Uuid::new_v4().to_string(),
        _ => segment.to_owned(),
    });
    segments.collect::<Vec<_>>().join("/")
}

fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() == path.len() && pattern.iter().zip(&path).all(|(p, s)| p == s || p.starts_with('{'))
}

async fn refuses_other_methods<S>(
    state: &S,
    routes: &[Route<S>],
    handle: impl AsyncFn(&S, Request) -> Response<Body>,
) {
    for Route { pattern, .. } in routes {
        let path = path(pattern);
        let served: Vec<_> = routes.iter().filter(|route| fits(route.pattern, &path)).collect();
        let mut at_this_pattern: Vec<_> =
            served.iter().filter(|route| route.pattern == *pattern).map(|route| route.method).collect();
        at_this_pattern.sort_unstable();
        for method in METHODS.iter().filter(|method| served.iter().all(|route| route.method != **method)) {
            let event = Event::new(method, &path).key("k").body(b"{}");
            let reply = Reply::from(handle(state, event.request()).await);
            assert_eq!(
                (reply.status, reply.error().as_deref()),
                (405, Some("method_not_allowed")),
                "{method} {path}"
            );
            let mut allow: Vec<_> = reply.header("allow").unwrap().split(", ").collect();
            allow.sort_unstable();
            assert_eq!(allow, at_this_pattern, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_wrong_method_is_405_with_the_right_ones() {
    let endpoint = endpoint();
    refuses_other_methods(&endpoint, allocate::ROUTES, allocate::handle).await;
    refuses_other_methods(&endpoint, customer_save::ROUTES, customer_save::handle).await;
    refuses_other_methods(&endpoint, invoice::ROUTES, invoice::handle).await;
    refuses_other_methods(&endpoint, order_save::ROUTES, order_save::handle).await;
    refuses_other_methods(&endpoint, query::ROUTES, query::handle).await;
    refuses_other_methods(&endpoint, release::ROUTES, release::handle).await;
    refuses_other_methods(&endpoint, style_save::ROUTES, style_save::handle).await;
    let console = console::Console {
        endpoint,
        guard: Guard::allowing("127.0.0.1").unwrap(),
        page: Default::default(),
        sealer: testing::sealer(),
    };
    refuses_other_methods(&console, console::ROUTES, console::handle).await;

    let secrets = || "secret".into();
    let shopify =
        shopify_webhook::Webhook { receiver: receiver(), secrets: secrets(), sealer: testing::sealer() };
    refuses_other_methods(&shopify, shopify_webhook::ROUTES, shopify_webhook::handle).await;
    let stripe = stripe_webhook::Webhook {
        receiver: receiver(),
        secrets: secrets(),
        livemode: stripe_webhook::Livemode::Any,
    };
    refuses_other_methods(&stripe, stripe_webhook::ROUTES, stripe_webhook::handle).await;
    let threepl = threepl_webhook::Webhook { receiver: receiver(), sealer: testing::sealer() };
    refuses_other_methods(&threepl, threepl_webhook::ROUTES, threepl_webhook::handle).await;
}
