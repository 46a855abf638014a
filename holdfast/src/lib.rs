//! The operator's program, as a library: what migrates a database and what sets up tenants. `cargo xtask` and the tests'
//! harness use the same code as the binary.

pub mod admin;
pub mod master_data;
pub mod migrate;
pub mod secrets;

/// An error and its causes on one line; a cause that the words before it already hold is not said again.
pub fn one_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        before if before.contains(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use anyhow::{Context, anyhow};

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("no route").context("cannot connect: no route").context("migrating");
        assert_eq!(super::one_line(&error), "migrating: cannot connect: no route");
        let error = Err::<(), _>(anyhow!("disk full")).context("cannot write").unwrap_err();
        assert_eq!(super::one_line(&error), "cannot write: disk full");
    }
}
