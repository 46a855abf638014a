//! What a test reports when it leaves itself out: this program runs itself, without what its second test asks for.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::PathBuf;
use std::process::Command;

/// Set where this program was run by itself.
const INSIDE: &str = "HOLDFAST_TEST_INSIDE";

#[test]
fn a_test_that_leaves_itself_out_is_listed_by_name_and_reason() {
    let list =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("left-out-{}.txt", std::process::id()));
    let program = std::env::current_exe().unwrap();
    let ran = Command::new(&program)
        .args(["--exact", "inside", "--test-threads", "2"])
        .envs([(INSIDE, "1"), ("HOLDFAST_TEST_PYTHON", "")])
        .env("HOLDFAST_TEST_LEFT_OUT", &list)
        .output()
        .unwrap();
    let listed = std::fs::read_to_string(&list).unwrap_or_default();
    let _ = std::fs::remove_file(&list);
    assert!(ran.status.success());
    let name = program.file_name().unwrap().to_string_lossy();
    let reason = "no Python with the official libraries and stand-ins (HOLDFAST_TEST_PYTHON)";
    assert_eq!(listed, format!("{name} inside\t{reason}\n{name} inside\tof no reason\n"));
}

#[test]
fn inside() {
    if std::env::var_os(INSIDE).is_some() {
        assert_eq!(testing::python(), None);
        testing::left_out("of no reason");
    }
}
