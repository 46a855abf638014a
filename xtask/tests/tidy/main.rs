//! Holds the documents to the code, and the code to the house rules. Here is what the checks read; each file beside this
//! one holds the checks of one subject. A check is a function that returns what is wrong, so that a second test can show
//! on a made-up text that it finds a fault.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alarms;
mod contract;
mod crates;
mod left_out;
mod routes;
mod rust;
mod served;
mod sql;
mod sql_wings;
mod template;
mod wings;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;
use yaml_serde::Value as Yaml;

/// What a check returns when nothing is wrong.
const NOTHING: [&str; 0] = [];

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

/// The SQL that defines functions: path and text.
fn sql_files() -> BTreeMap<String, String> {
    let files = files().into_iter();
    files.filter(|(path, _)| path.starts_with("migrations/functions/") && path.ends_with(".sql")).collect()
}

fn metadata() -> Json {
    let cargo = stdout(env!("CARGO"), &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    serde_json::from_str(&cargo).unwrap()
}

/// The crates below a folder, with the names of all that they are built from; what only their tests need is left out.
fn crates_in(metadata: &Json, folder: &str) -> BTreeMap<String, BTreeSet<String>> {
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
