//! A file for a command to read.

use std::path::PathBuf;

/// A file in the folder for temporary ones, which is deleted with this value.
pub struct TempFile(PathBuf);

impl TempFile {
    /// A new file with this content.
    pub fn with(content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("holdfast-{}", uuid::Uuid::new_v4()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
