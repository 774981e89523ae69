//! `domain ← store → settings ← telemetry`; the services use those and never each other; nothing
//! uses `e2e`. And the fences: which crates may name a heavy dependency directly.

use cargo_metadata::{Dependency, DependencyKind, Package};

use super::{assert_none, workspace};

/// Each crate and the crates of this workspace that it may use. A new crate gets its line here.
const ARROWS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("settings", &[]),
    ("shutdown", &["settings"]),
    ("telemetry", &["settings"]),
    ("store", &["domain", "settings"]),
    ("pg-test", &["store", "settings"]),
    ("charge-api", SERVICE),
    ("outbox-relay", SERVICE),
    ("inbox", &["store", "settings", "telemetry"]),
    ("charge-consumer", &["domain", "inbox", "store", "settings", "telemetry", "shutdown"]),
    ("ops", &["domain", "store", "settings", "telemetry"]),
    // The binaries run as processes: whatever their crates offer is of no use here.
    ("e2e", &["domain", "store", "settings", "pg-test"]),
];
const SERVICE: &[&str] = &["domain", "store", "settings", "telemetry", "shutdown"];

/// What tests may use on top.
const DEV_ONLY: &[&str] = &["pg-test"];

/// A dependency and the only crates that may link it. Tests may look at a table through
/// tokio-postgres, so dev-dependencies do not count.
const FENCES: &[(&str, &[&str])] = &[
    ("rdkafka", &["outbox-relay", "inbox", "ops", "e2e"]),
    ("actix-web", &["charge-api", "telemetry", "e2e"]),
    ("tokio-postgres", &["store", "pg-test", "e2e"]),
    ("deadpool-postgres", &["store", "e2e"]),
    ("clap", &["settings", "ops", "e2e"]),
    ("toml", &["settings"]),
];

#[test]
fn crates_use_each_other_only_along_the_arrows() {
    let packages = workspace().packages;
    let mut wrong = Vec::new();
    for package in &packages {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| package.name == *name) else {
            wrong.push(format!("{} has no line in the table of arrows", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|found| found.path.is_some()) {
            let name = dependency.name.as_str();
            let in_tests = dependency.kind == DependencyKind::Development;
            if !(allowed.contains(&name) || in_tests && DEV_ONLY.contains(&name)) {
                wrong.push(format!("{} → {name}", package.name));
            }
        }
    }
    assert_none("arrows that ARCHITECTURE.md does not draw", &wrong);
}

#[test]
fn heavy_dependencies_stay_behind_their_fences() {
    let packages = workspace().packages;
    let uses = |package: &Package, name: &str| {
        let linked = |found: &&Dependency| found.kind != DependencyKind::Development;
        package.dependencies.iter().filter(linked).any(|found| found.name == name)
    };
    let mut wrong = Vec::new();
    for (dependency, allowed) in FENCES {
        for package in packages.iter().filter(|package| uses(package, dependency)) {
            if !allowed.contains(&package.name.as_str()) {
                wrong.push(format!("{} → {dependency}", package.name));
            }
        }
        assert!(packages.iter().any(|package| uses(package, dependency)), "{dependency} is used");
    }
    assert_none("dependencies outside their fence", &wrong);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let without = workspace().packages.into_iter().filter(|package| {
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("a manifest is read");
        !manifest.contains("[lints]\nworkspace = true")
    });
    assert_none("crates without them", &without.map(|p| p.name.to_string()).collect::<Vec<_>>());
}
