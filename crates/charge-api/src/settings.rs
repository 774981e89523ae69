//! What an operator can set, and what is refused before anything starts.

use std::net::SocketAddr;
use std::time::Duration;

use domain::{AmountCents, Currency};
use settings::{ByteSize, FromSetting, Group, Reader, Retention};
use store::DatabaseSettings;
use store::idempotency_keys::Lifetime;
use telemetry::{AdminSettings, LogSettings};

use shutdown::ShutdownSettings;

use crate::jobs::JobsSettings;

#[derive(Debug, Clone)]
pub struct Settings {
    pub http: HttpSettings,
    pub api_keys: ApiKeySettings,
    pub limits: LimitSettings,
    pub charges: ChargeSettings,
    pub idempotency: IdempotencySettings,
    pub batch: BatchSettings,
    pub jobs: JobsSettings,
    pub database: DatabaseSettings,
    pub admin: AdminSettings,
    pub log: LogSettings,
    pub shutdown: ShutdownSettings,
}

settings::choice! {
    /// How a caller proves who it is.
    pub enum Auth {
        /// It does not: everybody is the tenant `default`.
        Disabled = "disabled",
        /// By an API key that `oncebox keys` has made, in `Authorization: Bearer`.
        ApiKeys = "api_keys",
    }
}

settings::group! {
    /// The public port.
    pub struct HttpSettings {
        /// Address of the public port.
        listen: SocketAddr = "http.listen", default "127.0.0.1:8080",
            "an IP address and port (0: any free port)";
        /// How callers are authenticated; disabled is for a loopback address only.
        auth: Auth = "auth", required, "disabled or api_keys";
        /// Threads that serve requests; the database does most of the work.
        workers: u16 = "http.workers", default "2", "an integer from 1 to 64", range 1..=64;
        /// Most connections at a time; further ones wait to be accepted.
        connections_max: u32 = "http.connections_max", default "10000",
            "an integer from 1 to 1000000", range 1..=1_000_000;
        /// Largest head of a request: its target and its headers.
        head_max: ByteSize = "http.head_max", default "16KiB",
            "a size from 8KiB to 32KiB", range ByteSize::kib(8)..=ByteSize::kib(32);
        /// When a head that is still arriving is given up, and a new connection that sends none.
        head_timeout: Duration = "http.head_timeout", default "5s",
            "a duration from 100ms to 10m", range Duration::from_millis(100)..=Duration::from_secs(600);
        /// How long a connection is kept between two requests: longer than the 60s after which load
        /// balancers commonly let go of theirs, so that none sends into a closing one.
        keep_alive: Duration = "http.keep_alive", default "75s",
            "a duration from 100ms to 1h", range Duration::from_millis(100)..=Duration::from_secs(3600);
        /// When a client that takes nothing of its answer is given up.
        send_timeout: Duration = "http.send_timeout", default "10s",
            "a duration from 100ms to 10m", range Duration::from_millis(100)..=Duration::from_secs(600);
        /// When a request is answered 503 whatever it waits for.
        deadline: Duration = "http.deadline", default "10s",
            "a duration from 100ms to 10m", range Duration::from_millis(100)..=Duration::from_secs(600);
        /// When a body that is still arriving is given up.
        body_timeout: Duration = "http.body_timeout", default "5s",
            "a duration from 100ms to 10m", range Duration::from_millis(100)..=Duration::from_secs(600);
        /// Largest body of a request.
        body_max: ByteSize = "http.body_max", default "16KiB",
            "a size from 1KiB to 1MiB", range ByteSize::kib(1)..=ByteSize::mib(1);
    }
}

settings::group! {
    /// API keys, with auth = api_keys.
    pub struct ApiKeySettings {
        /// How long a key that was found good counts as good: a revoked or expired key may work for
        /// as long as that. 0s asks the database every time.
        cache_ttl: Duration = "api_keys.cache_ttl", default "2s",
            "a duration from 0s to 60s", range Duration::ZERO..=Duration::from_secs(60);
    }
}

settings::group! {
    /// What one tenant may use, in each process.
    pub struct LimitSettings {
        /// Requests a second of one tenant; 0: any number.
        requests_per_second: u32 = "limits.requests_per_second", default "0",
            "an integer from 0 to 1000000", range 0..=1_000_000;
        /// Requests that may come at once; 0: as many as a second has.
        burst: u32 = "limits.burst", default "0", "an integer from 0 to 1000000", range 0..=1_000_000;
        /// Idempotency keys that are kept of one tenant at a time; 0: any number. An expired key counts
        /// until the retention job has removed it.
        live_keys: u32 = "limits.live_keys", default "0",
            "an integer from 0 to 1000000000", range 0..=1_000_000_000;
    }
}

settings::group! {
    /// What may be charged.
    pub struct ChargeSettings {
        /// Currency of a charge that names none.
        default_currency: DefaultCurrency = "charges.default_currency", default "BRL",
            "an ISO 4217 code in upper case";
        /// Largest amount of one charge, in minor units.
        amount_max: i64 = "charges.amount_max", default "999999999999",
            "an integer from 1 to 9007199254740991", range 1..=AmountCents::LIMIT;
    }
}

settings::choice! {
    /// What an idempotency key means once its retention is over.
    pub enum AfterExpiry {
        /// Nothing: it is new again, and the retention job removes it.
        New = "new",
        /// That it was used: 409 with a link to the charge, for ever. The row stays.
        Tombstone = "tombstone",
    }
}

settings::group! {
    /// Idempotency keys.
    pub struct IdempotencySettings {
        /// How long a key is kept. A client may retry that long without charging twice.
        retention: Retention = "idempotency.retention", default "24h", "a duration such as 24h, or never";
        /// What an expired key gets. The same in every process: one with `new` takes expired keys over
        /// and removes them.
        after_expiry: AfterExpiry = "idempotency.after_expiry", default "new", "new or tombstone";
        /// How long a second request waits for the first one's answer before it gets 409: long
        /// enough for a commit that goes well.
        in_flight_wait: Duration = "idempotency.in_flight_wait", default "25ms",
            "a duration from 0ms to 1s", range Duration::ZERO..=Duration::from_secs(1);
        /// How long it waits at most when it asks to, by `Prefer: wait=N`. In whole seconds, and
        /// below http.deadline.
        wait_max: Duration = "idempotency.wait_max", default "5s",
            "a duration from 0s to 60s", range Duration::ZERO..=Duration::from_secs(60);
    }
}

settings::group! {
    /// The committer, which writes the charges that wait in one statement.
    pub struct BatchSettings {
        /// Most charges in one statement.
        max: u16 = "batch.max", default "128", "an integer from 1 to 1000", range 1..=1000;
        /// Statements at a time. With one the batches are largest and the commits fewest, which is
        /// the fastest; with `batch.max = 1` as many as the database has cores times eight.
        connections: u16 = "batch.connections", default "1", "an integer from 1 to 64", range 1..=64;
        /// Most charges that wait for their batch, and most that are written by themselves after
        /// their batch has failed; further ones are answered 503.
        queue: u32 = "batch.queue", default "4096", "an integer from 1 to 1000000", range 1..=1_000_000;
    }
}

impl IdempotencySettings {
    pub fn lifetime(&self) -> Lifetime {
        let tombstone = self.after_expiry == AfterExpiry::Tombstone;
        Lifetime { retention: self.retention.0, tombstone }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultCurrency(pub Currency);

impl FromSetting for DefaultCurrency {
    fn from_setting(text: &str) -> Result<Self, String> {
        Currency::parse(text).map(Self).ok_or_else(|| "is not one".into())
    }
}

impl Group for Settings {
    fn read(reader: &mut Reader) -> Option<Self> {
        reader.default("admin.listen", "127.0.0.1:9080");
        let (http, charges) = (reader.group::<HttpSettings>(), reader.group());
        let (api_keys, limits) = (reader.group(), reader.group::<LimitSettings>());
        let (idempotency, batch) = (reader.group::<IdempotencySettings>(), reader.group());
        let (jobs, database, admin) = (reader.group(), reader.group(), reader.group());
        let (log, shutdown) = (reader.group(), reader.group());
        if let Some(http) = &http
            && http.auth == Auth::Disabled
            && !http.listen.ip().is_loopback()
        {
            reader.problem(
                "auth",
                "disabled would let anybody charge: it is for a loopback http.listen only",
            );
        }
        if let (Some(http), Some(idempotency)) = (&http, &idempotency)
            && idempotency.wait_max >= http.deadline
        {
            reader.problem("idempotency.wait_max", "must be shorter than http.deadline");
        }
        if let Some(limits) = &limits
            && limits.burst > 0
            && limits.requests_per_second == 0
        {
            reader.problem("limits.burst", "is of no use without limits.requests_per_second");
        }
        if let (Some(limits), Some(idempotency)) = (&limits, &idempotency)
            && limits.live_keys > 0
            && idempotency.after_expiry == AfterExpiry::Tombstone
        {
            reader.problem(
                "limits.live_keys",
                "would be used up for ever by the keys that idempotency.after_expiry = tombstone keeps",
            );
        }
        Some(Self {
            http: http?,
            api_keys: api_keys?,
            limits: limits?,
            charges: charges?,
            idempotency: idempotency?,
            batch: batch?,
            jobs: jobs?,
            database: database?,
            admin: admin?,
            log: log?,
            shutdown: shutdown?,
        })
    }
}
