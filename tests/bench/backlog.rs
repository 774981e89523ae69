//! An outbox with a backlog: filled in one go, and what the marks tell about how it was drained.

use anyhow::{Context, Result};
use harness::postgres::connect;
use tokio_postgres::Client;

// Two events an aggregate, in the order of their versions.
const FILL: &str = "INSERT INTO outbox (aggregate_id, aggregate_version, event_type, payload)
    SELECT 'charge-' || n / 2, n % 2 + 1, 'ChargeCreated', convert_to(rpad('{\"n\":' || n || '}', 240), 'UTF8')
    FROM generate_series(0, $1::bigint - 1) AS n";

/// What FILL gives the nth row.
pub fn aggregate_id(number: i64) -> String {
    format!("charge-{}", number / 2)
}

/// About as many bytes as a charge's event has.
pub fn payload(number: i64) -> String {
    format!("{:<240}", format!("{{\"n\":{number}}}"))
}

pub struct Backlog {
    pub client: Client,
    pub url: String,
}

impl Backlog {
    pub async fn open(url: String) -> Result<Self> {
        Ok(Self { client: connect(&url.parse()?).await?, url })
    }

    /// Empties the outbox and puts `rows` pending rows into it.
    pub async fn fill(&self, rows: i64) -> Result<()> {
        self.client.batch_execute("TRUNCATE outbox").await?;
        self.add(rows).await
    }

    /// Puts `rows` pending rows beside what is there.
    pub async fn add(&self, rows: i64) -> Result<()> {
        self.client.execute(FILL, &[&rows]).await.context("filling the outbox")?;
        self.settle().await
    }

    /// Makes `rows` published rows of the past.
    pub async fn add_published(&self, rows: i64) -> Result<()> {
        self.client.execute(FILL, &[&rows]).await.context("filling the outbox")?;
        let sql =
            "UPDATE outbox SET published_at = now() - interval '1 day' WHERE published_at IS NULL";
        self.client.execute(sql, &[]).await?;
        self.settle().await
    }

    async fn settle(&self) -> Result<()> {
        // Two statements: VACUUM runs in no transaction, which a text of several is.
        self.client.batch_execute("VACUUM ANALYZE outbox").await?;
        self.client.batch_execute("CHECKPOINT").await?;
        Ok(())
    }

    /// Rows a second of the last drain, from its first mark to its last: without the start of the
    /// process.
    pub async fn rate(&self) -> Result<f64> {
        let sql = "WITH drain AS (
                 SELECT published_at, count(*) AS rows FROM outbox
                 WHERE published_at > now() - interval '1 hour' GROUP BY published_at
             )
             SELECT (sum(rows) FILTER (WHERE published_at > first)
                     / extract(epoch FROM max(published_at) - first))::float8
             FROM drain, (SELECT min(published_at) AS first FROM drain) AS start
             GROUP BY first";
        Ok(self.client.query_one(sql, &[]).await?.get(0))
    }

    /// Rows a second over the first and over the last `rows` rows of a drain.
    pub async fn first_and_last_rate(&self, rows: i64) -> Result<(f64, f64)> {
        let sql = "SELECT ($1 / extract(epoch FROM max(published_at) - min(published_at)))::float8
             FROM (SELECT published_at FROM outbox ORDER BY published_at LIMIT $1::bigint) AS part
             UNION ALL
             SELECT ($1 / extract(epoch FROM max(published_at) - min(published_at)))::float8
             FROM (SELECT published_at FROM outbox ORDER BY published_at DESC LIMIT $1::bigint) AS part";
        let rates = self.client.query(sql, &[&rows]).await?;
        let [first, last] = &rates[..] else { unreachable!("invariant: two selects, two rows") };
        Ok((first.get(0), last.get(0)))
    }
}
