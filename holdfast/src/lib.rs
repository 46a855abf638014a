//! The code of the operator's program `holdfast`: migrates a database and sets up tenants. `cargo xtask` and the test
//! harness use it too.

pub mod admin;
pub mod master_data;
pub mod migrate;
pub mod secrets;

/// An error and its causes on one line, without causes that the text before them already contains.
pub fn one_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        before if before.contains(&cause) => text,
        _ => format!("{text}: {cause}"),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use anyhow::{Context, anyhow};

    #[test]
    fn a_cause_appears_once() {
        let error = anyhow!("no route").context("cannot connect: no route").context("migrating");
        assert_eq!(super::one_line(&error), "migrating: cannot connect: no route");
        let error = Err::<(), _>(anyhow!("disk full")).context("cannot write").unwrap_err();
        assert_eq!(super::one_line(&error), "cannot write: disk full");
    }
}
