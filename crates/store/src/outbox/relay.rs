//! The relay's side of the outbox: read what is pending, mark what Kafka acknowledged, park what
//! can never be sent, and the table-wide figures. Nothing here locks a row beyond its own
//! statement, so nothing is held while Kafka is awaited.
//!
//! Every statement walks `outbox_pending` or `outbox_parked` in their order. The pool's sessions
//! plan by indexes even while the table is still empty.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&READ, &PASSED_OVER, &MARK, &PARK, &BACKLOG, &XMIN];

/// Counts of rows stop here: an exact count of a large backlog costs a scan of it.
pub const COUNT_MAX: i64 = 10_001;

/// What to read of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    pub bucket: i16,
    pub after_seq: i64,
    pub rows_max: i32,
}

/// Which pending rows of a bucket a relay is concerned with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub event_types: EventTypes,
    /// Also rows that come after a parked one of their aggregate.
    pub behind_parked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventTypes {
    Only(Vec<String>),
    AllBut(Vec<String>),
}

impl EventTypes {
    /// The types, and whether a row's has to be among them.
    fn listed(&self) -> (&[String], bool) {
        match self {
            Self::Only(types) => (types, true),
            Self::AllBut(types) => (types, false),
        }
    }
}

/// A pending row of the outbox.
#[derive(Debug, Clone)]
pub struct OutboxRecord {
    pub tenant_id: String,
    pub id: Uuid,
    pub seq: i64,
    pub bucket: i16,
    pub aggregate_id: String,
    pub aggregate_version: Option<i64>,
    pub event_type: String,
    /// `None` when it is larger than the caller would take.
    pub payload: Option<Vec<u8>>,
    pub payload_bytes: usize,
    /// The JSON text of the headers; `None` when there are none.
    pub headers: Option<String>,
    pub created_at: Timestamp,
    /// How old the row was when it was read, by the database's clock.
    pub age: Duration,
}

// `outbox_pending` gives each bucket's rows by seq, so LIMIT ends the scan; the running sum ends
// the answer, always after at least one row, and drops the end of a bucket only, as the rows
// arrive bucket by bucket.
//
// A row is held while an earlier one of its aggregate is parked, unless the caller takes such rows.
// That is asked a row only when anything is parked at all. OFFSET 0 keeps it a probe of `outbox_parked`: as a join it could be
// planned without the order that LIMIT needs.
const READ: Statement = Statement::new(
    "read the outbox",
    "SELECT r.tenant_id, r.id, r.seq, r.bucket, r.aggregate_id, r.aggregate_version, r.event_type,
            r.payload, r.payload_bytes, r.headers, r.created_at,
            extract(epoch FROM clock_timestamp() - r.created_at)::float8 AS age_seconds
     FROM (
         SELECT o.*,
                sum(o.payload_bytes) OVER (ROWS UNBOUNDED PRECEDING) - o.payload_bytes AS bytes_before
         FROM unnest($1::smallint[], $2::bigint[], $3::integer[]) AS want (bucket, after_seq, rows_max)
         CROSS JOIN LATERAL (
             SELECT o.tenant_id, o.id, o.seq, o.bucket, o.aggregate_id, o.aggregate_version,
                    o.event_type,
                    CASE WHEN octet_length(o.payload) <= $5::integer THEN o.payload END AS payload,
                    octet_length(o.payload) AS payload_bytes,
                    nullif(o.headers, '{}')::text AS headers,
                    o.created_at
             FROM outbox o
             WHERE o.bucket = want.bucket
               AND o.seq > want.after_seq
               AND o.published_at IS NULL
               AND o.parked_at IS NULL
               AND (o.event_type = ANY ($6::text[])) = $7::boolean
               AND (
                   $8::boolean
                   OR NOT (SELECT EXISTS (SELECT FROM outbox WHERE parked_at IS NOT NULL))
                   OR NOT EXISTS (
                       SELECT FROM outbox parked
                       WHERE parked.tenant_id = o.tenant_id
                         AND parked.aggregate_id = o.aggregate_id
                         AND parked.seq < o.seq
                         AND parked.parked_at IS NOT NULL
                       OFFSET 0
                   )
               )
             ORDER BY o.seq
             LIMIT want.rows_max
         ) o
     ) r
     WHERE r.bytes_before < $4::bigint",
);

/// Selected pending rows of some buckets, each bucket's by seq. Ends with the row that brings the payloads
/// to `bytes_max`; a payload of more than `payload_bytes_max` is left out of its row.
///
/// # Errors
/// [`Error::Statement`]; nothing is changed either way.
pub async fn read(
    connection: &Connection,
    wants: &[Want],
    selection: &Selection,
    bytes_max: usize,
    payload_bytes_max: usize,
) -> Result<Vec<OutboxRecord>, Error> {
    let buckets: Vec<i16> = wants.iter().map(|want| want.bucket).collect();
    let after_seqs: Vec<i64> = wants.iter().map(|want| want.after_seq).collect();
    let rows_max: Vec<i32> = wants.iter().map(|want| want.rows_max).collect();
    let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
    let payload_bytes_max = i32::try_from(payload_bytes_max).unwrap_or(i32::MAX);
    let (types, listed) = selection.event_types.listed();
    let rows = connection
        .query(
            &READ,
            &[
                &buckets,
                &after_seqs,
                &rows_max,
                &bytes_max,
                &payload_bytes_max,
                &types,
                &listed,
                &selection.behind_parked,
            ],
        )
        .await?;
    Ok(rows.iter().map(OutboxRecord::from_row).collect())
}

impl OutboxRecord {
    fn from_row(row: &Row) -> Self {
        Self {
            tenant_id: row.get(0),
            id: row.get(1),
            seq: row.get(2),
            bucket: row.get(3),
            aggregate_id: row.get(4),
            aggregate_version: row.get(5),
            event_type: row.get(6),
            payload: row.get(7),
            payload_bytes: usize::try_from(row.get::<_, i32>(8)).unwrap_or_default(),
            headers: row.get(9),
            created_at: row.get(10),
            // A writer may give a created_at that lies ahead.
            age: Duration::try_from_secs_f64(row.get(11)).unwrap_or_default(),
        }
    }
}

/// A bucket, the seq up to which it was read, and how many of its rows are still in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadUpTo {
    pub bucket: i16,
    pub seq: i64,
    pub rows_max: i32,
}

// The same rows as READ, from the start of the bucket, without their payloads.
const PASSED_OVER: Statement = Statement::new(
    "sweep the outbox",
    "SELECT o.bucket, o.seq
     FROM unnest($1::smallint[], $2::bigint[], $3::integer[]) AS done (bucket, seq, rows_max)
     CROSS JOIN LATERAL (
         SELECT o.bucket, o.seq
         FROM outbox o
         WHERE o.bucket = done.bucket
           AND o.seq <= done.seq
           AND o.published_at IS NULL
           AND o.parked_at IS NULL
           AND (o.event_type = ANY ($4::text[])) = $5::boolean
           AND (
               $6::boolean
               OR NOT (SELECT EXISTS (SELECT FROM outbox WHERE parked_at IS NOT NULL))
               OR NOT EXISTS (
                   SELECT FROM outbox parked
                   WHERE parked.tenant_id = o.tenant_id
                     AND parked.aggregate_id = o.aggregate_id
                     AND parked.seq < o.seq
                     AND parked.parked_at IS NOT NULL
                   OFFSET 0
               )
           )
         ORDER BY o.seq
         LIMIT done.rows_max
     ) o",
);

/// The first selected pending rows (bucket, seq) of each bucket that a read should already have seen: rows
/// in memory, and rows of transactions that committed later than those after them.
///
/// # Errors
/// [`Error::Statement`]; nothing is changed either way.
pub async fn passed_over(
    connection: &Connection,
    done: &[ReadUpTo],
    selection: &Selection,
) -> Result<Vec<(i16, i64)>, Error> {
    let buckets: Vec<i16> = done.iter().map(|done| done.bucket).collect();
    let seqs: Vec<i64> = done.iter().map(|done| done.seq).collect();
    let rows_max: Vec<i32> = done.iter().map(|done| done.rows_max).collect();
    let (types, listed) = selection.event_types.listed();
    let rows = connection
        .query(
            &PASSED_OVER,
            &[&buckets, &seqs, &rows_max, &types, &listed, &selection.behind_parked],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Kafka's acknowledgement of one row.
#[derive(Debug, Clone)]
pub struct Receipt {
    pub tenant_id: String,
    pub id: Uuid,
    pub partition: i32,
    pub offset: i64,
}

// One statement for the batch: 13.6 times the rate of one a row. `now()` rather than
// `clock_timestamp()`, which a table distributed by tenant could not take here. A row that an
// operator parked while it was in flight has been published all the same.
const MARK: Statement = Statement::new(
    "mark published rows",
    "UPDATE outbox o
     SET published_at = now(),
         published_topic = $5,
         published_partition = receipt.partition,
         published_offset = receipt.record_offset,
         parked_at = NULL
     FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::bigint[])
       AS receipt (tenant_id, id, partition, record_offset)
     WHERE o.tenant_id = receipt.tenant_id
       AND o.id = receipt.id
       AND o.published_at IS NULL",
);

/// Marks rows as published to this topic, whoever owns their buckets by now: an acknowledgement is a fact.
/// Returns how many were marked; the others had been marked before.
///
/// # Errors
/// [`Error::Statement`]; running it again is safe.
pub async fn mark(
    connection: &Connection,
    topic: &str,
    receipts: &[Receipt],
) -> Result<u64, Error> {
    let tenants: Vec<&str> = receipts.iter().map(|receipt| receipt.tenant_id.as_str()).collect();
    let ids: Vec<Uuid> = receipts.iter().map(|receipt| receipt.id).collect();
    let partitions: Vec<i32> = receipts.iter().map(|receipt| receipt.partition).collect();
    let offsets: Vec<i64> = receipts.iter().map(|receipt| receipt.offset).collect();
    connection.execute(&MARK, &[&tenants, &ids, &partitions, &offsets, &topic]).await
}

/// A row that can never be sent as it is.
#[derive(Debug, Clone)]
pub struct Refused {
    pub tenant_id: String,
    pub id: Uuid,
    pub bucket: i16,
    /// The epoch of the lease under which the relay found out.
    pub epoch: i64,
    pub error: String,
}

// Fenced: a relay that has lost the bucket must not park what its successor may be sending.
// `parked_at IS NULL` is spelt so that `outbox_pending` does not apply: planned on an empty table, a
// scan of all pending rows would look as cheap as the primary key.
const PARK: Statement = Statement::new(
    "park rows",
    "UPDATE outbox o
     SET parked_at = now(), attempts = o.attempts + 1, last_error = refused.error
     FROM unnest($2::text[], $3::uuid[], $4::smallint[], $5::bigint[], $6::text[])
       AS refused (tenant_id, id, bucket, epoch, error)
     JOIN outbox_buckets b
       ON b.bucket = refused.bucket AND b.epoch = refused.epoch AND b.owner = $1
     WHERE o.tenant_id = refused.tenant_id
       AND o.id = refused.id
       AND o.published_at IS NULL
       AND coalesce(o.parked_at, 'infinity') = 'infinity'",
);

/// Parks rows: they wait for an operator, and the later rows of their aggregates with them unless
/// they are selected [`behind_parked`](Selection::behind_parked).
/// Returns how many were parked.
///
/// # Errors
/// [`Error::Statement`]; running it again is safe.
pub async fn park(connection: &Connection, owner: Uuid, refused: &[Refused]) -> Result<u64, Error> {
    let tenants: Vec<&str> = refused.iter().map(|row| row.tenant_id.as_str()).collect();
    let ids: Vec<Uuid> = refused.iter().map(|row| row.id).collect();
    let buckets: Vec<i16> = refused.iter().map(|row| row.bucket).collect();
    let epochs: Vec<i64> = refused.iter().map(|row| row.epoch).collect();
    let errors: Vec<&str> = refused.iter().map(|row| row.error.as_str()).collect();
    connection.execute(&PARK, &[&owner, &tenants, &ids, &buckets, &epochs, &errors]).await
}

/// How much waits in the whole table, whoever relays it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backlog {
    /// Zero when nothing is pending.
    pub oldest_pending_age: Duration,
    /// At most [`COUNT_MAX`].
    pub pending: i64,
    /// At most [`COUNT_MAX`].
    pub parked: i64,
}

// The age is that of each bucket's first row by seq: 0.08 ms, where min(created_at) took 99 ms
// with 0.6M rows pending.
const BACKLOG: Statement = Statement::new(
    "measure the backlog",
    "SELECT coalesce(
                (SELECT extract(epoch FROM clock_timestamp() - min(head.created_at))::float8
                 FROM outbox_buckets b
                 CROSS JOIN LATERAL (
                     SELECT o.created_at
                     FROM outbox o
                     WHERE o.bucket = b.bucket AND o.published_at IS NULL AND o.parked_at IS NULL
                     ORDER BY o.seq
                     LIMIT 1
                 ) head),
                0) AS oldest_pending_age_seconds,
            (SELECT count(*) FROM (
                 SELECT FROM outbox WHERE published_at IS NULL AND parked_at IS NULL LIMIT $1
             ) p) AS pending,
            (SELECT count(*) FROM (
                 SELECT FROM outbox WHERE parked_at IS NOT NULL LIMIT $1
             ) p) AS parked",
);

/// # Errors
/// [`Error::Statement`].
pub async fn backlog(connection: &Connection) -> Result<Backlog, Error> {
    let row = connection.query_opt(&BACKLOG, &[&COUNT_MAX]).await?;
    let row = row.ok_or(Error::Unreadable { what: "the backlog" })?;
    Ok(Backlog {
        oldest_pending_age: Duration::try_from_secs_f64(row.get(0)).unwrap_or_default(),
        pending: row.get(1),
        parked: row.get(2),
    })
}

const XMIN: Statement = Statement::new(
    "measure the oldest snapshot",
    "SELECT coalesce(max(age(held.xmin)), 0)::bigint
     FROM (
         SELECT backend_xmin AS xmin FROM pg_stat_activity WHERE pid <> pg_backend_pid()
         UNION ALL SELECT xmin FROM pg_replication_slots
         UNION ALL SELECT catalog_xmin FROM pg_replication_slots
         UNION ALL SELECT transaction FROM pg_prepared_xacts
     ) held",
);

/// How many transactions ago the oldest snapshot was taken that somebody still holds. Vacuum
/// cannot remove what was marked since.
///
/// # Errors
/// [`Error::Statement`].
pub async fn oldest_xmin_age(connection: &Connection) -> Result<i64, Error> {
    let row = connection.query_opt(&XMIN, &[]).await?;
    Ok(row.ok_or(Error::Unreadable { what: "the oldest snapshot" })?.get(0))
}
