//! The shape that ARCHITECTURE.md promises, held against the workspace as it is: which crate may
//! use which, what a file may contain, what stands where. Nothing runs and nothing is built here.

mod arrows;
mod files;

use std::path::PathBuf;

use cargo_metadata::{Metadata, MetadataCommand};

fn root() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests/ lies in the workspace").to_owned()
}

fn workspace() -> Metadata {
    let manifest = root().join("Cargo.toml");
    MetadataCommand::new().manifest_path(manifest).no_deps().exec().expect("cargo metadata runs")
}

/// Asserts on a whole list, so that one run shows everything there is to mend.
#[track_caller]
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}
