//! Published test vectors: they stand beside the project and are read where they are. A test whose vectors are not there
//! says so, and leaves its name in the file that `HOLDFAST_TEST_LEFT_OUT` names.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// A file of the vectors; none where it is not there.
pub fn case(path: &str) -> Option<Vec<u8>> {
    let file = beside_the_project(path);
    match std::fs::read(&file) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => left_out(path),
        Err(error) => panic!("{}: {error}", file.display()),
    }
}

/// A folder of the vectors; none where it is not there.
pub fn case_dir(path: &str) -> Option<PathBuf> {
    let folder = beside_the_project(path);
    if folder.is_dir() { Some(folder) } else { left_out(path) }
}

fn beside_the_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases").join(path)
}

/// Says that the test which runs on this thread goes without these vectors.
fn left_out<T>(path: &str) -> Option<T> {
    println!("left out: the published case {path} is not here");
    if let Some(list) = std::env::var_os("HOLDFAST_TEST_LEFT_OUT").filter(|list| !list.is_empty()) {
        let line = format!("{}\n", std::thread::current().name().unwrap_or("a test"));
        // In one piece: tests of several programs write here at once.
        let mut list = OpenOptions::new().create(true).append(true).open(list).unwrap();
        list.write_all(line.as_bytes()).unwrap();
    }
    None
}
