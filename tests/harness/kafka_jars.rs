//! Apache Kafka's jars: those of `KAFKA_HOME`, else copied once into the checkout by Maven.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::checkout;

/// The jars, and where they come from in words.
pub struct Jars {
    pub dir: PathBuf,
    pub origin: String,
}

impl Jars {
    pub fn find() -> Result<Self> {
        if let Ok(home) = std::env::var("KAFKA_HOME") {
            // Servers run in another directory than we do.
            let dir = std::path::absolute(Path::new(&home).join("libs"))?;
            ensure!(dir.is_dir(), "KAFKA_HOME is set, and {} is no directory", dir.display());
            return Ok(Self { dir, origin: format!("KAFKA_HOME {home}") });
        }
        let root = checkout::root()?;
        let dir = root.join(".local/kafka");
        if !is_current(&root, &dir) {
            fetch(&root, &dir)?;
        }
        Ok(Self { dir, origin: "Maven".to_owned() })
    }

    /// The version by the name of the broker's own jar.
    pub fn version(&self) -> String {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let version = names.find_map(|name| {
            let rest = name.strip_prefix("kafka-server-")?.strip_suffix(".jar")?;
            rest.starts_with(|c: char| c.is_ascii_digit()).then(|| rest.to_owned())
        });
        version.unwrap_or_else(|| "of unknown version".to_owned())
    }
}

fn pom(root: &Path) -> PathBuf {
    root.join("deploy/local/kafka/pom.xml")
}

/// The pom lies beside the jars it brought: another one brings other jars.
fn is_current(root: &Path, dir: &Path) -> bool {
    let wanted = fs::read(pom(root)).ok();
    wanted.is_some() && wanted == fs::read(dir.join("pom.xml")).ok()
}

#[expect(clippy::print_stderr, reason = "a download of half a minute must not look like a hang")]
fn fetch(root: &Path, dir: &Path) -> Result<()> {
    eprintln!("Apache Kafka: copying its jars into {} (once) …", dir.display());
    // Complete or absent: whoever else looks meanwhile never sees half of them.
    let parent = dir.parent().expect("invariant: joined above");
    fs::create_dir_all(parent)?;
    let fresh = tempfile::Builder::new().prefix("kafka-").tempdir_in(parent)?;
    let status = Command::new("mvn")
        .args(["-q", "-B", "-f"])
        .arg(pom(root))
        .arg("dependency:copy-dependencies")
        .arg(format!("-DoutputDirectory={}", fresh.path().display()))
        .status()
        .context("starting mvn: run deploy/local/prerequisites.sh, or set KAFKA_HOME")?;
    ensure!(
        status.success(),
        "Maven could not copy Kafka's jars ({status}); its message is above. Without a way to \
         Maven's repository, set KAFKA_HOME to an unpacked Kafka 4, or KAFKA_BROKERS to a running one"
    );
    fs::copy(pom(root), fresh.path().join("pom.xml"))?;
    let fresh = fresh.keep();
    if fs::rename(&fresh, dir).is_err() {
        // An older set is in the way, or another run was faster.
        if is_current(root, dir) {
            return fs::remove_dir_all(fresh).context("removing a second copy of the jars");
        }
        fs::remove_dir_all(dir).context("removing the older jars")?;
        fs::rename(&fresh, dir).context("putting the new jars in place")?;
    }
    Ok(())
}
