//! `.local/dev.env`: how to reach the running stack, as unquoted `KEY=value` lines. The file exists while the stack runs.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::tokens::TokenIssuer;
use crate::workspace::Workspace;

/// The file's values by name.
pub struct DevEnv {
    values: HashMap<String, String>,
}

impl DevEnv {
    /// `dev.env` among the stack's state, or the file that `HOLDFAST_DEV_ENV` names.
    pub fn path(workspace: &Workspace) -> PathBuf {
        std::env::var_os("HOLDFAST_DEV_ENV").map_or_else(|| workspace.state("dev.env"), PathBuf::from)
    }

    /// Fails when the stack does not run.
    pub fn read(workspace: &Workspace) -> Result<Self> {
        let path = Self::path(workspace);
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "the stack does not run ({} is not there): start it with `cargo xtask dev`",
                path.display()
            )
        })?;
        Ok(Self { values: parse(&text) })
    }

    /// Fails when the file does not hold it.
    pub fn get(&self, name: &str) -> Result<&str> {
        self.values.get(name).map(String::as_str).with_context(|| format!("dev.env holds no {name}"))
    }

    /// From the `JWT_…` values.
    pub fn token_issuer(&self) -> Result<TokenIssuer> {
        Ok(TokenIssuer {
            secret: self.get("JWT_SECRET")?.into(),
            issuer: self.get("JWT_ISSUER")?.into(),
            audience: self.get("JWT_AUDIENCE")?.into(),
            tenant_claim: self.get("JWT_TENANT_CLAIM")?.into(),
            scope_claim: self.get("JWT_SCOPE_CLAIM")?.into(),
        })
    }
}

fn parse(text: &str) -> HashMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The text of such a file.
pub fn render(values: &[(&str, String)]) -> String {
    values.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// The same for cargo-lambda, which reads an equals sign in a value only between quotes.
pub fn render_quoted(values: &[(&str, String)]) -> String {
    values.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_equals_signs() {
        let text =
            render(&[("SECRET", "whsec_ab+/c==".into()), ("URL", "postgres://a:b@127.0.0.1:1/c?d=e".into())]);
        let read = parse(&text);
        assert_eq!(read["SECRET"], "whsec_ab+/c==");
        assert_eq!(read["URL"], "postgres://a:b@127.0.0.1:1/c?d=e");
    }
}
