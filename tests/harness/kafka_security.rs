//! A Kafka whose clients are not believed: a second listener with TLS and a password for each user,
//! and rules for what a user may do.
//!
//! Who comes by the plain listener may do everything: the brokers among themselves, and the harness.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::kafka::{Kafka, java};
use crate::kafka_jars::Jars;
use crate::logs::Log;
use crate::process::{Process, Spec};
use crate::run_dir::RunDir;

/// Every user's.
pub const PASSWORD: &str = "correct-horse";
/// A Java program that asks a broker for one thing.
const RULE_LIMIT: Duration = Duration::from_secs(60);

/// What a cluster needs to be told.
pub struct Security {
    home: PathBuf,
    users: Vec<String>,
}

impl Security {
    /// An authority, a certificate of it for 127.0.0.1, and an authority that signed nothing.
    pub fn create(home: &Path, users: &[&str]) -> Result<Self> {
        fs::create_dir_all(home)?;
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        for name in ["ca", "stranger"] {
            let subject = format!("-days 2 -subj /CN={name}");
            openssl(
                home,
                &format!("req -x509 {key} -keyout {name}.key -out {name}.pem {subject}"),
            )?;
        }
        openssl(home, &format!("req {key} -keyout broker.key -out broker.csr -subj /CN=broker"))?;
        fs::write(home.join("names"), "subjectAltName=IP:127.0.0.1\n")?;
        let sign = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names";
        openssl(home, &format!("x509 -req -in broker.csr {sign} -out broker.pem"))?;
        let read = |name| fs::read_to_string(home.join(name));
        fs::write(home.join("keystore.pem"), read("broker.key")? + &read("broker.pem")?)?;
        let users = users.iter().map(|&user| user.to_owned()).collect();
        Ok(Self { home: home.to_owned(), users })
    }

    /// Further lines of `server.properties`.
    pub(crate) fn properties(&self) -> String {
        format!(
            "listener.security.protocol.map=\
             PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={}\n\
             sasl.enabled.mechanisms=SCRAM-SHA-512\n\
             listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n",
            self.home.join("keystore.pem").display()
        )
    }

    /// Further arguments of `kafka-storage format`: the users.
    pub(crate) fn format_arguments(&self) -> impl Iterator<Item = String> {
        self.users.iter().flat_map(|user| {
            let credential = format!("SCRAM-SHA-512=[name={user},password={PASSWORD}]");
            ["--add-scram".to_owned(), credential]
        })
    }
}

/// One broker, gone with this value.
pub struct SecuredKafka {
    kafka: Kafka,
    security: Security,
    jars: Jars,
    log: Log,
    // Dropped last: nothing writes to it any more.
    _run_dir: RunDir,
}

impl SecuredKafka {
    /// Users exist from the start, and may do nothing yet.
    pub async fn start(logs: &Path, users: &[&str]) -> Result<Self> {
        let (jars, run_dir) = (Jars::find()?, RunDir::create()?);
        let security = Security::create(&run_dir.path().join("security"), users)?;
        let home = run_dir.path().join("kafka");
        let kafka = Kafka::start(&jars, &home, logs, 1, Some(&security)).await?;
        let log = Log::new(logs, "kafka-acls");
        Ok(Self { kafka, security, jars, log, _run_dir: run_dir })
    }

    /// The plain listener.
    pub fn brokers(&self) -> String {
        self.kafka.brokers()
    }

    /// The authority of the broker's certificate.
    pub fn authority(&self) -> PathBuf {
        self.security.home.join("ca.pem")
    }

    /// An authority that knows nothing of the broker.
    pub fn stranger(&self) -> PathBuf {
        self.security.home.join("stranger.pem")
    }

    /// What brings a service to the other listener, as this user.
    pub fn environment(
        &self,
        user: &str,
        password: &str,
        authority: &Path,
    ) -> [(String, String); 6] {
        [
            ("KAFKA_BROKERS", self.kafka.secured_brokers()),
            ("ONCEBOX_KAFKA_SECURITY_PROTOCOL", "sasl_ssl".into()),
            ("ONCEBOX_KAFKA_SASL_MECHANISM", "SCRAM-SHA-512".into()),
            ("ONCEBOX_KAFKA_SASL_USERNAME", user.into()),
            ("ONCEBOX_KAFKA_SASL_PASSWORD", password.into()),
            ("ONCEBOX_KAFKA_SSL_CA_LOCATION", authority.display().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// Adds a rule, in the words of `kafka-acls`, for example `--operation Write --topic t`.
    pub async fn allow(&self, user: &str, rule: &str) -> Result<()> {
        let (brokers, principal) = (self.brokers(), format!("User:{user}"));
        let mut words =
            vec!["org.apache.kafka.tools.AclCommand", "--bootstrap-server", &brokers, "--add"];
        words.extend(["--allow-principal", &principal]);
        words.extend(rule.split(' '));
        let argv = java(&self.jars, 1, &words)?;
        let spec = Spec::server("kafka-acls", argv, self.log.path().to_owned());
        let status = Process::spawn(&spec)?.wait(RULE_LIMIT).await.context("kafka-acls hangs")?;
        ensure!(status.success(), "kafka-acls ended with {status}\n{}", self.log.tail());
        Ok(())
    }

    pub async fn stop(mut self) -> Result<()> {
        self.kafka.stop().await
    }
}

fn openssl(home: &Path, arguments: &str) -> Result<()> {
    let made = Command::new("openssl").args(arguments.split(' ')).current_dir(home).output();
    let made = made.context("starting openssl: run deploy/local/prerequisites.sh test")?;
    ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}
