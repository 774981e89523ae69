//! Settings are tested through `load` and `Cli::interpret`, without the process environment.

mod cli;
mod kafka;
mod values;
mod wrong;

use std::{net::SocketAddr, time::Duration};

use crate::{ByteSize, Group, Problems, Reader, Secret};

crate::choice! {
    /// Who may call.
    enum Auth { Disabled = "disabled", Keys = "keys" }
}

crate::group! {
    /// PostgreSQL connection and pool.
    struct DatabaseSettings {
        /// Connection URL of the database.
        url: Secret = "database.url" env "DATABASE_URL", required, "a postgres:// URL", check postgres_url;
        /// Most connections of the pool.
        pool_max: u32 = "database.pool_max", default "16", "an integer from 1 to 1000", range 1..=1000;
    }
}

crate::group! {
    struct HttpSettings {
        /// Address to listen on.
        listen: SocketAddr = "http.listen", default "127.0.0.1:8080", "an IP address and port";
        /// Longest a request may take.
        timeout: Duration = "http.timeout", default "5s", "a duration from 1ms to 1h",
            range Duration::from_millis(1)..=Duration::from_secs(3600);
        /// Largest body.
        body_max: ByteSize = "http.body_max", default "16KiB", "a size";
        /// Who may call.
        auth: Auth = "auth", default "keys", "disabled or keys";
        /// Token of the metrics page.
        token: Option<Secret> = "http.token", optional, "a text";
        /// Headers to log.
        log_headers: Vec<String> = "http.log_headers", default "", "header names, comma separated";
    }
}

fn postgres_url(url: &Secret) -> Result<(), String> {
    match url.expose().starts_with("postgres://") {
        true => Ok(()),
        false => Err(format!("is {}", url.expose())),
    }
}

#[derive(Debug)]
struct Settings {
    database: DatabaseSettings,
    http: HttpSettings,
}

impl Group for Settings {
    fn read(reader: &mut Reader) -> Option<Self> {
        let (database, http) = (reader.group(), reader.group());
        Some(Self { database: database?, http: http? })
    }
}

fn load(file: &str, env: &[(&str, &str)]) -> Result<Settings, Problems> {
    crate::load(Some(file), env)
}

const URL: (&str, &str) = ("DATABASE_URL", "postgres://somewhere");

#[test]
fn defaults_fill_what_is_not_given() {
    let settings = load("", &[URL]).unwrap();

    assert_eq!(settings.database.pool_max, 16);
    assert_eq!(settings.http.listen, SocketAddr::from(([127, 0, 0, 1], 8080)));
    assert_eq!(settings.http.timeout, Duration::from_secs(5));
    assert_eq!(settings.http.body_max, ByteSize::kib(16));
    assert_eq!(settings.http.auth.as_str(), "keys");
    assert!(settings.http.token.is_none());
    assert!(settings.http.log_headers.is_empty());
}

#[test]
fn environment_beats_file_and_file_beats_default() {
    let file = "auth = 'disabled'\n[http]\ntimeout = '1s'\nbody_max = '1B'\n";
    let settings = load(file, &[URL, ("ONCEBOX_HTTP_TIMEOUT", "2s")]).unwrap();

    assert_eq!(settings.http.timeout, Duration::from_secs(2));
    assert_eq!(settings.http.body_max, ByteSize::new(1));
    assert_eq!(settings.http.auth, Auth::Disabled);
}

#[test]
fn file_named_by_a_variable_beats_the_settings_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("url");
    std::fs::write(&path, "postgres://from-file\n").unwrap();
    let env = [("DATABASE_URL_FILE", path.to_str().unwrap())];

    let settings = load("database.url = 'postgres://weaker'", &env).unwrap();

    assert_eq!(settings.database.url.expose(), "postgres://from-file");
}

#[test]
fn file_may_give_numbers_truths_and_arrays_as_such() {
    let file = "database.pool_max = 0x10\nhttp.log_headers = ['a', 'b']\n";
    let settings = load(file, &[URL]).unwrap();

    assert_eq!(settings.database.pool_max, 16);
    assert_eq!(settings.http.log_headers, ["a", "b"]);
}

#[test]
fn service_may_change_the_default_of_a_shared_group() {
    struct Moved(HttpSettings);
    impl Group for Moved {
        fn read(reader: &mut Reader) -> Option<Self> {
            reader.default("http.listen", "127.0.0.1:9");
            reader.group().map(Self)
        }
    }

    let Moved(http) = crate::load(None, &[]).unwrap();

    assert_eq!(http.listen.port(), 9);
}

#[test]
fn variables_of_kubernetes_service_links_are_not_ours() {
    let links = [
        URL,
        ("ONCEBOX_API_SERVICE_HOST", "10.0.0.1"),
        ("ONCEBOX_API_SERVICE_PORT_HTTP", "80"),
        ("ONCEBOX_API_PORT", "tcp://10.0.0.1:80"),
        ("ONCEBOX_API_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("ONCEBOX_API_PORT_80_TCP_ADDR", "10.0.0.1"),
    ];

    assert!(load("", &links).is_ok());
}

#[test]
fn secret_shows_itself_only_when_asked() {
    let secret = Secret::new("hunter2");

    assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** *** Some(***)");
    assert_eq!(secret.expose(), "hunter2");
}
