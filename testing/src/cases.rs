//! Published test vectors, which are not part of the project and are read from `../shared/cases` beside it. A test whose
//! vectors are not there prints that, and appends its name to the file that `HOLDFAST_TEST_LEFT_OUT` names;
//! `cargo xtask test` then does not count it as passed.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// A file of the vectors; `None` if it is not there.
pub fn case(path: &str) -> Option<Vec<u8>> {
    let file = beside_the_project(path);
    match std::fs::read(&file) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => left_out(path),
        Err(error) => panic!("{}: {error}", file.display()),
    }
}

/// A folder of the vectors; `None` if it is not there.
pub fn case_dir(path: &str) -> Option<PathBuf> {
    let folder = beside_the_project(path);
    if folder.is_dir() { Some(folder) } else { left_out(path) }
}

fn beside_the_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases").join(path)
}

/// Reports that the test on this thread leaves itself out. The thread is named after the test; the test program's name
/// tells tests of the same name apart.
fn left_out<T>(path: &str) -> Option<T> {
    println!("left out: the published case {path} is not there");
    if let Some(list) = std::env::var_os("HOLDFAST_TEST_LEFT_OUT").filter(|list| !list.is_empty()) {
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("{program} {}\n", std::thread::current().name().unwrap_or("a test"));
        // In one write: several test programs append at the same time.
        let mut list = OpenOptions::new().create(true).append(true).open(list).unwrap();
        list.write_all(line.as_bytes()).unwrap();
    }
    None
}
