//! What the Rust code calls in the database is there and takes what it is given.

use std::collections::BTreeMap;

use crate::rust::Source;
use crate::{NOTHING, files, sql_files};

/// What stands before the name of every function of ours.
const SCHEMA: &str = "holdfast.";
/// How every function is defined.
pub const DEFINED: &str = "create or replace function holdfast.";
/// What is called with other parameters than one `jsonb`, by the types of these. `receive` takes the raw bytes beside its
/// argument, since inside JSON they would be encoded twice; `json` makes the argument of all others.
const OTHERWISE: [(&str, &[&str]); 2] = [("receive", &["jsonb", "bytea"]), ("json", &["bytea"])];
/// A function with more parameters takes one `jsonb`, whose members have names.
const MAX_PARAMETERS: usize = 7;

/// A function of the schema.
#[derive(Debug, PartialEq)]
struct Function {
    name: String,
    /// As they are written, but for white space.
    parameters: Vec<String>,
}

impl Function {
    /// What a call gives; what only comes out is left out.
    fn taken(&self) -> impl Iterator<Item = &String> {
        self.parameters.iter().filter(|parameter| parameter.split(' ').next() != Some("out"))
    }
}

/// The text with comments blanked out. What is in quotes is kept, dashes in it too.
pub fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, keep) = if rest.starts_with("--") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with("/*") {
            (rest.find("*/").map_or(rest.len(), |end| end + 2), false)
        } else if first == '\'' {
            (rest[1..].find('\'').map_or(rest.len(), |end| end + 2), true)
        } else {
            (first.len_utf8(), true)
        };
        kept.push_str(if keep { &rest[..length] } else { " " });
        rest = &rest[length..];
    }
    kept
}

/// The parts of the text up to the parenthesis that ends it; commas in nested parentheses or in quotes part nothing.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut depth, mut quoted) = (0, false);
    for next in text.chars() {
        match next {
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth == 0 => break,
            ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(next);
    }
    parts.push(part);
    let words = |part: String| part.split_whitespace().collect::<Vec<_>>().join(" ");
    parts.into_iter().map(words).filter(|part| !part.is_empty()).collect()
}

/// The functions that a text defines.
fn functions(text: &str) -> Vec<Function> {
    let text = without_comments(text);
    let read = |definition: &str| {
        let (name, rest) = definition.split_once('(').expect("parameters in parentheses");
        Function { name: name.trim().to_owned(), parameters: parts(rest) }
    };
    text.split(DEFINED).skip(1).map(read).collect()
}

/// How many functions and procedures a text creates, however that is written.
fn created(text: &str) -> usize {
    let text = without_comments(text).to_lowercase();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = |kind: &str| {
        ["create", "create or replace"].map(|head| text.matches(&format!("{head} {kind} ")).count())
    };
    [count("function"), count("procedure")].concat().iter().sum()
}

/// All functions, by name; of one name there can be several.
fn defined() -> BTreeMap<String, Vec<Function>> {
    let mut defined: BTreeMap<String, Vec<Function>> = BTreeMap::new();
    for (path, text) in sql_files() {
        let functions = functions(&text);
        assert_eq!(functions.len(), created(&text), "{path} defines a function in another way");
        for function in functions {
            defined.entry(function.name.clone()).or_default().push(function);
        }
    }
    defined
}

/// The functions that a text literal calls, or why it cannot be read: it is the name alone, or a statement with a call.
fn called(literal: &str) -> Vec<Result<String, String>> {
    let mut found = Vec::new();
    for (at, _) in literal.match_indices(SCHEMA) {
        let (before, after) = (&literal[..at], &literal[at + SCHEMA.len()..]);
        // A type's name.
        if before.ends_with("::") {
            continue;
        }
        let end =
            after.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        let whole = before.is_empty() && after.is_empty();
        if !name.is_empty() && (whole || after.starts_with('(')) {
            found.push(Ok(name.to_owned()));
        } else {
            found.push(Err(literal.to_owned()));
        }
    }
    found
}

/// Whether a function takes what it is given.
fn fits(function: &Function) -> bool {
    let parameters: Vec<Vec<&str>> =
        function.taken().map(|parameter| parameter.split(' ').collect()).collect();
    let expected = OTHERWISE.iter().find(|(name, _)| *name == function.name);
    let expected = expected.map_or(["jsonb"].as_slice(), |(_, types)| types);
    parameters.len() == expected.len()
        && parameters.iter().zip(expected).all(|(parameter, kind)| match parameter.as_slice() {
            [name, have] => name.starts_with("p_") && have == kind,
            _ => false,
        })
}

/// What a Rust file calls that is not there, or is not called that way.
fn wrong_calls(path: &str, text: &str, defined: &BTreeMap<String, Vec<Function>>) -> Vec<String> {
    let mut faults = Vec::new();
    for literal in Source::without_tests(text).literals {
        for name in called(&literal) {
            let name = match name {
                Ok(name) => name,
                Err(literal) => {
                    faults.push(format!("{path}: no name of a function can be read in {literal:?}"));
                    continue;
                }
            };
            let Some(functions) = defined.get(&name) else {
                faults.push(format!("{path}: {name} is not defined"));
                continue;
            };
            for function in functions.iter().filter(|function| !fits(function)) {
                faults.push(format!("{path}: {name} takes ({})", function.parameters.join(", ")));
            }
        }
    }
    faults
}

/// The functions with too many parameters.
fn too_wide(functions: &[Function]) -> Vec<String> {
    let wide = functions.iter().filter(|function| function.taken().count() > MAX_PARAMETERS);
    wide.map(|function| format!("{} takes {}", function.name, function.taken().count())).collect()
}

#[test]
fn what_is_called_is_defined_and_takes_one_argument() {
    let defined = defined();
    assert!(defined.contains_key("claim"), "the SQL is no longer read right: {defined:?}");
    let (mut faults, mut calls) = (Vec::new(), 0);
    for (path, text) in files().iter().filter(|(path, _)| path.ends_with(".rs")) {
        let in_function = path.starts_with("functions/") && path.contains("/src/");
        if in_function || path.starts_with("shared/src/") {
            let literals = Source::without_tests(text).literals;
            calls += literals.iter().map(|literal| called(literal).len()).sum::<usize>();
            faults.extend(wrong_calls(path, text, &defined));
        }
    }
    assert!(calls > 20, "the Rust is no longer read right: {calls} calls");
    assert_eq!(faults, NOTHING, "{} of {calls} calls", faults.len());
}

#[test]
fn no_function_takes_too_many_parameters() {
    let faults: Vec<String> = defined().values().flat_map(|functions| too_wide(functions)).collect();
    assert_eq!(faults, NOTHING);
}

/// Made up: comments, defaults, nested parentheses and parameters over several lines.
const SQL: &str = "
-- create or replace function holdfast.comment(p_x jsonb)
create or replace function holdfast.save(p_call jsonb) returns text as $$ select '--', holdfast.wide(1) $$;
create or replace function holdfast.wide(p_a int, p_b numeric(10, 2) default 0,
  p_c text default coalesce('a,(', ')'), p_d int, /* , */ inout p_e int,
  p_f int, out p_g int, -- , not one
  p_h int, p_i int)
as $$ $$;
create or replace function holdfast.none() returns void as $$ $$;
create or replace function holdfast.sweep(p_call jsonb, out id uuid) as $$ $$;
create or replace function holdfast.receive(p_delivery jsonb, p_body bytea) returns text as $$ $$;
";

#[test]
fn parameters_are_read_and_too_many_are_found() {
    let functions = functions(SQL);
    let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["save", "wide", "none", "sweep", "receive"]);
    assert_eq!(functions[0].parameters, ["p_call jsonb"]);
    let wide = [
        "p_a int",
        "p_b numeric(10, 2) default 0",
        "p_c text default coalesce('a,(', ')')",
        "p_d int",
        "inout p_e int",
        "p_f int",
        "out p_g int",
        "p_h int",
        "p_i int",
    ];
    assert_eq!(functions[1].parameters, wide);
    assert_eq!(functions[2].parameters, NOTHING);
    assert_eq!(too_wide(&functions), ["wide takes 8"]);
    assert_eq!(created(SQL), 5);
    assert_eq!(created("CREATE FUNCTION a() ; create or\nreplace procedure b() ; drop function c;"), 2);
}

#[test]
fn a_wrong_call_is_found() {
    let defined =
        functions(SQL).into_iter().map(|function| (function.name.clone(), vec![function])).collect();
    let rust = r#"
        /// `holdfast.comment`
        fn f() {
            Statement::new("holdfast.save", x);
            Statement::new("holdfast.sweep", x);
            Statement::new("holdfast.wild", x);
            format!("select holdfast.none(), holdfast.receive({x}, {y})::holdfast.event");
            format!("holdfast.list_{kind}");
        }
        #[cfg(test)]
        mod tests { fn g() { Statement::new("holdfast.test", x) } }
    "#;
    let expected = [
        "a.rs: wild is not defined",
        "a.rs: none takes ()",
        "a.rs: no name of a function can be read in \"holdfast.list_{kind}\"",
    ];
    assert_eq!(wrong_calls("a.rs", rust, &defined), expected);
}
