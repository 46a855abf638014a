//! The routes stand in four places: the template, the local router, the OpenAPI file and the functions' own tables (these
//! are in `served.rs`).

use std::collections::BTreeSet;

use crate::{Json, Route, Yaml, crates_in, deployed, files, metadata, router, string, yaml};

fn template_routes() -> BTreeSet<Route> {
    let mut routes = BTreeSet::new();
    for (krate, (_, resource)) in deployed() {
        let Some(events) = resource["Properties"]["Events"].as_mapping() else {
            continue;
        };
        // The event without a path is for what is no route: a function says so in the form of our errors.
        let routed = |event: &&Yaml| event["Type"] == "HttpApi" && !event["Properties"]["Path"].is_null();
        for event in events.values().filter(routed) {
            let (method, path) = (&event["Properties"]["Method"], &event["Properties"]["Path"]);
            assert!(
                routes.insert((string(method), string(path), krate.clone())),
                "{krate}: a route stands there twice"
            );
        }
    }
    routes
}

#[test]
fn what_is_no_route_is_answered_in_the_form_of_our_errors() {
    let unrouted = |resource: &Yaml| {
        let events =
            resource["Properties"]["Events"].as_mapping().into_iter().flat_map(|events| events.values());
        events.filter(|event| event["Type"] == "HttpApi" && event["Properties"]["Path"].is_null()).count()
    };
    let answering: Vec<_> = deployed()
        .into_iter()
        .filter(|(_, (_, resource))| unrouted(resource) > 0)
        .map(|(krate, _)| krate)
        .collect();
    assert_eq!(answering, ["query"]);
}

/// What a path of an OpenAPI file has operations under.
pub const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

fn openapi_routes() -> BTreeSet<(String, String)> {
    let openapi = yaml("openapi.yaml");
    let paths = openapi["paths"].as_mapping().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            let operations = item.as_mapping().unwrap().keys().map(string);
            let operations = operations.filter(|name| METHODS.contains(&name.as_str()));
            operations.map(|method| (method.to_uppercase(), string(path))).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_deployed_the_local_and_the_documented_routes_are_the_same() {
    let local = router(&metadata());
    assert!(!local.is_empty());
    assert_eq!(template_routes(), local, "template.yaml, the watch router in Cargo.toml");
    let local: BTreeSet<_> = local.into_iter().map(|(method, path, _)| (method, path)).collect();
    assert_eq!(openapi_routes(), local, "openapi.yaml, the watch router in Cargo.toml");
}

#[test]
fn every_function_has_a_sample_event_on_a_route_of_its_own() {
    let (metadata, files) = (metadata(), files());
    let routes = router(&metadata);
    let functions = crates_in(&metadata, "functions");
    let mut sampled = BTreeSet::new();
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with("events/")) {
        let event: Json = serde_json::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let name = path.trim_start_matches("events/").trim_end_matches(".json");
        let named = functions.keys().filter(|krate| name == *krate || name.starts_with(&format!("{krate}-")));
        let krate =
            named.max_by_key(|krate| krate.len()).unwrap_or_else(|| panic!("{path} names no function"));
        if let Some(route) = event["routeKey"].as_str() {
            let (method, route) = route.split_once(' ').unwrap();
            let route = (method.to_owned(), route.to_owned(), krate.clone());
            assert!(routes.contains(&route), "{path}: no such route");
        }
        sampled.insert(krate);
    }
    assert_eq!(sampled, functions.keys().collect(), "events/, functions/");
}
