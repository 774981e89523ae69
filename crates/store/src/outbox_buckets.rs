//! Which relay relays which bucket, and which relays are alive: leases by the database's clock.
//!
//! A lease is renewed by its owner only. One that ran out and that nobody took is still its
//! owner's, under the same epoch; every change of owner raises the epoch.

use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&REPORT, &RENEW, &CLAIM, &RELEASE, &LEAVE];

/// A bucket in the hands of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub bucket: i16,
    pub epoch: i64,
}

/// Those who share the buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Relays alive that take buckets, the one that asks included if it does.
    pub relays: i64,
    pub buckets: i64,
    /// The relay that asks takes none: it is `single`, and an older one is alive.
    pub stands_by: bool,
}

// A relay that died without leaving is counted for one lease more, and its row is removed by
// whichever relay reports after that. Ids are UUIDv7: the lowest is the oldest.
const REPORT: Statement = Statement::new(
    "report a relay as alive",
    "WITH reported AS (
         INSERT INTO outbox_relays AS r (id, alive_until, stands_by)
         SELECT $1,
                clock_timestamp() + make_interval(secs => $2),
                $3 AND EXISTS (
                    SELECT FROM outbox_relays WHERE id < $1 AND alive_until >= clock_timestamp()
                )
         ON CONFLICT (id) DO UPDATE
         SET alive_until = excluded.alive_until, stands_by = excluded.stands_by
         RETURNING stands_by
     ),
     buried AS (
         DELETE FROM outbox_relays
         WHERE id IN (
             SELECT id FROM outbox_relays
             WHERE id <> $1 AND alive_until < clock_timestamp()
             FOR UPDATE SKIP LOCKED
         )
     ),
     others AS (
         SELECT count(*) AS taking
         FROM outbox_relays
         WHERE id <> $1 AND alive_until >= clock_timestamp() AND NOT stands_by
     )
     SELECT others.taking + (NOT reported.stands_by)::integer,
            (SELECT count(*) FROM outbox_buckets),
            reported.stands_by
     FROM reported, others",
);

/// Says that the relay is alive for one lease more, and counts those who are. One that is
/// `single` takes no bucket while an older relay is alive.
///
/// # Errors
/// [`Error::Statement`]; running it again is safe.
pub async fn report(
    connection: &Connection,
    relay: Uuid,
    lease: Duration,
    single: bool,
) -> Result<Census, Error> {
    let row = connection.query_opt(&REPORT, &[&relay, &lease.as_secs_f64(), &single]).await?;
    let row = row.ok_or(Error::Unreadable { what: "the census of relays" })?;
    Ok(Census { relays: row.get(0), buckets: row.get(1), stands_by: row.get(2) })
}

const RENEW: Statement = Statement::new(
    "renew leases",
    "UPDATE outbox_buckets
     SET leased_until = clock_timestamp() + make_interval(secs => $2)
     WHERE owner = $1
     RETURNING bucket, epoch",
);

/// Renews every lease the relay has, and returns them: what is missing was lost.
///
/// # Errors
/// [`Error::Statement`]; running it again is safe.
pub async fn renew(
    connection: &Connection,
    relay: Uuid,
    lease: Duration,
) -> Result<Vec<Lease>, Error> {
    let rows = connection.query(&RENEW, &[&relay, &lease.as_secs_f64()]).await?;
    Ok(leases(&rows))
}

// SKIP LOCKED: relays that claim at the same moment take different buckets, and none waits.
const CLAIM: Statement = Statement::new(
    "claim buckets",
    "UPDATE outbox_buckets b
     SET owner = $1,
         epoch = b.epoch + 1,
         leased_until = clock_timestamp() + make_interval(secs => $2)
     FROM (
         SELECT bucket
         FROM outbox_buckets
         WHERE leased_until < clock_timestamp() AND owner IS DISTINCT FROM $1
         ORDER BY bucket
         LIMIT $3
         FOR UPDATE SKIP LOCKED
     ) free
     WHERE b.bucket = free.bucket
     RETURNING b.bucket, b.epoch",
);

/// Takes up to `buckets_max` buckets that nobody has, or whose lease ran out.
///
/// # Errors
/// [`Error::Statement`]; what was taken all the same shows at the next renewal.
pub async fn claim(
    connection: &Connection,
    relay: Uuid,
    lease: Duration,
    buckets_max: i64,
) -> Result<Vec<Lease>, Error> {
    let rows = connection.query(&CLAIM, &[&relay, &lease.as_secs_f64(), &buckets_max]).await?;
    Ok(leases(&rows))
}

// By owner and epoch: releasing late must not take a bucket from whoever has it by then.
const RELEASE: Statement = Statement::new(
    "release buckets",
    "UPDATE outbox_buckets b
     SET owner = NULL, leased_until = '-infinity'
     FROM unnest($2::smallint[], $3::bigint[]) AS held (bucket, epoch)
     WHERE b.bucket = held.bucket AND b.epoch = held.epoch AND b.owner = $1",
);

/// Gives buckets back, so that another relay need not wait for the lease to run out.
///
/// # Errors
/// [`Error::Statement`]; running it again is safe.
pub async fn release(connection: &Connection, relay: Uuid, held: &[Lease]) -> Result<u64, Error> {
    let buckets: Vec<i16> = held.iter().map(|lease| lease.bucket).collect();
    let epochs: Vec<i64> = held.iter().map(|lease| lease.epoch).collect();
    connection.execute(&RELEASE, &[&relay, &buckets, &epochs]).await
}

const LEAVE: Statement =
    Statement::new("take a relay off the list", "DELETE FROM outbox_relays WHERE id = $1");

/// Says that the relay is gone: the others count one less.
///
/// # Errors
/// [`Error::Statement`]; running it again is safe.
pub async fn leave(connection: &Connection, relay: Uuid) -> Result<(), Error> {
    connection.execute(&LEAVE, &[&relay]).await.map(drop)
}

fn leases(rows: &[Row]) -> Vec<Lease> {
    rows.iter().map(|row| Lease { bucket: row.get(0), epoch: row.get(1) }).collect()
}
