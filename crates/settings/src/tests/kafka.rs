//! How the brokers are spoken to: what librdkafka is told, and what is refused.

use crate::KafkaSecurity;

fn lines(env: &[(&str, &str)]) -> Vec<String> {
    let problems = crate::load::<KafkaSecurity>(None, env).unwrap_err();
    problems.iter().map(|problem| format!("{} {}", problem.key, problem.why)).collect()
}

#[test]
fn librdkafka_is_told_what_is_set_and_nothing_else() {
    let env = [
        ("ONCEBOX_KAFKA_SECURITY_PROTOCOL", "sasl_ssl"),
        ("ONCEBOX_KAFKA_SASL_MECHANISM", "SCRAM-SHA-512"),
        ("ONCEBOX_KAFKA_SASL_USERNAME", "relay"),
        ("ONCEBOX_KAFKA_SASL_PASSWORD", "hunter2"),
        ("ONCEBOX_KAFKA_SSL_CA_LOCATION", "/ca.pem"),
        ("ONCEBOX_KAFKA_SSL_CERTIFICATE_LOCATION", "/client.pem"),
        ("ONCEBOX_KAFKA_SSL_KEY_LOCATION", "/client.key"),
        ("ONCEBOX_KAFKA_SSL_KEY_PASSWORD", "hunter3"),
    ];
    let told = |env: &[_]| {
        let properties = crate::load::<KafkaSecurity>(None, env).unwrap().properties();
        properties.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };

    assert_eq!(
        told(&env),
        [
            "security.protocol=sasl_ssl",
            "sasl.mechanism=SCRAM-SHA-512",
            "sasl.username=relay",
            "sasl.password=hunter2",
            "ssl.ca.location=/ca.pem",
            "ssl.certificate.location=/client.pem",
            "ssl.key.location=/client.key",
            "ssl.key.password=hunter3",
        ]
    );
    assert_eq!(told(&[]), ["security.protocol=plaintext"]);
}

#[test]
fn contradictions_are_refused_together() {
    assert_eq!(
        lines(&[("ONCEBOX_KAFKA_SECURITY_PROTOCOL", "sasl_plaintext")]),
        ["mechanism", "username", "password"]
            .map(|it| format!("kafka.sasl_{it} is required by kafka.security_protocol"))
    );
    assert_eq!(
        lines(&[
            ("ONCEBOX_KAFKA_SASL_USERNAME", "u"),
            ("ONCEBOX_KAFKA_SSL_CA_LOCATION", "/ca.pem"),
            ("ONCEBOX_KAFKA_SSL_CERTIFICATE_LOCATION", "/client.pem"),
        ]),
        [
            "kafka.sasl_username has no use without a sasl_ kafka.security_protocol",
            "kafka.ssl_ca_location has no use without ssl or sasl_ssl as kafka.security_protocol",
            "kafka.ssl_certificate_location has no use without ssl or sasl_ssl as \
             kafka.security_protocol",
            "kafka.ssl_key_location is required by kafka.ssl_certificate_location",
        ]
    );
    let ssl = ("ONCEBOX_KAFKA_SECURITY_PROTOCOL", "ssl");
    assert_eq!(
        lines(&[ssl, ("ONCEBOX_KAFKA_SSL_KEY_LOCATION", "/client.key")]),
        ["kafka.ssl_certificate_location is required by kafka.ssl_key_location"]
    );
    assert_eq!(
        lines(&[ssl, ("ONCEBOX_KAFKA_SSL_KEY_PASSWORD", "hunter2")]),
        ["kafka.ssl_key_password has no use without kafka.ssl_key_location"]
    );
}
