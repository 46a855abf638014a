//! Paths: the project's root, and `.local/`, which holds all that the commands set up or leave behind.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The checkout that this program was built in.
#[derive(Clone)]
pub struct Workspace {
    root: PathBuf,
    state: PathBuf,
}

/// Names another folder than `.local/` for what belongs to one stack: its database, settings, logs. So a second one can run
/// beside the first.
pub const STATE_VARIABLE: &str = "HOLDFAST_STATE_DIR";

impl Workspace {
    /// Makes `.local/` if it is not there.
    pub fn open() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask stands in the project's root")?
            .to_owned();
        let state = std::env::var_os(STATE_VARIABLE).map_or_else(|| root.join(".local"), PathBuf::from);
        let workspace = Self { root, state };
        let made =
            fs::create_dir_all(workspace.local("")).and_then(|()| fs::create_dir_all(&workspace.state));
        made.with_context(|| {
            format!(
                "cannot write to {}: the commands keep what they set up in .local/",
                workspace.root.display()
            )
        })?;
        Ok(workspace)
    }

    /// The folder of the root `Cargo.toml`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `.local/<name>`.
    pub fn local(&self, name: &str) -> PathBuf {
        self.root.join(".local").join(name)
    }

    /// `<name>` among what belongs to one stack: in `.local/`, or in the folder that [`STATE_VARIABLE`] names.
    pub fn state(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }

    /// Another checkout, whose generated files are in this one's `.local/`.
    pub fn beside(&self, root: PathBuf) -> Self {
        Self { root, state: self.state.clone() }
    }

    /// The names of the integration test targets (`tests/<name>.rs` or `tests/<name>/main.rs`) in which functions talk to
    /// the database: those of the functions' crates and of `stories`.
    pub fn database_tests(&self) -> Result<BTreeSet<String>> {
        let functions =
            self.functions()?.into_iter().map(|function| self.root.join("functions").join(function));
        let mut names = BTreeSet::new();
        for package in functions.chain([self.root.join("stories")]) {
            for entry in fs::read_dir(package.join("tests")).into_iter().flatten() {
                let path = entry?.path();
                let is_program =
                    path.join("main.rs").is_file() || path.extension().is_some_and(|e| e == "rs");
                if let Some(name) = path.file_stem().filter(|_| is_program) {
                    names.insert(name.to_string_lossy().into_owned());
                }
            }
        }
        Ok(names)
    }

    /// The folders under `functions/`, sorted; each is a crate and the name of the deployed function.
    pub fn functions(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let dir = self.root.join("functions");
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let entry = entry?;
            if entry.path().join("Cargo.toml").is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Locks a file until the returned handle is dropped or the process ends; `None` if another process has locked it.
pub fn try_lock(path: &Path) -> Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// Writes a file that only its owner can read, completely or not at all.
pub fn write_private(path: &Path, content: &str) -> Result<()> {
    let part = path.with_extension("part");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&part)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file, or a folder with its contents, if it exists.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
