//! Holds the documents to the code, and the code to the house rules.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;
use yaml_serde::Value as Yaml;

/// The two commands that a newcomer needs.
const COMMANDS: [&str; 2] = ["cargo xtask dev", "cargo xtask test"];
/// A file that is longer is two files.
const MAX_LINES: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Yaml {
    yaml_serde::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn stdout(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// All files that are in the repository, or would be with the next commit: path and text. What is not text is left out.
fn files() -> BTreeMap<String, String> {
    let listed = stdout("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let files: BTreeMap<String, String> = listed
        .split_terminator('\0')
        .filter_map(|path| Some((path.to_owned(), std::fs::read_to_string(root().join(path)).ok()?)))
        .collect();
    assert!(files.contains_key("Cargo.toml"), "git lists no files of this project");
    files
}

fn metadata() -> Json {
    let cargo = stdout(env!("CARGO"), &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    serde_json::from_str(&cargo).unwrap()
}

/// The crates below a folder, with the names of all that they are built from; what only their tests need is left out.
fn crates(metadata: &Json, folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let folder = root().join(folder);
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| Path::new(package["manifest_path"].as_str().unwrap()).starts_with(&folder))
        .map(|package| {
            let needs = package["dependencies"].as_array().unwrap().iter();
            let needs = needs
                .filter(|needed| needed["kind"] != "dev")
                .map(|needed| needed["name"].as_str().unwrap().to_owned());
            (package["name"].as_str().unwrap().to_owned(), needs.collect())
        })
        .collect()
}

/// A route: method, path, function.
type Route = (String, String, String);

/// What the local router sends where (`cargo lambda watch`).
fn router(metadata: &Json) -> BTreeSet<Route> {
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let paths =
        metadata["metadata"]["lambda"]["watch"]["router"].as_object().expect("a watch router in Cargo.toml");
    let routes = paths.iter().flat_map(|(path, routes)| {
        routes
            .as_array()
            .unwrap()
            .iter()
            .map(|route| (text(&route["method"]), path.clone(), text(&route["function"])))
    });
    routes.collect()
}

/// A value under its CloudFormation tag, if it has one.
fn bare(value: &Yaml) -> &Yaml {
    if let Yaml::Tagged(tagged) = value { &tagged.value } else { value }
}

fn string(value: &Yaml) -> String {
    bare(value).as_str().unwrap_or_else(|| panic!("not a string: {value:?}")).to_owned()
}

/// The template's functions by the crate that their name ends with: resource id and resource.
fn deployed() -> BTreeMap<String, (String, Yaml)> {
    let template = yaml("template.yaml");
    let resources = template["Resources"].as_mapping().unwrap().iter();
    resources
        .filter(|(_, resource)| resource["Type"] == "AWS::Serverless::Function")
        .map(|(id, resource)| {
            let name = string(&resource["Properties"]["FunctionName"]);
            let krate =
                name.strip_prefix("${AWS::StackName}-").expect("names begin with the stack's").to_owned();
            (krate, (string(id), resource.clone()))
        })
        .collect()
}

fn template_routes() -> BTreeSet<Route> {
    let mut routes = BTreeSet::new();
    for (krate, (_, resource)) in deployed() {
        let Some(events) = resource["Properties"]["Events"].as_mapping() else {
            continue;
        };
        for event in events.values().filter(|event| event["Type"] == "HttpApi") {
            let (method, path) = (&event["Properties"]["Method"], &event["Properties"]["Path"]);
            assert!(
                routes.insert((string(method), string(path), krate.clone())),
                "{krate}: a route stands there twice"
            );
        }
    }
    routes
}

fn openapi_routes() -> BTreeSet<(String, String)> {
    let openapi = yaml("openapi.yaml");
    let methods = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
    let paths = openapi["paths"].as_mapping().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            let operations = item.as_mapping().unwrap().keys().map(string);
            let operations = operations.filter(|name| methods.contains(&name.as_str()));
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
fn every_function_crate_is_deployed_under_its_name() {
    let crates = crates(&metadata(), "functions");
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
        assert_eq!(string(&resource["Metadata"]["BuildProperties"]["Binary"]), krate);
    }
}

#[test]
fn functions_import_shared_and_never_each_other() {
    let metadata = metadata();
    let functions = crates(&metadata, "functions");
    let names: BTreeSet<_> = functions.keys().cloned().collect();
    for (krate, needs) in &functions {
        assert!(needs.contains("shared"), "{krate} does not depend on shared");
        let others: Vec<_> = needs.intersection(&names).collect();
        assert!(others.is_empty(), "{krate} depends on {others:?}");
    }
    let shared = &crates(&metadata, "shared")["shared"];
    assert!(shared.is_disjoint(&names), "shared depends on a function");
}

#[test]
fn no_source_file_is_too_long() {
    let files = files();
    let sources = files.iter().filter(|(path, _)| path.ends_with(".rs") || path.ends_with(".sql"));
    let long =
        sources.map(|(path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > MAX_LINES);
    assert_eq!(long.collect::<Vec<_>>(), []);
}

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
    let mut raised = codes(&read("shared/src/error.rs"), "Self::new(", 1, '"');
    assert!(raised.contains("unavailable"), "error.rs is no longer read right: {raised:?}");
    for (path, text) in files() {
        if path.starts_with("migrations/functions/") {
            raised.extend(codes(&text, "holdfast.refusal(", 1, '\''));
        }
    }
    assert!(raised.contains("insufficient_ats"), "the SQL is no longer read right: {raised:?}");
    let mut documented = BTreeSet::new();
    documented_codes(&yaml("openapi.yaml")["components"]["schemas"], &mut documented);
    assert_eq!(documented, raised, "openapi.yaml, the code");
}

/// What the names of event types begin with.
const AGGREGATES: [&str; 7] = ["order", "style", "sku", "invoice", "inventory", "inbox", "destination"];

#[test]
fn every_event_type_is_documented_and_none_besides() {
    let mut emitted = BTreeSet::new();
    for (_, text) in files().iter().filter(|(path, _)| path.starts_with("migrations/functions/")) {
        // Where the literals stand is of no matter: no other literal looks like the name of an event.
        emitted.extend(text.split('\'').map(str::to_owned).filter(|literal| {
            let named = literal.split_once('.').is_some_and(|(first, _)| AGGREGATES.contains(&first));
            named && literal.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'.')
        }));
    }
    assert!(emitted.contains("sku.ats_changed"), "the SQL is no longer read right: {emitted:?}");
    let openapi = yaml("openapi.yaml");
    let documented: BTreeSet<String> = openapi["webhooks"].as_mapping().unwrap().keys().map(string).collect();
    assert_eq!(documented, emitted, "openapi.yaml, the code");
}

#[test]
fn every_function_has_a_sample_event_on_a_route_of_its_own() {
    let (metadata, files) = (metadata(), files());
    let routes = router(&metadata);
    let functions = crates(&metadata, "functions");
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

/// The lines for which `wrong` says so.
fn lines(wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files() {
        let numbered = text.lines().enumerate().filter(|(_, line)| wrong(line));
        found.extend(numbered.map(|(index, line)| format!("{path}:{}: {line}", index + 1)));
    }
    found
}

// The needles are written in halves, so that this file does not hold them itself.

#[test]
fn nothing_is_left_undone() {
    let macros = [concat!("to", "do!("), concat!("unimple", "mented!(")];
    let undone = lines(|line| macros.iter().any(|name| line.contains(name)));
    assert_eq!(undone, Vec::<String>::new());
    let skipped = lines(|line| line.trim_start().starts_with(concat!("#[", "ignore")));
    assert_eq!(skipped, Vec::<String>::new());
}

#[test]
fn no_file_names_a_folder_of_somebodys_machine() {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let named = lines(|line| folders.iter().any(|folder| line.contains(folder)));
    assert_eq!(named, Vec::<String>::new());
}

#[test]
fn the_readme_names_the_two_commands() {
    let files = files();
    let Some(readme) = files.get("README.md") else {
        return;
    };
    for command in COMMANDS {
        assert!(readme.contains(command), "README.md does not name `{command}`");
    }
}

#[test]
fn the_commands_and_the_functions_build_on_the_same_dependencies() {
    // With a package selected, features are united over that one alone, and what both stand on is compiled twice.
    let alias =
        read(".cargo/config.toml").lines().find(|line| line.starts_with("xtask = ")).unwrap().to_owned();
    assert!(!alias.split([' ', '"']).any(|word| ["-p", "--package"].contains(&word)), "{alias}");
}
