//! What fuzzers found, and some hundreds of texts near it, hold what every text must. `PROPTEST_CASES` sets how many.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn kept(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kept").join(name);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort_unstable();
    assert!(!files.is_empty(), "{name} has no text to begin from");
    files.iter().map(|file| std::fs::read(file).expect("a file")).collect()
}

#[test]
fn what_was_found_holds() {
    for (name, holds) in fuzz::ALL {
        for bytes in kept(name) {
            holds(&bytes);
        }
    }
}

/// One of the kept texts with a part of another in it, cut off, or with some bytes changed.
fn near(texts: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let text = prop::sample::select(texts);
    let change = prop_oneof![
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4).prop_map(Change::Bytes),
        any::<prop::sample::Index>().prop_map(Change::Cut),
        (any::<prop::sample::Index>(), ".{0,12}").prop_map(|(at, text)| Change::Insert(at, text)),
    ];
    (text, prop::collection::vec(change, 0..4))
        .prop_map(|(text, changes)| changes.iter().fold(text, Change::apply))
}

#[derive(Clone, Debug)]
enum Change {
    Bytes(Vec<(prop::sample::Index, u8)>),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, String),
}

impl Change {
    fn apply(mut text: Vec<u8>, change: &Self) -> Vec<u8> {
        match change {
            Self::Bytes(bytes) if !text.is_empty() => {
                for (at, byte) in bytes {
                    let at = at.index(text.len());
                    text[at] = *byte;
                }
            }
            Self::Bytes(_) => {}
            Self::Cut(at) => text.truncate(at.index(text.len() + 1)),
            Self::Insert(at, part) => {
                let at = at.index(text.len() + 1);
                text.splice(at..at, part.bytes());
            }
        }
        text
    }
}

#[test]
fn what_is_near_it_holds() {
    for (name, holds) in fuzz::ALL {
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let tried = runner.run(&near(kept(name)), |bytes| {
            holds(&bytes);
            Ok(())
        });
        tried.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
