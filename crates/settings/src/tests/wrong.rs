//! Wrong settings and what is said about them: by table, all at once, and never a secret.

use std::ffi::OsString;

use proptest::prelude::*;

use super::{Settings, URL, load};
use crate::{Group, Reader, sources::Sources};

/// The file, the environment and the one problem with them.
type Wrong<'a> = (&'a str, &'a [(&'a str, &'a str)], String);

const POOL: &str = "allowed: an integer from 1 to 1000";

fn lines(file: &str, env: &[(&str, &str)]) -> Vec<String> {
    load(file, env).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn each_wrong_setting_is_named_with_its_origin_and_what_is_allowed() {
    let table: &[Wrong<'_>] = &[
        (
            "",
            &[],
            "database.url: is required; set DATABASE_URL or DATABASE_URL_FILE, or database.url in \
             the file; allowed: a postgres:// URL"
                .into(),
        ),
        (
            "",
            &[("DATABASE_URL", "")],
            "database.url (environment DATABASE_URL): is wrong (its value is not shown); \
             allowed: a postgres:// URL"
                .into(),
        ),
        (
            "",
            &[URL, ("DATABASE_URL_FILE", "/x")],
            "database.url (environment DATABASE_URL): is set twice: unset DATABASE_URL or \
             DATABASE_URL_FILE; allowed: a postgres:// URL"
                .into(),
        ),
        (
            "",
            &[("DATABASE_URL_FILE", "/nowhere/hunter2")],
            "database.url (the file named by DATABASE_URL_FILE): cannot be read: No such file or \
             directory (os error 2); allowed: a postgres:// URL"
                .into(),
        ),
        (
            "",
            &[URL, ("ONCEBOX_DATABASE_POOL_MAX", "many")],
            format!(
                "database.pool_max (environment ONCEBOX_DATABASE_POOL_MAX): \"many\" is not such \
                 an integer; {POOL}"
            ),
        ),
        (
            "\n[database]\npool_max = 0",
            &[URL],
            format!("database.pool_max (settings.toml:3): \"0\" is out of range; {POOL}"),
        ),
        (
            "[database]\npool_max = [1]",
            &[URL],
            format!("database.pool_max (settings.toml:2): \"1\" is an array; {POOL}"),
        ),
        (
            "auth = true",
            &[URL],
            "auth (settings.toml:1): \"true\" is not one of them; allowed: disabled or keys".into(),
        ),
        (
            "[http]\ntimeuot = '5s'",
            &[URL],
            "http.timeuot (settings.toml:2): no such setting; did you mean http.timeout?".into(),
        ),
        (
            "[something.else]\nentirely = 1",
            &[URL],
            "something.else.entirely (settings.toml:2): no such setting".into(),
        ),
        (
            "",
            &[URL, ("ONCEBOX_DATABASE_POOLMAX", "5")],
            "ONCEBOX_DATABASE_POOLMAX (environment ONCEBOX_DATABASE_POOLMAX): no such setting; \
             did you mean ONCEBOX_DATABASE_POOL_MAX?"
                .into(),
        ),
        (
            "",
            &[URL, ("ONCEBOX_DATABASE_POOL_MAX_FILE", "/x")],
            "ONCEBOX_DATABASE_POOL_MAX_FILE (environment ONCEBOX_DATABASE_POOL_MAX_FILE): no such \
             setting; did you mean ONCEBOX_DATABASE_POOL_MAX?"
                .into(),
        ),
        (
            "[[http.log_headers]]\nname = 'x'",
            &[URL],
            "http.log_headers (settings.toml:1): is an array of tables".into(),
        ),
        (
            "http.log_headers = ['a,b']",
            &[URL],
            "http.log_headers (settings.toml:1): has an element with a comma".into(),
        ),
        (
            "'http.timeout' = '1s'\n[http]\ntimeout = '2s'",
            &[URL],
            "http.timeout (settings.toml:1): is set twice".into(),
        ),
    ];
    for (file, env, expected) in table {
        assert_eq!(lines(file, env), [expected.as_str()], "file {file:?}, environment {env:?}");
    }
}

#[test]
fn all_problems_are_listed_at_once() {
    let file = "auth = 'maybe'\n[http]\nbody_max = '16'\ntimeuot = '5s'";
    let env = [("ONCEBOX_HTTP_LISTEN", "localhost"), ("ONCEBOX_NONSENSE", "1")];

    let problems = load(file, &env).unwrap_err();

    let keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
    let expected = [
        "database.url",
        "http.listen",
        "http.body_max",
        "auth",
        "http.timeuot",
        "ONCEBOX_NONSENSE",
    ];
    assert_eq!(keys, expected);
    assert!(problems.to_string().starts_with("6 problems with the settings:\n  database.url: "));
}

#[test]
fn file_that_is_not_toml_hides_neither_its_line_nor_the_environment() {
    let found = lines("auth = 'keys'\nhttp.timeout = \n", &[("ONCEBOX_HTTP_LISTEN", "x")]);

    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("settings.toml:2: is not TOML: "), "{found:?}");
    assert!(found[1].starts_with("http.listen (environment ONCEBOX_HTTP_LISTEN): "), "{found:?}");
}

#[test]
fn service_can_say_that_two_settings_contradict_each_other() {
    #[derive(Debug)]
    struct Checked;
    impl Group for Checked {
        fn read(reader: &mut Reader) -> Option<Self> {
            reader.group::<Settings>()?;
            reader.problem("http.timeout", "must be shorter than shutdown.grace");
            Some(Self)
        }
    }

    let problems = crate::load::<Checked>(None, &[URL, ("ONCEBOX_HTTP_TIMEOUT", "9s")]);

    assert_eq!(
        problems.unwrap_err().to_string(),
        "1 problem with the settings:\n  http.timeout (environment ONCEBOX_HTTP_TIMEOUT): must be \
         shorter than shutdown.grace"
    );
}

#[test]
fn variable_that_is_not_utf8_is_a_problem_and_not_a_panic() {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = OsString::from_vec(vec![0xff]);
    let env = [("DATABASE_URL".into(), bytes.clone()), ("ELSE".into(), bytes)];

    let (settings, _) = crate::read::<Settings>(Sources::new(None, env));

    let text = settings.unwrap_err().to_string();
    assert!(text.contains("database.url (environment DATABASE_URL): is not UTF-8"), "{text}");
}

#[test]
fn long_wrong_value_is_shortened() {
    let value = "é".repeat(1000);
    let found = lines("", &[URL, ("ONCEBOX_HTTP_LISTEN", &value)]);

    assert!(found[0].len() < 400, "{found:?}");
}

proptest! {
    /// However a secret is given, and whatever else is wrong, no message holds it. The secrets are
    /// wrong here (their check repeats the value on purpose), or break the file's syntax.
    #[test]
    fn no_message_holds_a_secret(noise in "[ -~]{0,12}", tail in "[!-~]{0,12}", syntax in 0..3) {
        let secret = format!("s3cr3t{noise}");
        let value = match syntax {
            0 => format!("{secret:?}"),
            1 => format!("\"{secret}{tail}"),
            _ => secret.clone(),
        };
        let file = format!("[database]\nurl = {value}\n[http]\ntoken = {value}\nauth = {tail:?}");
        let both = [("DATABASE_URL", secret.as_str()), ("DATABASE_URL_FILE", &secret)];
        let only_file = [("DATABASE_URL_FILE", secret.as_str()), ("ONCEBOX_HTTP_TOKEN_FILE", &secret)];
        let only_value = [("DATABASE_URL", secret.as_str()), ("ONCEBOX_HTTP_TOKN", &secret)];

        for (file, env) in [("", &both[..]), ("", &only_file), ("", &only_value), (&file, &[])] {
            let problems = load(file, env).unwrap_err();
            let shown = format!("{problems}\n{problems:?}");
            prop_assert!(!shown.contains("s3cr3t"), "{}", shown);
        }
    }
}
