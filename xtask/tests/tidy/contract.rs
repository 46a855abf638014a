//! The OpenAPI file names the error codes and the event types that the code has, and no others.

use std::collections::BTreeSet;

use shared::operations::destinations::EVENT_TYPES;

use crate::routes::METHODS;
use crate::{Yaml, read, sql_files, string, yaml};

/// Sent to one destination when a person asks for it; nobody subscribes to it.
const NOT_SUBSCRIBED: &str = "destination.test";
/// What the names of event types begin with.
const AGGREGATES: [&str; 9] =
    ["customer", "order", "style", "sku", "invoice", "inventory", "inbox", "destination", "reconcile"];

/// The first string literal, in `quote`s, of every call of `function` in which it stands at argument `position`.
fn codes(text: &str, function: &str, position: usize, quote: char) -> BTreeSet<String> {
    let calls = text.split(function).skip(1);
    calls
        .filter_map(|call| {
            let argument = call.splitn(position + 2, ',').nth(position)?.trim().strip_prefix(quote)?;
            let (code, _) = argument.split_once(quote)?;
            Some(code.to_owned())
        })
        .collect()
}

/// Every value that a problem's `error` has in the OpenAPI file.
fn documented_codes(value: &Yaml, found: &mut BTreeSet<String>) {
    match value {
        Yaml::Mapping(members) => {
            found.extend(value["error"]["const"].as_str().map(str::to_owned));
            members.values().for_each(|member| documented_codes(member, found));
        }
        Yaml::Sequence(items) => items.iter().for_each(|item| documented_codes(item, found)),
        _ => {}
    }
}

#[test]
fn every_error_code_is_documented_and_none_besides() {
    let mut raised = codes(&read("shared/src/http/problem.rs"), "Self::new(", 1, '"');
    assert!(raised.contains("unavailable"), "problem.rs is no longer read right: {raised:?}");
    for text in sql_files().values() {
        raised.extend(codes(text, "holdfast.refusal(", 1, '\''));
    }
    assert!(raised.contains("insufficient_ats"), "the SQL is no longer read right: {raised:?}");
    let mut documented = BTreeSet::new();
    documented_codes(&yaml("openapi.yaml")["components"]["schemas"], &mut documented);
    assert_eq!(documented, raised, "openapi.yaml, the code");
}

/// What a 3PL tells us: named as events are, and none of ours.
const OF_WAREHOUSES: [&str; 2] = ["inventory.adjusted", "order.returned"];

/// The event types that the OpenAPI file documents.
fn documented_events(openapi: &Yaml) -> BTreeSet<String> {
    openapi["webhooks"].as_mapping().unwrap().keys().map(string).collect()
}

#[test]
fn every_event_type_is_documented_and_none_besides() {
    let mut emitted = BTreeSet::new();
    for text in sql_files().values() {
        // Where the literals stand is of no matter: no other literal looks like the name of an event.
        emitted.extend(text.split('\'').map(str::to_owned).filter(|literal| {
            let named = literal.split_once('.').is_some_and(|(first, _)| AGGREGATES.contains(&first));
            named
                && !OF_WAREHOUSES.contains(&literal.as_str())
                && literal.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'.')
        }));
    }
    assert!(emitted.contains("sku.ats_changed"), "the SQL is no longer read right: {emitted:?}");
    assert_eq!(documented_events(&yaml("openapi.yaml")), emitted, "openapi.yaml, the code");
}

/// What can be subscribed to on one side only, or stands twice.
fn wrong_subscriptions(types: &[&str], documented: &BTreeSet<String>) -> Vec<String> {
    let mut offered = BTreeSet::new();
    let mut faults = Vec::new();
    for name in types {
        if !offered.insert((*name).to_owned()) {
            faults.push(format!("{name} stands twice"));
        }
    }
    let documented: BTreeSet<_> = documented.iter().filter(|name| *name != NOT_SUBSCRIBED).cloned().collect();
    faults.extend(offered.difference(&documented).map(|name| format!("{name} is not documented")));
    faults.extend(documented.difference(&offered).map(|name| format!("{name} cannot be subscribed to")));
    faults
}

#[test]
fn every_event_type_but_the_test_can_be_subscribed_to() {
    let documented = documented_events(&yaml("openapi.yaml"));
    assert!(documented.contains(NOT_SUBSCRIBED));
    assert_eq!(wrong_subscriptions(&EVENT_TYPES, &documented), crate::NOTHING);
}

#[test]
fn an_event_type_on_one_side_only_is_found() {
    let openapi: Yaml =
        yaml_serde::from_str("webhooks: { order.saved: {}, sku.gone: {}, destination.test: {} }").unwrap();
    let found =
        wrong_subscriptions(&["order.saved", "order.saved", "style.new"], &documented_events(&openapi));
    let expected =
        ["order.saved stands twice", "style.new is not documented", "sku.gone cannot be subscribed to"];
    assert_eq!(found, expected);
}

/// What the gateway answers itself: more requests than a route takes, no sandbox free.
const OF_THE_GATEWAY: [&str; 2] = ["429", "503"];
const GATEWAY_REFUSAL: &str = "#/components/schemas/GatewayRefusal";

/// The operations that do not name an answer of the gateway, or not its form.
fn untold_of_the_gateway(openapi: &Yaml) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, item) in openapi["paths"].as_mapping().unwrap() {
        let operations = item.as_mapping().unwrap().iter();
        for (method, operation) in operations.filter(|(name, _)| METHODS.contains(&string(name).as_str())) {
            for status in OF_THE_GATEWAY {
                let named = operation["responses"][status]["$ref"].as_str().unwrap_or_default();
                let response = &openapi["components"]["responses"][named.rsplit('/').next().unwrap()];
                if response["content"]["application/json"]["schema"]["$ref"] != GATEWAY_REFUSAL {
                    faults.push(format!("{} {} {status}", string(method), string(path)));
                }
            }
        }
    }
    faults
}

#[test]
fn every_operation_names_what_the_gateway_answers_itself() {
    assert_eq!(untold_of_the_gateway(&yaml("openapi.yaml")), crate::NOTHING);
}

#[test]
fn an_answer_of_the_gateway_that_is_not_named_or_has_another_form_is_found() {
    let openapi = r"
paths:
  /orders:
    parameters: []
    get: { responses: { '429': { $ref: '#/components/responses/Throttled' }, '503': { $ref: '#/components/responses/Busy' } } }
    post: { responses: { '503': { $ref: '#/components/responses/Throttled' } } }
components:
  responses:
    Throttled: { content: { application/json: { schema: { $ref: '#/components/schemas/GatewayRefusal' } } } }
    Busy: { content: { application/problem+json: { schema: { $ref: '#/components/schemas/Unavailable' } } } }
";
    let openapi: Yaml = yaml_serde::from_str(openapi).unwrap();
    assert_eq!(untold_of_the_gateway(&openapi), ["get /orders 503", "post /orders 429"]);
}
