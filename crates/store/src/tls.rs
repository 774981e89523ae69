//! Where the database is, and how the way to it is protected.
//!
//! `verify-full` or nothing: a mode that falls back to plain text, or encrypts without asking who
//! answers, protects from nobody who can answer instead. So the words of `sslmode=` that ask for
//! TLS at all are taken for `verify-full`, and those that leave it to the server are refused.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::DatabaseSettings;

settings::choice! {
    /// How a connection to the database is protected.
    pub enum Tls {
        /// Not at all: for a database on this machine or on a network of one's own.
        Disable = "disable",
        /// Encrypted, to a server whose certificate is good for the host's name.
        VerifyFull = "verify-full",
    }
}

/// Which database is meant.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    url: &'a str,
    tls: Option<Tls>,
    ca: Option<&'a Path>,
}

impl<'a> From<&'a DatabaseSettings> for Target<'a> {
    fn from(settings: &'a DatabaseSettings) -> Self {
        Self { url: settings.url.expose(), tls: settings.tls, ca: settings.tls_ca.as_deref() }
    }
}

impl<'a> From<&'a str> for Target<'a> {
    fn from(url: &'a str) -> Self {
        Self { url, tls: None, ca: None }
    }
}

impl<'a> From<&'a String> for Target<'a> {
    fn from(url: &'a String) -> Self {
        Self::from(url.as_str())
    }
}

/// Settings of which nothing can be made, or that contradict each other.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{key}: {why}")]
pub struct Misconfigured {
    pub key: &'static str,
    pub why: String,
}

/// What a connection is made with.
pub(crate) struct Server {
    pub config: tokio_postgres::Config,
    pub connector: MakeRustlsConnect,
}

pub(crate) fn server(target: Target<'_>) -> Result<Server, Misconfigured> {
    let wrong = |key, why: &str| Misconfigured { key, why: why.into() };
    let mut config =
        config(target.url).ok_or_else(|| wrong("database.url", "is not a connection URL"))?;
    let tls = tls(target)?;
    let roots = match tls {
        Tls::Disable if target.ca.is_some() => {
            return Err(wrong(
                "database.tls_ca",
                "is of no use without database.tls = verify-full",
            ));
        }
        Tls::Disable => RootCertStore::empty(),
        Tls::VerifyFull => {
            if config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_))) {
                let why = "verify-full needs a host name, and the URL names a Unix socket";
                return Err(wrong("database.tls", why));
            }
            roots(target.ca)?
        }
    };
    config.ssl_mode(match tls {
        Tls::Disable => SslMode::Disable,
        // The driver's word for "never without". What is verified is the connector's business.
        Tls::VerifyFull => SslMode::Require,
    });
    Ok(Server { config, connector: connector(roots) })
}

/// What the setting and the URL say together.
fn tls(target: Target<'_>) -> Result<Tls, Misconfigured> {
    let wrong = |key, why: &str| Err(Misconfigured { key, why: why.into() });
    if word(target.url, "sslrootcert").is_some() {
        return wrong("database.url", "name the file in database.tls_ca, not in sslrootcert");
    }
    let in_url = match word(target.url, "sslmode") {
        None => None,
        Some("disable") => Some(Tls::Disable),
        Some("require" | "verify-ca" | "verify-full") => Some(Tls::VerifyFull),
        Some("allow" | "prefer") => {
            let why = "this sslmode goes on in plain text when the server offers no TLS: \
                       say disable or verify-full";
            return wrong("database.url", why);
        }
        Some(_) => return wrong("database.url", "sslmode must be disable or verify-full"),
    };
    match (target.tls, in_url) {
        (Some(set), Some(in_url)) if set != in_url => {
            wrong("database.tls", "contradicts sslmode in database.url: remove one of them")
        }
        (Some(tls), _) | (None, Some(tls)) => Ok(tls),
        (None, None) => Ok(Tls::Disable),
    }
}

/// The words of a connection URL that are settings of ours, and that the driver does not know all of.
const WORDS: [&str; 2] = ["sslmode", "sslrootcert"];

fn word<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    let mut parameters = parts(url).1?.split('&').filter_map(|pair| pair.split_once('='));
    parameters.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// The URL without the words that are ours, as the driver reads it. Its message is left out: it may
/// hold a part of the password.
pub(crate) fn config(url: &str) -> Option<tokio_postgres::Config> {
    // The driver's other form, "host=…", is not offered: its words would be a second grammar.
    url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))?;
    let (address, parameters) = parts(url);
    let ours = |pair: &&str| WORDS.contains(&pair.split('=').next().unwrap_or_default());
    let others = parameters.unwrap_or_default().split('&').filter(|pair| !ours(pair));
    let others: Vec<&str> = others.filter(|pair| !pair.is_empty()).collect();
    let config: tokio_postgres::Config = match others.as_slice() {
        [] => address.parse(),
        others => format!("{address}?{}", others.join("&")).parse(),
    }
    .ok()?;
    // Spelled in a way that only the driver understands, sslmode would be overruled.
    (config.get_ssl_mode() == SslMode::Prefer).then_some(config)
}

/// A password may hold a question mark; the driver ends it at the first @.
fn parts(url: &str) -> (&str, Option<&str>) {
    let host = url.find('@').unwrap_or(0);
    match url[host..].find('?') {
        Some(at) => (&url[..host + at], Some(&url[host + at + 1..])),
        None => (url, None),
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, Misconfigured> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return match roots.is_empty() {
            false => Ok(roots),
            true => Err(Misconfigured {
                key: "database.tls",
                why: "this system has no root certificates: install them, or set database.tls_ca"
                    .into(),
            }),
        };
    };
    let wrong = |why: String| Misconfigured { key: "database.tls_ca", why };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(format!("{} cannot be read: {error}", path.display())))?;
    for certificate in certificates {
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong(format!("{} holds no certificate", path.display())));
    }
    Ok(roots)
}

fn connector(roots: RootCertStore) -> MakeRustlsConnect {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("invariant: ring has what TLS 1.2 and 1.3 need")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Asked for by PostgreSQL 17 when TLS comes first (sslnegotiation=direct).
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    MakeRustlsConnect::new(config)
}
