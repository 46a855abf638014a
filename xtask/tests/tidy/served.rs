//! The functions' own tables of routes, held to the local router and to what the OpenAPI file says of scopes.

use std::collections::BTreeSet;

use shared::http::auth::Scope;
use shared::http::problem::Problem;
use shared::http::route::{self, Access};

use crate::{NOTHING, Route, Yaml, metadata, router, yaml};

/// A route of a function's table, and who may call it.
type Served = (Route, Access);

/// What every scope's sentence in the OpenAPI file begins with.
const NEEDS: &str = "Needs the scope `";

fn rows<S>(krate: &str, routes: &[route::Route<S>]) -> Vec<Served> {
    let row = |route: &route::Route<S>| {
        ((route.method.to_owned(), route.pattern.to_owned(), krate.to_owned()), route.access)
    };
    routes.iter().map(row).collect()
}

/// The tables of all functions that serve HTTP.
fn tables() -> Vec<Served> {
    [
        rows("allocate", allocate::ROUTES),
        rows("console", console::ROUTES),
        rows("customer-save", customer_save::ROUTES),
        rows("invoice", invoice::ROUTES),
        rows("order-save", order_save::ROUTES),
        rows("query", query::ROUTES),
        rows("release", release::ROUTES),
        rows("shopify-webhook", shopify_webhook::ROUTES),
        rows("stripe-webhook", stripe_webhook::ROUTES),
        rows("style-save", style_save::ROUTES),
        rows("threepl-webhook", threepl_webhook::ROUTES),
    ]
    .concat()
}

/// Where the tables and the router differ.
fn differences(served: &[Served], router: &BTreeSet<Route>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for (route, _) in served {
        if !seen.insert(route.clone()) {
            faults.push(format!("{route:?} stands twice in its table"));
        }
    }
    faults.extend(seen.difference(router).map(|route| format!("{route:?} is served and not in the router")));
    faults.extend(router.difference(&seen).map(|route| format!("{route:?} is in the router and not served")));
    faults
}

#[test]
fn the_functions_serve_what_the_router_sends_them() {
    assert_eq!(differences(&tables(), &router(&metadata())), NOTHING);
}

#[test]
fn a_route_that_is_served_or_sent_alone_is_found() {
    let table = [
        route::Route::new("GET", "/a", Access::Open, |(), _| Box::pin(async { Err(Problem::not_found()) })),
        route::Route::new("GET", "/b", Access::Open, |(), _| Box::pin(async { Err(Problem::not_found()) })),
        route::Route::new("GET", "/b", Access::Open, |(), _| Box::pin(async { Err(Problem::not_found()) })),
    ];
    let sent = ["/b", "/c"].map(|path| ("GET".to_owned(), path.to_owned(), "f".to_owned()));
    let found = differences(&rows("f", &table), &BTreeSet::from(sent));
    let expected = [
        r#"("GET", "/b", "f") stands twice in its table"#,
        r#"("GET", "/a", "f") is served and not in the router"#,
        r#"("GET", "/c", "f") is in the router and not served"#,
    ];
    assert_eq!(found, expected);
}

/// The scopes that an operation's description says it needs.
fn documented_scopes(operation: &Yaml) -> Vec<&str> {
    let description = operation["description"].as_str().unwrap_or_default();
    description.split(NEEDS).skip(1).map(|rest| rest.split('`').next().unwrap_or_default()).collect()
}

/// The routes of which the OpenAPI file says something else than the tables. It names the scope in the description; an
/// operation without credentials has an empty list of them.
fn wrongly_documented(served: &[Served], openapi: &Yaml) -> Vec<String> {
    let mut faults = Vec::new();
    for ((method, path, krate), access) in served {
        let operation = &openapi["paths"][path.as_str()][method.to_lowercase().as_str()];
        let expected = match access {
            Access::Scope(scope) => vec![scope.name()],
            Access::ScopeOrPlatform(scope) => vec![scope.name(), Scope::PlatformAdmin.name()],
            Access::Signature | Access::Open => vec![],
        };
        let documented = documented_scopes(operation);
        if documented != expected {
            faults.push(format!("{krate}: {method} {path} needs {expected:?}, documented is {documented:?}"));
        }
        let open = operation["security"].as_sequence().is_some_and(|schemes| schemes.is_empty());
        if open != expected.is_empty() {
            faults.push(format!("{krate}: {method} {path} needs {expected:?}, `security` says otherwise"));
        }
    }
    faults
}

#[test]
fn every_scope_is_documented_as_the_tables_have_it() {
    assert_eq!(wrongly_documented(&tables(), &yaml("openapi.yaml")), NOTHING);
}

#[test]
fn a_scope_that_is_documented_wrongly_is_found() {
    let openapi = r"
paths:
  /read: { get: { description: 'Needs the scope `orders:read`.' } }
  /written: { post: { description: 'Needs the scope `orders:read`.' } }
  /untold: { post: { description: 'Writes.' } }
  /open: { get: { security: [] } }
  /closed: { get: { summary: Closed } }
  /either: { get: { description: 'Needs the scope `orders:read`.' } }
";
    let openapi: Yaml = yaml_serde::from_str(openapi).unwrap();
    let write = Access::Scope(Scope::OrdersWrite);
    let read = Access::Scope(Scope::OrdersRead);
    let row = |method: &str, path: &str, access| ((method.to_owned(), path.to_owned(), "f".into()), access);
    let served = [
        row("GET", "/read", read),
        row("POST", "/written", write),
        row("POST", "/untold", write),
        row("GET", "/open", Access::Open),
        row("GET", "/closed", Access::Signature),
        row("GET", "/either", Access::ScopeOrPlatform(Scope::OrdersRead)),
    ];
    let expected = [
        r#"f: POST /written needs ["orders:write"], documented is ["orders:read"]"#,
        r#"f: POST /untold needs ["orders:write"], documented is []"#,
        "f: GET /closed needs [], `security` says otherwise",
        r#"f: GET /either needs ["orders:read", "platform:admin"], documented is ["orders:read"]"#,
    ];
    assert_eq!(wrongly_documented(&served, &openapi), expected);
}
