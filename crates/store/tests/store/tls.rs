//! The way to the database, against a private server with a certificate of its own authority.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::{Uid, User};
use settings::Secret;
use store::{DatabaseSettings, Pool, Statement, Tls, migrate};
use tempfile::TempDir;

const IN_USE: Statement = Statement::new(
    "ask for the protection",
    "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
);

#[tokio::test]
async fn a_verified_server_is_used_and_any_other_is_refused_with_the_reason() {
    let server = Server::start().await;
    let ca = server.path("ca.pem");

    let pool = Pool::new(&server.settings("db.test", Some(&ca)), "tls").unwrap();
    let row = pool.get().await.unwrap().query_opt(&IN_USE, &[]).await.unwrap().unwrap();
    assert!(row.get::<_, bool>(0), "the connection is encrypted");
    migrate::run(&server.settings("db.test", Some(&ca))).await.unwrap();

    for (host, ca, reason) in [
        ("other.test", "ca.pem", "not valid for name"),
        ("127.0.0.1", "ca.pem", "not valid for name"),
        ("db.test", "stranger.pem", "UnknownIssuer"),
    ] {
        let settings = server.settings(host, Some(&server.path(ca)));
        let refused = Pool::new(&settings, "tls").unwrap().get().await.err().unwrap();
        assert!(chain(&refused).contains(reason), "{host}, {ca}: {}", chain(&refused));
        let refused = migrate::run(&settings).await.unwrap_err();
        assert!(chain(&refused).contains(reason), "{host}, {ca}: {}", chain(&refused));
    }

    // The roots of the system know nothing of this authority.
    match Pool::new(&server.settings("db.test", None), "tls") {
        Ok(pool) => {
            let refused = chain(&pool.get().await.err().unwrap());
            assert!(refused.contains("UnknownIssuer"), "{refused}");
        }
        Err(error) => assert!(chain(&error).contains("no root certificates"), "{error:?}"),
    }

    let off = "ALTER SYSTEM SET ssl = off";
    server.client().await.batch_execute(off).await.unwrap();
    server.client().await.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let refused = async {
        loop {
            let pool = Pool::new(&server.settings("db.test", Some(&ca)), "tls").unwrap();
            // The server takes its new settings when it comes to it.
            if let Err(refused) = pool.get().await {
                break chain(&refused);
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(60), refused).await.unwrap();
    assert!(refused.contains("server does not support TLS"), "{refused}");
}

#[test]
fn words_of_the_url_mean_what_they_promise_or_are_refused() {
    let read = |url: &str, more: &[(&str, &str)]| {
        let more = more.iter().copied();
        let env: Vec<_> = [("DATABASE_URL", url)].into_iter().chain(more).collect();
        settings::load::<DatabaseSettings>(None, &env).map_err(|problems| problems.to_string())
    };
    let roots = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store/authority.pem");
    let tls = |mode| [("ONCEBOX_DATABASE_TLS", mode), ("ONCEBOX_DATABASE_TLS_CA", roots)];
    let ca = [("ONCEBOX_DATABASE_TLS_CA", roots)];
    let url = "postgres://user:hidden?word@host/name";

    for (mode, more) in [
        ("", &[][..]),
        ("?sslmode=disable", &[]),
        ("?sslmode=disable&application_name=x", &tls("disable")[..1]),
        ("", &tls("verify-full")),
        ("?application_name=x&sslmode=verify-full", &ca),
        ("?sslmode=require", &ca),
        ("?sslmode=verify-ca", &tls("verify-full")),
    ] {
        read(&format!("{url}{mode}"), more).unwrap();
    }
    for (mode, more, key, reason) in [
        ("?sslmode=prefer", &[][..], "database.url", "plain text"),
        ("?sslmode=allow", &tls("verify-full"), "database.url", "plain text"),
        ("?sslmode=sometimes", &[], "database.url", "must be disable or verify-full"),
        ("?sslmode=require", &tls("disable")[..1], "database.tls", "contradicts sslmode"),
        ("?sslmode=disable", &tls("verify-full"), "database.tls", "contradicts sslmode"),
        ("?sslrootcert=/ca.pem", &[], "database.url", "database.tls_ca"),
        ("", &ca, "database.tls_ca", "of no use"),
        ("", &tls("disable"), "database.tls_ca", "of no use"),
        ("?%73slmode=require", &[], "database.url", "is wrong"),
        ("?host=/run/postgresql", &tls("verify-full"), "database.tls", "Unix socket"),
    ] {
        let problems = read(&format!("{url}{mode}"), more).unwrap_err();
        assert!(problems.contains(key) && problems.contains(reason), "{mode}: {problems}");
        assert!(!problems.contains("hidden"), "{problems}");
    }
    let missing = [("ONCEBOX_DATABASE_TLS", "verify-full"), ("ONCEBOX_DATABASE_TLS_CA", "/none")];
    let problems = read(url, &missing).unwrap_err();
    assert!(problems.contains("/none cannot be read"), "{problems}");
    assert!(read("host=localhost sslmode=require", &[]).is_err());
}

/// A PostgreSQL for the name `db.test`, gone with this value.
struct Server {
    home: TempDir,
    port: u16,
    process: Child,
}

impl Server {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        certificates(home.path());
        let user =
            Uid::effective().is_root().then(|| User::from_name("postgres").unwrap().unwrap());
        let data = home.path().join("data");
        fs::create_dir(&data).unwrap();
        for path in
            [home.path(), &data, &home.path().join("server.key"), &home.path().join("password")]
        {
            if let Some(user) = &user {
                chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
            }
        }
        let log = File::create(home.path().join("log")).unwrap();
        let program = |name: &str| {
            // It does not outlive the test, however that ends.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(binaries().join(name));
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap());
            command.stderr(log.try_clone().unwrap()).current_dir(home.path());
            if let Some(user) = &user {
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            command
        };
        let mut initdb = program("initdb");
        initdb.args(["--auth=scram-sha-256", "--username=oncebox", "--pwfile=password"]);
        let made = initdb.args(["--no-sync", "--pgdata=data"]).status().unwrap();
        assert!(made.success(), "{}", fs::read_to_string(home.path().join("log")).unwrap());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut postgres = program("postgres");
        postgres.args(["-D", "data", "-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        // In the file, because what the command line says cannot be changed.
        let file = data.join("postgresql.conf");
        let ssl = "ssl = on\nssl_cert_file = '../server.pem'\nssl_key_file = '../server.key'\n";
        fs::write(&file, fs::read_to_string(&file).unwrap() + ssl).unwrap();
        let sockets = format!("unix_socket_directories={}", home.path().display());
        let process = postgres.args(["-c", &sockets, "-c", "fsync=off"]).spawn().unwrap();
        let server = Self { home, port, process };
        let up = async { while server.connect().await.is_none() {} };
        if tokio::time::timeout(Duration::from_secs(60), up).await.is_err() {
            panic!("{}", fs::read_to_string(server.path("log")).unwrap());
        }
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The server under this name, whatever its certificate says.
    fn settings(&self, host: &str, ca: Option<&Path>) -> DatabaseSettings {
        let url =
            format!("postgres://oncebox:secret@{host}:{}/postgres?hostaddr=127.0.0.1", self.port);
        DatabaseSettings {
            url: Secret::new(url),
            tls: Some(Tls::VerifyFull),
            tls_ca: ca.map(Path::to_owned),
            pool_max: 1,
            connect_timeout: Duration::from_secs(20),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(1),
        }
    }

    async fn connect(&self) -> Option<tokio_postgres::Client> {
        let url = format!("postgres://oncebox:secret@127.0.0.1:{}/postgres", self.port);
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    async fn client(&self) -> tokio_postgres::Client {
        self.connect().await.expect("the server answers")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

/// An authority, a certificate of it for `db.test`, and another authority.
fn certificates(home: &Path) {
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(home).output();
        let made = made.expect("openssl is there");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for name in ["ca", "stranger"] {
        openssl(&format!(
            "req -x509 {key} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}"
        ));
    }
    openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=db.test"));
    fs::write(home.join("names"), "subjectAltName=DNS:db.test\n").unwrap();
    let sign = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names";
    openssl(&format!("x509 -req -in server.csr {sign} -out server.pem"));
    fs::set_permissions(home.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(home.join("password"), "secret").unwrap();
}

fn binaries() -> PathBuf {
    let output = Command::new("pg_config").arg("--bindir").output().ok();
    let configured = output.map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim()));
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut all = configured.into_iter().chain(debian.map(|entry| entry.path().join("bin")));
    all.find(|path| path.join("initdb").is_file()).expect("PostgreSQL's programs are installed")
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
