//! Tests that leave themselves out, since something is not there. Such a test prints why, and appends its name and the reason
//! to the file that `HOLDFAST_TEST_LEFT_OUT` names; `cargo xtask test` then does not count it as passed.

use std::fs::OpenOptions;
use std::io::Write as _;

use super::TestDb;

/// Reports that the test on this thread leaves itself out. Tests are counted by `why`: one sentence for one reason.
pub fn left_out(why: &str) {
    println!("left out: {why}");
    if let Some(list) = std::env::var_os("HOLDFAST_TEST_LEFT_OUT").filter(|list| !list.is_empty()) {
        // The thread is named after the test; the program's name tells tests of the same name apart.
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("{program} {}\t{why}\n", std::thread::current().name().unwrap_or("a test"));
        // In one write: several test programs append at the same time.
        let mut list = OpenOptions::new().create(true).append(true).open(list).unwrap();
        list.write_all(line.as_bytes()).unwrap();
    }
}

/// The Python that `HOLDFAST_TEST_PYTHON` names, which has the packages of xtask/requirements-test.txt. Without it the test
/// is left out.
pub fn python() -> Option<String> {
    let python = std::env::var("HOLDFAST_TEST_PYTHON").ok().filter(|path| !path.is_empty());
    if python.is_none() {
        left_out("no Python with the official libraries and stand-ins (HOLDFAST_TEST_PYTHON)");
    }
    python
}

impl TestDb {
    /// Whether the server's major version is at least this one. If not, the test is left out.
    pub async fn is_at_least(&self, major: i32) -> bool {
        let version: i32 = self.scalar("select current_setting('server_version_num')::int").await;
        let is = version / 10_000 >= major;
        if !is {
            left_out(&format!("PostgreSQL is older than {major}"));
        }
        is
    }
}
