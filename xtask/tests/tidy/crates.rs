//! What is built from what.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Json, NOTHING, crates_in, deployed, metadata, read, string};

/// What no function is built from: it would carry tests, tools or their dependencies into what is deployed.
const TOOLS: [&str; 4] = ["testing", "holdfast", "xtask", "bench"];
/// It does in the cloud what the operator's program does elsewhere.
const CARRIES_MIGRATIONS: (&str, &str) = ("migrate", "holdfast");
/// The functions that may call AWS beside being called by it. `reconcile` and `ses-events` are to come.
const CALL_AWS: [&str; 4] = ["reaper", "relay", "reconcile", "ses-events"];

#[test]
fn every_function_crate_is_deployed_under_its_name() {
    let crates = crates_in(&metadata(), "functions");
    let deployed = deployed();
    assert!(!crates.is_empty());
    assert_eq!(
        deployed.keys().collect::<Vec<_>>(),
        crates.keys().collect::<Vec<_>>(),
        "template.yaml, functions/"
    );
    for (krate, (id, resource)) in deployed {
        let pascal: String = krate.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
        assert_eq!(id, pascal, "the resource of {krate}");
        assert_eq!(string(&resource["Properties"]["CodeUri"]), format!(".local/package/{krate}"));
    }
}

#[test]
fn functions_import_shared_and_never_each_other() {
    let metadata = metadata();
    let functions = crates_in(&metadata, "functions");
    let names: BTreeSet<_> = functions.keys().cloned().collect();
    for (krate, needs) in &functions {
        assert!(needs.contains("shared"), "{krate} does not depend on shared");
        let others: Vec<_> = needs.intersection(&names).collect();
        assert!(others.is_empty(), "{krate} depends on {others:?}");
    }
    let shared = &crates_in(&metadata, "shared")["shared"];
    assert!(shared.is_disjoint(&names), "shared depends on a function");
}

/// What the functions, or the crates that they stand on, are built from and should not be.
fn wrong_needs(crates: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for (krate, needs) in crates {
        let tools = TOOLS.iter().filter(|tool| needs.contains(**tool));
        let tools = tools.filter(|tool| (krate.as_str(), **tool) != CARRIES_MIGRATIONS);
        faults.extend(tools.map(|tool| format!("{krate} depends on {tool}")));
        if needs.contains("aws") && !CALL_AWS.contains(&krate.as_str()) {
            faults.push(format!("{krate} depends on aws"));
        }
    }
    faults
}

/// The names of a crate's features; cargo names none for a crate without a `[features]` table.
fn features(metadata: &Json, krate: &str) -> Vec<String> {
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == krate).expect("a crate of this name");
    package["features"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn no_function_is_built_from_the_tools() {
    let metadata = metadata();
    let functions = crates_in(&metadata, "functions");
    assert!(functions["relay"].contains("aws"), "dependencies are no longer read right");
    assert_eq!(wrong_needs(&functions), NOTHING);
    // What a function stands on is built into it as well.
    assert_eq!(wrong_needs(&crates_in(&metadata, "shared")), NOTHING);
    assert_eq!(wrong_needs(&crates_in(&metadata, "aws")), NOTHING);
}

#[test]
fn shared_is_the_same_for_all() {
    // A feature that one crate sets would change what the others are built from.
    assert_eq!(features(&metadata(), "shared"), NOTHING);
}

#[test]
fn a_wrong_dependency_and_a_feature_are_found() {
    let needs = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let crates = BTreeMap::from([
        ("query".to_owned(), needs(&["aws", "shared"])),
        ("relay".to_owned(), needs(&["aws", "testing"])),
    ]);
    assert_eq!(wrong_needs(&crates), ["query depends on aws", "relay depends on testing"]);
    let metadata = serde_json::json!({"packages": [{"name": "shared", "features": {"testing": []}}]});
    assert_eq!(features(&metadata, "shared"), ["testing"]);
}

#[test]
fn the_commands_and_the_functions_build_on_the_same_dependencies() {
    // With a package selected, features are united over that one alone, and what both stand on is compiled twice.
    let alias =
        read(".cargo/config.toml").lines().find(|line| line.starts_with("xtask = ")).unwrap().to_owned();
    assert!(!alias.split([' ', '"']).any(|word| ["-p", "--package"].contains(&word)), "{alias}");
}
