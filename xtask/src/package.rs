//! `cargo xtask package`: builds each function as it is deployed, into `.local/package/<function>/bootstrap`, and checks it.
//!
//! One build for each function: in a common one a feature or a crate that one of them needs would be in all.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use xtask::process::{self, Group, Step};
use xtask::python::Venv;
use xtask::workspace::Workspace;

/// What Lambda's `provided.al2023` has.
const GLIBC_MAX: (u32, u32) = (2, 34);
/// Lambda's limit for an unpacked function is 250 MB; one that is near this carries what it should not.
const MAX_BYTES: u64 = 20 << 20;
/// Lists what was built and for what; beside the functions' folders.
const MANIFEST: &str = "manifest.json";

/// Where the functions are built to and deployed from: `.local/package`, as the template has it.
pub fn folder(workspace: &Workspace) -> PathBuf {
    std::env::var_os("HOLDFAST_PACKAGE").map_or_else(|| workspace.local("package"), PathBuf::from)
}

#[derive(clap::Args)]
pub struct Args {
    /// What the functions run on [default: arm64 if its Rust target is installed, else x86-64].
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// Build only these.
    functions: Vec<String>,
}

/// A Lambda architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// Graviton: a fifth cheaper than x86-64.
    Arm64,
    #[value(name = "x86_64")]
    #[serde(rename = "x86_64")]
    X86,
}

impl Arch {
    /// The value of the template's parameter `Architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86 => "x86_64",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64-unknown-linux-gnu",
            Self::X86 => "x86_64-unknown-linux-gnu",
        }
    }
}

/// What `package` left.
#[derive(Serialize, Deserialize)]
pub struct Manifest {
    /// What it was built for.
    pub arch: Arch,
    /// The commit it was built from; empty if files were changed since.
    pub commit: String,
    /// In the order of their names.
    pub functions: Vec<Built>,
}

/// One function.
#[derive(Serialize, Deserialize)]
pub struct Built {
    /// Its crate.
    pub name: String,
    /// Of `bootstrap`.
    pub bytes: u64,
    /// The newest glibc that it asks for, as `2.34`.
    pub glibc: String,
    /// Of `bootstrap`, in hex.
    pub sha256: String,
}

impl Manifest {
    /// What the last `package` left.
    pub fn read(workspace: &Workspace) -> Result<Self> {
        let path = folder(workspace).join(MANIFEST);
        let text =
            std::fs::read_to_string(&path).context("nothing is packaged yet: run `cargo xtask package`")?;
        serde_json::from_str(&text).with_context(|| format!("{} cannot be read", path.display()))
    }
}

/// Builds, checks and prints.
pub async fn run(args: Args) -> Result<()> {
    let workspace = Workspace::open()?;
    let all = workspace.functions()?;
    let wanted = if args.functions.is_empty() { all.clone() } else { args.functions };
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        bail!("{unknown} is no function; there are {}", all.join(", "));
    }
    let arch = architecture(args.arch).await?;
    let venv = Venv::tools(&workspace).await?;
    let folder = folder(&workspace);
    let mut built = Vec::new();
    for name in &wanted {
        build(&workspace, &venv, arch, name, &folder).await?;
        built.push(inspect(name, &folder.join(name).join("bootstrap"))?);
    }
    if wanted == all {
        let manifest = Manifest { arch, commit: commit(&workspace).await?, functions: built };
        std::fs::write(folder.join(MANIFEST), serde_json::to_string_pretty(&manifest)?)?;
        print!("{}", table(&manifest.functions));
    } else {
        print!("{}", table(&built));
    }
    Ok(())
}

/// The one that is wanted, if its standard library is there.
async fn architecture(wanted: Option<Arch>) -> Result<Arch> {
    let has = async |arch: Arch| -> Result<bool> {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--print", "target-libdir", "--target", arch.target()]);
        Ok(Path::new(process::succeed("rustc does not answer", &mut rustc).await?.trim()).is_dir())
    };
    match wanted {
        Some(arch) if has(arch).await? => Ok(arch),
        Some(arch) => bail!("Rust's target is not installed: rustup target add {}", arch.target()),
        None if has(Arch::Arm64).await? => Ok(Arch::Arm64),
        None => {
            println!(
                "! for x86-64, since Rust's target {} is not installed here; deploy with Architecture=x86_64",
                Arch::Arm64.target()
            );
            Ok(Arch::X86)
        }
    }
}

async fn build(workspace: &Workspace, venv: &Venv, arch: Arch, name: &str, folder: &Path) -> Result<()> {
    let step = Step::begin(format!("building {name} for {}", arch.name()));
    let mut command = Command::new(venv.program("cargo-lambda"));
    command.args(["lambda", "build", "--release", "--package", name, "--bin", name]);
    if arch == Arch::Arm64 {
        command.arg("--arm64");
    }
    command.arg("--lambda-dir").arg(folder).current_dir(workspace.root());
    // zig, which links for the glibc of Lambda, lies beside cargo-lambda.
    command.env("PATH", path_with(&venv.program(""))?);
    if !Group::spawn(&mut command)?.wait().await?.success() {
        bail!("{name} cannot be built (see above)");
    }
    step.done();
    Ok(())
}

fn path_with(first: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = [first.to_owned()].into_iter().chain(std::env::split_paths(&path)).collect();
    Ok(std::env::join_paths(all)?)
}

fn inspect(name: &str, bootstrap: &Path) -> Result<Built> {
    let program = std::fs::read(bootstrap).with_context(|| format!("cannot read {}", bootstrap.display()))?;
    let glibc = newest_glibc(&program);
    if glibc > GLIBC_MAX {
        bail!("{name} asks for glibc {}.{}; Lambda has {}.{}", glibc.0, glibc.1, GLIBC_MAX.0, GLIBC_MAX.1);
    }
    let bytes = program.len() as u64;
    if bytes > MAX_BYTES {
        bail!("{name} has {} MiB: it carries what it should not", bytes >> 20);
    }
    let sha256 = hex::encode(Sha256::digest(&program));
    Ok(Built { name: name.to_owned(), bytes, glibc: format!("{}.{}", glibc.0, glibc.1), sha256 })
}

/// The newest of the versions `GLIBC_2.N` that are named in a program's symbol table.
fn newest_glibc(program: &[u8]) -> (u32, u32) {
    const NAME: &[u8] = b"GLIBC_";
    let places = program.windows(NAME.len()).enumerate().filter(|(_, found)| *found == NAME);
    let versions = places.filter_map(|(at, _)| {
        let rest = &program[at + NAME.len()..];
        let text = rest.split(|byte| !byte.is_ascii_digit() && *byte != b'.').next()?;
        let mut numbers = std::str::from_utf8(text).ok()?.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    versions.max().unwrap_or_default()
}

/// The commit, if the tree is as it says.
async fn commit(workspace: &Workspace) -> Result<String> {
    let git = async |args: &[&str]| {
        process::succeed("git does not answer", Command::new("git").args(args).current_dir(workspace.root()))
            .await
    };
    let changed = git(&["status", "--porcelain"]).await?;
    Ok(if changed.trim().is_empty() {
        git(&["rev-parse", "HEAD"]).await?.trim().to_owned()
    } else {
        String::new()
    })
}

fn table(functions: &[Built]) -> String {
    let mut text = format!("\n{:<20} {:>8} {:>7}  sha256\n", "function", "MiB", "glibc");
    for Built { name, bytes, glibc, sha256 } in functions {
        let mib = *bytes as f64 / f64::from(1 << 20);
        let _ = writeln!(text, "{name:<20} {mib:>8.2} {glibc:>7}  {}", &sha256[..12]);
    }
    text
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_found_among_many_and_as_a_number() {
        let program = b"\0GLIBC_2.2.5\0x\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(newest_glibc(program), (2, 34));
        assert_eq!(newest_glibc(b"static"), (0, 0));
    }

    #[test]
    fn a_program_for_a_newer_glibc_than_lambdas_is_refused_and_an_older_one_taken() {
        let path = std::env::temp_dir().join(format!("holdfast-{}", uuid::Uuid::new_v4()));
        let inspected = |program: &str| {
            std::fs::write(&path, program).unwrap();
            inspect("relay", &path)
        };
        assert_eq!(inspected("\0GLIBC_2.17\0GLIBC_2.34\0").unwrap().glibc, "2.34");
        let refused = inspected("\0GLIBC_2.35\0").map(|built| built.glibc).unwrap_err().to_string();
        assert_eq!(refused, "relay asks for glibc 2.35; Lambda has 2.34");
        std::fs::remove_file(&path).unwrap();
    }
}
