//! Settings are tested through `load` and `Cli::interpret`, without the process environment.

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

#[test]
fn defaults_fill_what_is_not_given() {
    let settings = load("", &[("DATABASE_URL", "postgres://a")]).unwrap();

    assert_eq!(settings.database.pool_max, 16);
    assert_eq!(settings.http.timeout, Duration::from_secs(5));
    assert_eq!(settings.http.auth, Auth::Keys);
    assert!(settings.http.token.is_none());
    assert!(settings.http.log_headers.is_empty());
}
