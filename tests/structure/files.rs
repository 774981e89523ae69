//! What stands where: names, lengths, SQL, the path of one charge.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{assert_none, root, workspace};

/// Words that name no noun: what goes in has nothing in common but the place.
const EMPTY_WORDS: &[&str] =
    &["common", "core", "helper", "helpers", "manager", "misc", "shared", "types", "util", "utils"];

/// 400 lines are the limit of the house style; fifty more let a review finish.
const LINES_MAX: usize = 450;

/// The request of one charge, in reading order: what "One charge in five files" names.
const ONE_CHARGE: [&str; 5] = [
    "crates/charge-api/src/routes/charges.rs",
    "crates/charge-api/src/create_charge.rs",
    "crates/store/src/outbox.rs",
    "crates/outbox-relay/src/relay.rs",
    "crates/charge-consumer/src/consumer.rs",
];

/// How a statement begins, as the first words of a text.
const STATEMENTS: &[&str] = &[
    "select ",
    "insert into ",
    "update ",
    "delete from ",
    "with ",
    "merge into ",
    "create table ",
    "create index ",
    "alter table ",
    "drop table ",
    "truncate ",
    "lock table ",
    "begin",
    "commit",
    "rollback",
    "savepoint ",
    "set local ",
    "listen ",
    "notify ",
];

/// What stands in the middle of a statement, in capitals as SQL is written here.
const CLAUSES: &[&str] =
    &["INSERT INTO ", "DELETE FROM ", " FOR UPDATE", "SKIP LOCKED", "ON CONFLICT", " RETURNING "];

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace is listed") {
            let path = entry.expect("an entry of it is read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 20, "the sources are found: {found:?}");
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a source file is read")
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).expect("a path of the workspace").display().to_string()
}

#[test]
fn one_charge_is_five_files() {
    let missing = ONE_CHARGE.iter().filter(|path| !root().join(path).is_file());
    assert_none(
        "files that ARCHITECTURE.md names",
        &missing.map(ToString::to_string).collect::<Vec<_>>(),
    );
}

#[test]
fn no_file_is_too_long() {
    let lengths = sources().into_iter().map(|path| (read(&path).lines().count(), path));
    let long = lengths.filter(|(lines, _)| *lines > LINES_MAX);
    let long = long.map(|(lines, path)| format!("{} has {lines} lines", shown(&path)));
    assert_none("files that hide a noun", &long.collect::<Vec<_>>());
}

#[test]
fn every_crate_and_module_is_named_by_a_noun() {
    let is_empty = |name: &str| name.split(['-', '_']).any(|word| EMPTY_WORDS.contains(&word));
    let mut wrong: Vec<String> = workspace()
        .packages
        .iter()
        .map(|package| package.name.to_string())
        .filter(|name| is_empty(name))
        .collect();
    for path in sources() {
        let shown = shown(&path);
        if shown.trim_end_matches(".rs").split('/').any(is_empty) {
            wrong.push(shown.clone());
        }
        let text = read(&path);
        let modules = text.lines().filter_map(|line| {
            let (_, rest) = line.trim_start().split_once("mod ")?;
            rest.split(['{', ';']).next().map(str::trim)
        });
        wrong.extend(
            modules.filter(|name| is_empty(name)).map(|name| format!("{shown}: mod {name}")),
        );
    }
    assert_none("names that say nothing", &wrong);
}

/// Tests may look at the tables they check, and `pg-test` makes databases.
fn may_hold_sql(path: &str) -> bool {
    path.starts_with("crates/store/")
        || path.starts_with("crates/pg-test/")
        || path.starts_with("tests/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
}

#[test]
fn sql_stands_only_in_store() {
    let mut found = Vec::new();
    for path in sources().into_iter().filter(|path| !may_hold_sql(&shown(path))) {
        for (index, line) in read(&path).lines().enumerate() {
            if holds_sql(line) {
                found.push(format!("{}:{}: {}", shown(&path), index + 1, line.trim()));
            }
        }
    }
    assert_none("SQL outside store", &found);
}

#[test]
fn sql_is_recognised_and_prose_is_not() {
    for line in [
        r#"const CLAIM: &str = "select id from outbox";"#,
        r#"    tx.execute("DELETE FROM inbox WHERE id = $1")"#,
        r##"let sql = r#"UPDATE charges SET x = 1"#;"##,
        r#"client.batch_execute("BEGIN")"#,
        "     FOR UPDATE SKIP LOCKED",
    ] {
        assert!(holds_sql(line), "{line}");
    }
    for line in [
        "// a `SELECT ` takes the lock; INSERT INTO waits",
        r#"info!("selected {count} rows"); let update = 1;"#,
        r#"error!("beginning again after a commit")"#,
    ] {
        assert!(!holds_sql(line), "{line}");
    }
}

fn holds_sql(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let begins = |text: &str| {
        let text = text.trim_start().to_lowercase();
        STATEMENTS.iter().any(|statement| match statement.ends_with(' ') {
            true => text.starts_with(statement),
            // Those that can stand alone.
            false => text.split([';', ' ']).next() == Some(statement) && text.len() < 30,
        })
    };
    CLAUSES.iter().any(|clause| code.contains(clause))
        || code.split('"').skip(1).step_by(2).any(begins)
}

#[test]
fn migrations_are_numbered_without_gaps() {
    let folder = root().join("migrations");
    let entries = fs::read_dir(folder).expect("migrations are listed");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry is read").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".sql"))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    for (index, name) in names.iter().enumerate() {
        let words = name.strip_prefix(&format!("{:04}_", index + 1));
        let words = words.and_then(|rest| rest.strip_suffix(".sql"));
        let valid = words.is_some_and(|words| {
            !words.is_empty() && words.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        });
        assert!(valid, "{name} is not {:04}_name.sql", index + 1);
    }
}
