//! `.ci/run` in a folder of its own, where every program that it calls is a stand-in that writes down how it was called.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What it uses of an ordinary machine.
const ORDINARY: [&str; 5] = ["bash", "mkdir", "rm", "sh", "tail"];

struct Machine(PathBuf);

impl Machine {
    /// With these programs beside the ordinary ones: names and what they do, as shell.
    fn with(programs: &[(&str, &str)]) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ci-{}", uuid::Uuid::new_v4()));
        let bin = root.join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir(root.join(".ci")).unwrap();
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/run"), root.join(".ci/run")).unwrap();
        for name in ORDINARY {
            let path = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
            symlink(path.iter().find(|path| path.exists()).unwrap(), bin.join(name)).unwrap();
        }
        for (name, does) in programs {
            let calls = root.join("calls");
            let text = format!("#!/bin/sh\necho \"{name} $*\" >> '{}'\n{does}\n", calls.display());
            fs::write(bin.join(name), text).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(root)
    }

    fn run(&self) -> Output {
        Command::new("bash").arg(self.0.join(".ci/run")).env("PATH", self.0.join("bin")).output().unwrap()
    }

    /// The calls, without those that only ask.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.0.join("calls")).unwrap();
        let asks = |call: &str| call.ends_with("--version") || call.starts_with("id ");
        calls.lines().filter(|call| !asks(call)).map(str::to_owned).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const ROOT: (&str, &str) = ("id", "echo 0");
const NO_DENY: &str = r#"[ "$1" != deny ]"#;

#[test]
fn where_all_is_there_only_the_checks_run_and_their_status_is_the_end() {
    let there = [("pgbouncer", ""), ("chromium", ""), ("apt-get", ""), ROOT];
    for (checks, status) in [(r#"[ "$1" != xtask ] || exit 3"#, 3), ("", 0)] {
        let machine = Machine::with(&[&there[..], &[("cargo", checks)]].concat());
        assert_eq!(machine.run().status.code(), Some(status));
        assert_eq!(machine.calls(), ["cargo xtask test"]);
    }
}

#[test]
fn what_is_missing_is_installed_and_what_cannot_be_is_said_and_fails_nothing() {
    let no_chromium = r#"case "$*" in *chromium) echo no such package >&2; exit 100;; esac"#;
    let machine = Machine::with(&[("apt-get", no_chromium), ("cargo", NO_DENY), ROOT]);
    let output = machine.run();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let calls = machine.calls();
    let begin = |n: usize, with: &str| assert!(calls[n].starts_with(with), "{calls:?}");
    begin(0, "apt-get update");
    begin(1, "apt-get install");
    assert!(calls[1].ends_with(" pgbouncer") && calls[2].ends_with(" chromium"), "{calls:?}");
    begin(3, "cargo install");
    assert!(calls[3].contains("--root .local/cargo-tools ") && calls[3].contains("--locked"), "{calls:?}");
    assert_eq!(calls[4..], ["cargo xtask test"]);
    assert!(said.contains("✓ installed pgbouncer"), "{said}");
    assert!(said.contains("! chromium cannot be installed") && said.contains("no such package"), "{said}");
}

#[test]
fn without_root_or_apt_nothing_is_asked_of_the_system() {
    let cargo = ("cargo", NO_DENY);
    for programs in [vec![("apt-get", ""), ("id", "echo 1000"), cargo], vec![ROOT, cargo]] {
        let machine = Machine::with(&programs);
        assert!(machine.run().status.success());
        assert!(machine.calls().iter().all(|call| call.starts_with("cargo ")), "{:?}", machine.calls());
    }
}
