//! Published test vectors, which are not part of the project and are read from `../shared/cases` beside it. Without them a
//! test is left out.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::left_out;

/// A file of the vectors; `None` if it is not there.
pub fn case(path: &str) -> Option<Vec<u8>> {
    let file = beside_the_project(path);
    match std::fs::read(&file) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => absent(path),
        Err(error) => panic!("{}: {error}", file.display()),
    }
}

/// A folder of the vectors; `None` if it is not there.
pub fn case_dir(path: &str) -> Option<PathBuf> {
    let folder = beside_the_project(path);
    if folder.is_dir() { Some(folder) } else { absent(path) }
}

fn beside_the_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases").join(path)
}

fn absent<T>(path: &str) -> Option<T> {
    println!("the published case {path} is not there");
    left_out("the published cases (../shared/cases) are not there");
    None
}
