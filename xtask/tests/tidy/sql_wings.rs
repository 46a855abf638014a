//! The SQL functions stand in numbered folders, the wings of the SQL. One calls only functions of its own folder and of those
//! with a lower number.

use std::collections::{BTreeMap, BTreeSet};

use crate::sql::{DEFINED, without_comments};
use crate::wings::WINGS;
use crate::{NOTHING, sql_files};

/// The wing of `shared` that has no SQL.
const WITHOUT_SQL: &str = "runtime";
/// Calls that go up all the same: from which function to which.
const UPWARDS: [(&str, &str); 0] = [];
/// Functions that call others by a name that they build, with what it begins with. Such a call may go up: `list` knows of a
/// page only how it is called.
const BUILT_NAMES: [(&str, &str); 1] = [("list", "page_of_")];

/// A function, and what it calls.
#[derive(Debug, PartialEq)]
struct Function {
    /// Its folder's.
    number: u32,
    name: String,
    calls: BTreeSet<String>,
    /// Whether it calls something by a name that it builds.
    builds_names: bool,
    body: String,
}

/// The number of a file's folder, and the folder's name without it.
fn wing(path: &str) -> (u32, &str) {
    let folder = path.strip_prefix("migrations/functions/").and_then(|path| path.split('/').next());
    let (number, name) = folder.and_then(|folder| folder.split_once('_')).unwrap_or_else(|| panic!("{path}"));
    (number.parse().unwrap_or_else(|_| panic!("{path} is in no numbered folder")), name)
}

/// The names of functions of ours that a text calls. A type's name has no parenthesis after it.
fn calls(text: &str) -> BTreeSet<String> {
    let after = text.split("holdfast.").skip(1);
    let names = after.filter_map(|after| {
        let end = after.find(|next: char| !next.is_ascii_alphanumeric() && next != '_')?;
        after[end..].starts_with('(').then(|| after[..end].to_owned())
    });
    names.collect()
}

/// The functions that a file defines. What stands behind one, such as a grant, counts as a part of it.
fn functions(path: &str, text: &str) -> Vec<Function> {
    let (number, _) = wing(path);
    let text = without_comments(text);
    let read = |definition: &str| {
        let (name, body) =
            definition.split_once('(').unwrap_or_else(|| panic!("{path}: a function without parameters"));
        Function {
            number,
            name: name.trim().to_owned(),
            calls: calls(body),
            builds_names: body.contains("holdfast.%"),
            body: body.to_owned(),
        }
    };
    text.split(DEFINED).skip(1).map(read).collect()
}

/// Calls that go up, or nowhere.
fn wrong_calls(functions: &[Function]) -> Vec<String> {
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    for function in functions {
        let number = numbers.entry(&function.name).or_insert(function.number);
        *number = function.number.max(*number);
    }
    let mut faults = Vec::new();
    for Function { number, name, calls, builds_names, body } in functions {
        for called in calls {
            match numbers.get(called.as_str()) {
                None => faults.push(format!("{name} calls {called}, which is not defined")),
                Some(other) if other > number && !UPWARDS.contains(&(name.as_str(), called.as_str())) => {
                    faults.push(format!("{name} ({number}) calls {called} ({other})"));
                }
                Some(_) => {}
            }
        }
        let built = BUILT_NAMES.iter().find(|(builder, _)| builder == name);
        if *builds_names != built.is_some_and(|(_, begin)| body.contains(&format!("'{begin}'"))) {
            faults.push(format!("{name} builds the name of a function, or no longer does"));
        }
    }
    faults
}

#[test]
fn a_function_calls_nothing_that_stands_above_it() {
    let files = sql_files();
    let functions: Vec<Function> = files.iter().flat_map(|(path, text)| functions(path, text)).collect();
    let promise = functions.iter().find(|function| function.name == "promise").expect("promise");
    assert!(promise.calls.contains("move"), "the SQL is no longer read right: {promise:?}");
    assert_eq!(wrong_calls(&functions), NOTHING);
}

#[test]
fn the_folders_are_the_wings_of_shared() {
    let files = sql_files();
    let folders: BTreeMap<u32, &str> = files.keys().map(|path| wing(path)).collect();
    let names: BTreeSet<&str> = files.keys().map(|path| wing(path).1).collect();
    assert_eq!(folders.len(), names.len(), "two folders have one number: {folders:?}");
    assert_eq!(folders.keys().copied().collect::<Vec<_>>(), (1..=7).collect::<Vec<_>>());
    let wings = WINGS.iter().map(|(wing, ..)| *wing).filter(|wing| *wing != WITHOUT_SQL);
    assert_eq!(names, wings.collect(), "migrations/functions, shared/src");
}

#[test]
fn a_call_upwards_and_a_call_of_nothing_are_found() {
    let define = |name: &str, body: &str| {
        format!("create or replace function holdfast.{name}(p_x jsonb) as $$ {body} $$;\n")
    };
    let low = [
        define("render", "select row(1)::holdfast.event -- holdfast.comment()"),
        define("push", "select holdfast.render(p_x), holdfast.promise(p_x)"),
        define("list", "execute format('select holdfast.%I()', 'page_of_' || x)"),
    ];
    let high = [
        define("promise", "perform holdfast.push(holdfast.wild(p_x))"),
        define("apply", "perform holdfast.redact(p_x)"),
        define("guess", "execute format('select holdfast.%I()', x)"),
    ];
    let highest = define("redact", "");
    let files = [("2_a/x.sql", low.concat()), ("5_b/y.sql", high.concat()), ("7_c/z.sql", highest)];
    let read = files.iter().flat_map(|(path, text)| functions(&format!("migrations/functions/{path}"), text));
    let expected = [
        "push (2) calls promise (5)",
        "promise calls wild, which is not defined",
        "apply (5) calls redact (7)",
        "guess builds the name of a function, or no longer does",
    ];
    assert_eq!(wrong_calls(&read.collect::<Vec<_>>()), expected);
}
