//! Where things are: the project's root, and `.local/`, which holds all that the commands set up or leave behind.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The project that this program was built in.
#[derive(Clone)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The project's root; makes `.local/`.
    ///
    /// # Errors
    /// When the root is gone, or `.local/` cannot be made.
    pub fn open() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask stands in the project's root")?
            .to_owned();
        let workspace = Self { root };
        fs::create_dir_all(workspace.local("")).with_context(|| {
            format!(
                "cannot write to {}: the commands keep what they set up in .local/",
                workspace.root.display()
            )
        })?;
        Ok(workspace)
    }

    /// The project's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `.local/<name>`.
    pub fn local(&self, name: &str) -> PathBuf {
        self.root.join(".local").join(name)
    }

    /// The names of the functions' integration test programs: `tests/<name>.rs` or `tests/<name>/main.rs`.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn function_tests(&self) -> Result<std::collections::BTreeSet<String>> {
        let mut names = std::collections::BTreeSet::new();
        for function in self.functions()? {
            let dir = self.root.join("functions").join(function).join("tests");
            for entry in fs::read_dir(&dir).into_iter().flatten() {
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

    /// The crates under `functions/`, which are the deployed functions' names, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
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

/// A lock that ends with this process, however it ends.
///
/// # Errors
/// When the file cannot be made. `Ok(None)`: another process holds it.
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

/// Writes a file that only its owner may read, whole or not at all.
///
/// # Errors
/// When it cannot be written.
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

/// Removes a file or a folder with all in it; what is not there is removed already.
///
/// # Errors
/// When it cannot be removed.
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
