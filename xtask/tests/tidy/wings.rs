//! The wings of `shared`: which may import which, and which files touch neither the database nor the network.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust::{Path, Source, only_modules};
use crate::{NOTHING, files};

/// The wings from the bottom up: name, height, and what it may import. Those of one height do not know each other.
pub const WINGS: [(&str, u8, &[&str]); 8] = [
    ("runtime", 0, &[]),
    ("db", 1, &["runtime"]),
    ("http", 2, &["db", "runtime"]),
    ("delivery", 2, &["db", "runtime"]),
    ("idempotency", 3, &["http", "db", "runtime"]),
    ("webhooks", 3, &["http", "db", "runtime"]),
    ("domain", 4, &["idempotency", "http", "db", "runtime"]),
    ("operations", 4, &["idempotency", "http", "db", "runtime", "delivery", "webhooks"]),
];

/// Parsers and renderers: what they make depends on what they are given and on nothing else.
const PURE: [&str; 18] = [
    "http/event.rs",
    "http/json.rs",
    "http/fields.rs",
    "http/route.rs",
    "idempotency/key.rs",
    "idempotency/precondition.rs",
    "webhooks/members.rs",
    "webhooks/minor_units.rs",
    "webhooks/reading.rs",
    "webhooks/signature.rs",
    "webhooks/stripe.rs",
    "webhooks/shopify.rs",
    "webhooks/threepl.rs",
    "delivery/address.rs",
    "delivery/attempt.rs",
    "delivery/email.rs",
    "delivery/fetch.rs",
    "delivery/shopify_push.rs",
];

/// These say what is to be called, and leave the call to others; the files of `domain` as well.
const STATEMENTS_ONLY: [&str; 2] = ["operations/destinations.rs", "operations/outbox_admin.rs"];
/// The one file of `domain` that has a connection in its hands.
const READS: &str = "domain/reads.rs";

/// The files of `shared/src` by their path below it, with the paths that each names.
type Tree = BTreeMap<String, BTreeSet<Path>>;

fn sources() -> BTreeMap<String, String> {
    let below = |path: String| path.strip_prefix("shared/src/").map(str::to_owned);
    let sources = files().into_iter().filter_map(|(path, text)| Some((below(path)?, text)));
    sources.filter(|(path, _)| path.ends_with(".rs")).collect()
}

fn tree(sources: &BTreeMap<String, String>) -> Tree {
    let whole = |(path, text): (&String, &String)| {
        let paths = Source::whole(text).paths.into_iter().map(|named| from_root(path, named));
        (path.clone(), paths.collect())
    };
    sources.iter().map(whole).collect()
}

fn wing_of(file: &str) -> Option<&str> {
    file.split_once('/').map(|(wing, _)| wing)
}

fn is_wing(name: &str) -> bool {
    WINGS.iter().any(|(wing, ..)| *wing == name)
}

/// A path that begins with `super` or `self`, as one that begins with `crate`. Where in the file it stands is not known, so
/// how far it goes up is not counted: where its first name is a wing's, it means that wing; else something in the own wing.
fn from_root(file: &str, path: Path) -> Path {
    let upwards = path.iter().take_while(|name| ["super", "self"].contains(&name.as_str())).count();
    if upwards == 0 {
        return path;
    }
    let rest = &path[upwards..];
    let wing = if rest.first().is_some_and(|name| is_wing(name)) { None } else { wing_of(file) };
    let names = ["crate"].into_iter().chain(wing).map(str::to_owned);
    names.chain(rest.iter().cloned()).collect()
}

fn begins_with(path: &Path, names: &[&str]) -> bool {
    path.len() >= names.len() && path.iter().zip(names).all(|(have, want)| have == want)
}

/// Imports that go up or across.
fn wrong_directions(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, paths) in tree {
        let Some((own, _, allowed)) = WINGS.iter().find(|(wing, ..)| Some(*wing) == wing_of(file)) else {
            if file != "lib.rs" {
                faults.push(format!("{file} is in no wing"));
            }
            continue;
        };
        let imported = paths.iter().filter(|path| path[0] == "crate").filter_map(|path| path.get(1));
        let imported: BTreeSet<&String> = imported.filter(|name| is_wing(name)).collect();
        for wing in imported.into_iter().filter(|wing| *wing != own && !allowed.contains(&wing.as_str())) {
            faults.push(format!("{file} imports {wing}"));
        }
    }
    faults
}

/// The file that a path leads to.
fn target(tree: &Tree, path: &Path) -> Option<String> {
    let names = path.strip_prefix(["crate".to_owned()].as_slice())?;
    let file = |names: &[String]| {
        let stem = names.join("/");
        [format!("{stem}.rs"), format!("{stem}/mod.rs")].into_iter().find(|file| tree.contains_key(file))
    };
    (1..=names.len()).rev().find_map(|length| file(&names[..length]))
}

/// What imports each other in a circle, if anything does: the files on the way, the first again at the end.
fn circle(tree: &Tree) -> Vec<String> {
    let edges: BTreeMap<&String, BTreeSet<String>> = tree
        .iter()
        .map(|(file, paths)| {
            let targets = paths.iter().filter_map(|path| target(tree, path));
            (file, targets.filter(|target| target != file).collect())
        })
        .collect();
    let mut done = BTreeSet::new();
    tree.keys().find_map(|file| walk(file, &edges, &mut Vec::new(), &mut done)).unwrap_or_default()
}

fn walk(
    file: &String,
    edges: &BTreeMap<&String, BTreeSet<String>>,
    way: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(start) = way.iter().position(|passed| passed == file) {
        return Some(way[start..].iter().chain([file]).cloned().collect());
    }
    if done.contains(file) {
        return None;
    }
    way.push(file.clone());
    let found = edges[file].iter().find_map(|next| walk(next, edges, way, done));
    way.pop();
    done.insert(file.clone());
    found
}

fn is_database(path: &Path) -> bool {
    path[0] == "sqlx" || begins_with(path, &["crate", "db"])
}

/// `runtime` stands below the database: it reads the URL of one and opens none.
fn touches_database(file: &str, tree: &Tree) -> bool {
    wing_of(file) != Some("runtime") && tree[file].iter().any(is_database)
}

/// A type begins with a capital letter.
fn names_a_type(path: &Path) -> bool {
    path.iter().any(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// Parsers and renderers that reach for the database: they name it, or they take more than a type from a file that names
/// it.
fn impure(tree: &Tree, pure: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in pure {
        let Some(paths) = tree.get(*file) else {
            faults.push(format!("{file} is not there"));
            continue;
        };
        for path in paths {
            let other = target(tree, path).filter(|other| other != file);
            let through = other.is_some_and(|other| touches_database(&other, tree));
            if is_database(path) || (through && !names_a_type(path)) {
                faults.push(format!("{file} imports {}", path.join("::")));
            }
        }
    }
    faults
}

/// Files that should only make statements and have more of the database than that.
fn more_than_statements(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    let domain = tree.keys().filter(|file| wing_of(file) == Some("domain")).map(String::as_str);
    for file in domain.chain(STATEMENTS_ONLY) {
        let Some(paths) = tree.get(file) else {
            faults.push(format!("{file} is not there"));
            continue;
        };
        for path in paths {
            let statement = begins_with(path, &["crate", "db", "call", "Statement"]);
            let connection = file == READS && begins_with(path, &["crate", "db", "connection"]);
            if is_database(path) && !statement && !connection {
                faults.push(format!("{file} imports {}", path.join("::")));
            }
        }
    }
    faults
}

/// Files that have an HTTP client and should not.
fn callers(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, paths) in tree {
        for path in paths.iter().filter(|path| path[0] == "reqwest") {
            let calls = ["http/jwt.rs", "runtime/aws.rs"].contains(&file.as_str())
                || wing_of(file) == Some("delivery");
            let address = file == "runtime/config.rs" && begins_with(path, &["reqwest", "Url"]);
            if !calls && !address {
                faults.push(format!("{file} imports {}", path.join("::")));
            }
        }
    }
    faults
}

/// Whether the comment at the head of a wing says what it promises and what it may touch.
fn introduces_itself(text: &str) -> bool {
    let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let head = head.join("\n");
    head.contains("Promises") && head.contains("May touch")
}

#[test]
fn every_folder_is_a_wing_and_says_what_it_is() {
    for (index, (wing, height, allowed)) in WINGS.iter().enumerate() {
        for below in *allowed {
            let lower = WINGS[..index].iter().find(|(name, ..)| name == below);
            assert!(
                lower.is_some_and(|(_, lower, _)| lower < height),
                "{wing} may import {below}, not below it"
            );
        }
    }
    let sources = sources();
    let folders: BTreeSet<&str> = sources.keys().filter_map(|path| wing_of(path)).collect();
    assert_eq!(folders, WINGS.iter().map(|(wing, ..)| *wing).collect(), "shared/src, the table of wings");
    for wing in folders {
        let text = sources.get(&format!("{wing}/mod.rs")).unwrap_or_else(|| panic!("{wing} has no mod.rs"));
        assert!(introduces_itself(text), "{wing}/mod.rs does not begin with what it promises and may touch");
    }
    // What these files passed on under another name would be imported without being seen.
    let heads = sources.iter().filter(|(path, _)| *path == "lib.rs" || path.ends_with("mod.rs"));
    for (path, text) in heads {
        assert!(only_modules(text), "{path} holds more than modules");
    }
}

#[test]
fn a_wing_imports_what_is_below_it_and_nothing_in_a_circle() {
    let tree = tree(&sources());
    let reads = target(&tree, &["crate", "db", "call", "Statement"].map(str::to_owned).to_vec());
    assert_eq!(reads.as_deref(), Some("db/call.rs"), "the imports are no longer read right");
    assert_eq!(wrong_directions(&tree), NOTHING);
    assert_eq!(circle(&tree), NOTHING);
}

#[test]
fn parsers_and_renderers_touch_no_database() {
    assert_eq!(impure(&tree(&sources()), &PURE), NOTHING);
}

#[test]
fn the_domain_makes_statements_and_sends_none() {
    assert_eq!(more_than_statements(&tree(&sources())), NOTHING);
}

#[test]
fn only_those_that_call_have_an_http_client() {
    assert_eq!(callers(&tree(&sources())), NOTHING);
}

/// A made-up tree.
fn made_up(files: &[(&str, &str)]) -> Tree {
    tree(&files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
}

#[test]
fn an_import_upwards_or_across_is_found() {
    let tree = made_up(&[
        ("db/call.rs", "use crate::{http::event::Answer, runtime::config};"),
        ("delivery/outbox.rs", "fn f() { crate::http::json::parse() }"),
        (
            "http/auth.rs",
            "use crate::db::call; #[cfg(test)] mod tests { use super::super::super::domain::orders; }",
        ),
        ("loose.rs", ""),
        ("operations/exceptions.rs", "use crate::webhooks::inbox; //! crate::domain"),
    ]);
    let expected = [
        "db/call.rs imports http",
        "delivery/outbox.rs imports http",
        "http/auth.rs imports domain",
        "loose.rs is in no wing",
    ];
    assert_eq!(wrong_directions(&tree), expected);
}

#[test]
fn a_circle_is_found() {
    let circular = made_up(&[
        ("db/a.rs", "use crate::db::b::B;"),
        ("db/b.rs", "use super::c;"),
        ("db/c.rs", "use crate::{db::a, runtime::d};"),
        ("runtime/d.rs", "use crate::runtime::d::itself; use super::*;"),
    ]);
    assert_eq!(circle(&circular), ["db/a.rs", "db/b.rs", "db/c.rs", "db/a.rs"]);
    let straight = made_up(&[
        ("db/a.rs", "use crate::{db::b, db::c};"),
        ("db/b.rs", "use crate::db::c::C;"),
        ("db/c.rs", ""),
    ]);
    assert_eq!(circle(&straight), NOTHING);
}

#[test]
fn a_parser_that_reaches_for_the_database_is_found() {
    let tree = made_up(&[
        ("delivery/email.rs", "use crate::delivery::outbox::{Claimed, claim};"),
        ("delivery/outbox.rs", "use sqlx::Row;"),
        ("http/event.rs", "use crate::db::call::Statement;"),
        ("http/json.rs", "fn f(row: sqlx::Row) {}"),
    ]);
    let pure = ["http/event.rs", "http/json.rs", "delivery/email.rs", "http/fields.rs"];
    let expected = [
        "http/event.rs imports crate::db::call::Statement",
        "http/json.rs imports sqlx::Row",
        "delivery/email.rs imports crate::delivery::outbox::claim",
        "http/fields.rs is not there",
    ];
    assert_eq!(impure(&tree, &pure), expected);
}

#[test]
fn more_than_a_statement_and_a_client_are_found() {
    let tree = made_up(&[
        ("domain/orders.rs", "use crate::db::call::{Statement, send};"),
        ("domain/reads.rs", "use crate::db::connection::Db; use sqlx::Row;"),
        ("operations/destinations.rs", "use crate::db::connection::Db;"),
        ("operations/outbox_admin.rs", "fn f() { reqwest::get() }"),
        ("runtime/config.rs", "use reqwest::{Client, Url};"),
        ("delivery/attempt.rs", "use reqwest::Client;"),
    ]);
    let statements = [
        "domain/orders.rs imports crate::db::call::send",
        "domain/reads.rs imports sqlx::Row",
        "operations/destinations.rs imports crate::db::connection::Db",
    ];
    assert_eq!(more_than_statements(&tree), statements);
    let clients =
        ["operations/outbox_admin.rs imports reqwest::get", "runtime/config.rs imports reqwest::Client"];
    assert_eq!(callers(&tree), clients);
}

#[test]
fn a_wing_that_does_not_introduce_itself_is_found() {
    assert!(introduces_itself("//! A wing.\n//! Promises: much.\n//! May touch: nothing.\npub mod a;\n"));
    assert!(!introduces_itself("//! A wing.\n//! Promises: much.\npub mod a;\n//! May touch: nothing.\n"));
}
