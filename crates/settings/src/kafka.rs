//! How Kafka's brokers are spoken to: the same for everything that speaks to them.

use std::path::PathBuf;

use crate::Secret;

crate::choice! {
    /// Whether the way to the brokers is encrypted (TLS), and whether a client authenticates itself
    /// (SASL).
    pub enum SecurityProtocol {
        Plaintext = "plaintext",
        Ssl = "ssl",
        SaslPlaintext = "sasl_plaintext",
        SaslSsl = "sasl_ssl",
    }
}

crate::choice! {
    /// How a password is shown to the brokers.
    pub enum SaslMechanism {
        Plain = "PLAIN",
        ScramSha256 = "SCRAM-SHA-256",
        ScramSha512 = "SCRAM-SHA-512",
    }
}

crate::group! {
    /// Encryption and authentication.
    pub struct KafkaSecurity {
        /// How the brokers are spoken to.
        protocol: SecurityProtocol = "kafka.security_protocol", default "plaintext",
            "plaintext, ssl, sasl_plaintext or sasl_ssl";
        /// How this client authenticates itself.
        sasl_mechanism: Option<SaslMechanism> = "kafka.sasl_mechanism", optional,
            "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512";
        /// SASL user.
        sasl_username: Option<String> = "kafka.sasl_username", optional, "a text";
        /// SASL password.
        sasl_password: Option<Secret> = "kafka.sasl_password", optional, "a text";
        /// Certificates that the brokers' must be signed by; unset: the system's.
        ssl_ca_location: Option<PathBuf> = "kafka.ssl_ca_location", optional, "the path of a PEM file";
        /// Certificate of this client.
        ssl_certificate_location: Option<PathBuf> = "kafka.ssl_certificate_location", optional,
            "the path of a PEM file";
        /// Private key of this client.
        ssl_key_location: Option<PathBuf> = "kafka.ssl_key_location", optional, "the path of a PEM file";
        /// Password of the private key.
        ssl_key_password: Option<Secret> = "kafka.ssl_key_password", optional, "a text";
    }
    check contradictions
}

impl KafkaSecurity {
    /// These settings under librdkafka's names. The secrets among them are in clear.
    pub fn properties(&self) -> Vec<(String, String)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|it| it.display().to_string());
        let secret = |secret: &Option<Secret>| secret.as_ref().map(|it| it.expose().to_owned());
        let properties = [
            ("security.protocol", Some(self.protocol.as_str().to_owned())),
            ("sasl.mechanism", self.sasl_mechanism.map(|it| it.as_str().to_owned())),
            ("sasl.username", self.sasl_username.clone()),
            ("sasl.password", secret(&self.sasl_password)),
            ("ssl.ca.location", path(&self.ssl_ca_location)),
            ("ssl.certificate.location", path(&self.ssl_certificate_location)),
            ("ssl.key.location", path(&self.ssl_key_location)),
            ("ssl.key.password", secret(&self.ssl_key_password)),
        ];
        properties.into_iter().filter_map(|(name, value)| Some((name.into(), value?))).collect()
    }
}

/// librdkafka would take most of these in silence, and connect in another way than was meant.
fn contradictions(security: &KafkaSecurity) -> Vec<(&'static str, String)> {
    let (sasl, ssl) = match security.protocol {
        SecurityProtocol::Plaintext => (false, false),
        SecurityProtocol::Ssl => (false, true),
        SecurityProtocol::SaslPlaintext => (true, false),
        SecurityProtocol::SaslSsl => (true, true),
    };
    let certificate = security.ssl_certificate_location.is_some();
    let key = security.ssl_key_location.is_some();
    let key_password = security.ssl_key_password.is_some();
    let mut found = Vec::new();
    for (name, given) in [
        ("kafka.sasl_mechanism", security.sasl_mechanism.is_some()),
        ("kafka.sasl_username", security.sasl_username.is_some()),
        ("kafka.sasl_password", security.sasl_password.is_some()),
    ] {
        if sasl && !given {
            found.push((name, "is required by kafka.security_protocol"));
        } else if given && !sasl {
            found.push((name, "has no use without a sasl_ kafka.security_protocol"));
        }
    }
    for (name, given) in [
        ("kafka.ssl_ca_location", security.ssl_ca_location.is_some()),
        ("kafka.ssl_certificate_location", certificate),
        ("kafka.ssl_key_location", key),
        ("kafka.ssl_key_password", key_password),
    ] {
        if given && !ssl {
            found.push((name, "has no use without ssl or sasl_ssl as kafka.security_protocol"));
        }
    }
    if certificate && !key {
        found.push(("kafka.ssl_key_location", "is required by kafka.ssl_certificate_location"));
    }
    if key && !certificate {
        found.push(("kafka.ssl_certificate_location", "is required by kafka.ssl_key_location"));
    }
    if key_password && !key {
        found.push(("kafka.ssl_key_password", "has no use without kafka.ssl_key_location"));
    }
    found.into_iter().map(|(name, why)| (name, why.to_owned())).collect()
}
