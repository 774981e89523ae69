//! Where things are: the checkout, and the programs built from it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A file that only the root of a checkout has.
const LANDMARK: &str = "deploy/local/kafka/pom.xml";

/// The checkout we are run in, else the one we were built from.
pub fn root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory")?;
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut candidates = here.ancestors().chain(built_from.ancestors());
    let root = candidates.find(|dir| dir.join(LANDMARK).is_file());
    Ok(root.context("not inside a checkout of Oncebox: change to its directory")?.to_owned())
}

/// A binary of this workspace, next to the one that is running.
pub fn binary(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("the path of this program")?;
    // Test binaries live one level deeper, in `deps`.
    let mut dirs = this.ancestors().skip(1).take(2);
    let found = dirs.clone().map(|dir| dir.join(name)).find(|path| path.is_file());
    let built_in = dirs.next().expect("invariant: a program is in a directory");
    let hint = || format!("no {name} near {}: run `cargo build --release`", built_in.display());
    let found = found.with_context(hint)?;
    ensure!(found.is_absolute(), "{} is not an absolute path", found.display());
    Ok(found)
}
