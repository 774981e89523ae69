//! The operator's side of the outbox: look at rows, and change what a relay does with them.
//!
//! Every change is of rows by their ids and says in its WHERE which state they must be in: what has
//! changed since it was looked at is left alone.

use jiff::Timestamp;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{Connection, Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] =
    &[&PENDING, &PARKED, &PUBLISHED, &FIND, &PAYLOAD, &RETRY, &PARK, &DISCARD, &REPLAY, &RELAYS];

/// Rows looked at by one statement: a few milliseconds.
const PAGE_ROWS: i64 = 5_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Still to be published; also what waits behind a parked row.
    Pending,
    Parked,
    Published,
}

/// Which rows; `None` is any.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub tenant: Option<String>,
    pub aggregate: Option<String>,
    pub event_type: Option<String>,
    /// From when on: of publishing for published rows, of writing for the others.
    pub from: Option<Timestamp>,
    /// Before when.
    pub to: Option<Timestamp>,
}

/// A row without its payload.
#[derive(Debug, Clone)]
pub struct Entry {
    pub tenant_id: String,
    pub id: Uuid,
    pub seq: i64,
    pub bucket: i16,
    pub aggregate_id: String,
    pub aggregate_version: Option<i64>,
    pub event_type: String,
    pub payload_bytes: i32,
    pub headers: Value,
    pub created_at: Timestamp,
    pub published_at: Option<Timestamp>,
    pub published_topic: Option<String>,
    pub published_partition: Option<i32>,
    pub published_offset: Option<i64>,
    pub attempts: i32,
    pub last_error: Option<String>,
    pub parked_at: Option<Timestamp>,
}

impl Entry {
    fn read(row: &Row) -> Self {
        Self {
            tenant_id: row.get(0),
            id: row.get(1),
            seq: row.get(2),
            bucket: row.get(3),
            aggregate_id: row.get(4),
            aggregate_version: row.get(5),
            event_type: row.get(6),
            payload_bytes: row.get(7),
            headers: row.get(8),
            created_at: row.get(9),
            published_at: row.get(10),
            published_topic: row.get(11),
            published_partition: row.get(12),
            published_offset: row.get(13),
            attempts: row.get(14),
            last_error: row.get(15),
            parked_at: row.get(16),
        }
    }

    pub fn state(&self) -> State {
        match (self.published_at, self.parked_at) {
            (Some(_), _) => State::Published,
            (None, Some(_)) => State::Parked,
            (None, None) => State::Pending,
        }
    }
}

macro_rules! columns {
    () => {
        "SELECT o.tenant_id, o.id, o.seq, o.bucket, o.aggregate_id, o.aggregate_version, o.event_type,
                octet_length(o.payload), o.headers, o.created_at, o.published_at, o.published_topic,
                o.published_partition, o.published_offset, o.attempts, o.last_error, o.parked_at"
    };
}

// A page of the index, and of it the rows that match, and the last one to go on from. The filter is
// applied to the page, so the work of a statement is bounded however few rows match.
macro_rules! page {
    ($rows:literal, $order:literal, $time:literal) => {
        concat!(
            "WITH page AS MATERIALIZED (SELECT * FROM outbox o WHERE ", $rows, " ORDER BY ", $order, " LIMIT $1),
             judged AS (
                 SELECT page.*,
                        ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR aggregate_id = $3)
                        AND ($4::text IS NULL OR event_type = $4)
                        AND ($5::timestamptz IS NULL OR ", $time, " >= $5)
                        AND ($6::timestamptz IS NULL OR ", $time, " < $6) AS matches,
                        row_number() OVER (ORDER BY ", $order, ") = count(*) OVER () AS is_last
                 FROM page
             ) ",
            columns!(), ", o.matches FROM judged o WHERE o.matches OR o.is_last ORDER BY ", $order
        )
    };
}

// By outbox_pending.
const PENDING: Statement = Statement::new(
    "list pending rows",
    page!(
        "published_at IS NULL AND parked_at IS NULL AND (bucket, seq) > ($7, $8)",
        "bucket, seq",
        "created_at"
    ),
);

// By outbox_parked, which holds few rows.
const PARKED: Statement = Statement::new(
    "list parked rows",
    page!(
        "parked_at IS NOT NULL AND (tenant_id, aggregate_id, seq) > ($7, $8, $9)",
        "tenant_id, aggregate_id, seq",
        "created_at"
    ),
);

// By outbox_published, which is retention's; what was marked at one time is sorted by itself.
const PUBLISHED: Statement = Statement::new(
    "list published rows",
    page!(
        "published_at >= coalesce($7::timestamptz, $5, '-infinity') AND published_at < coalesce($6::timestamptz, 'infinity')
         AND (published_at, tenant_id, id) > (coalesce($7::timestamptz, '-infinity'), $8, $9)",
        "published_at, tenant_id, id",
        "published_at"
    ),
);

/// At most `rows_max` rows in this state that match. All rows in the state are looked through, page
/// by page, until there are so many.
///
/// # Errors
/// [`Error::Statement`].
pub async fn list(
    connection: &Connection,
    state: State,
    filter: &Filter,
    rows_max: usize,
) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::new();
    let mut last: Option<Entry> = None;
    loop {
        let rows = page(connection, state, filter, last.as_ref()).await?;
        for row in &rows {
            let entry = Entry::read(row);
            if row.get(17) && entry.state() == state && found.len() < rows_max {
                found.push(entry.clone());
            }
            last = Some(entry);
        }
        if rows.is_empty() || found.len() >= rows_max {
            return Ok(found);
        }
    }
}

async fn page(
    connection: &Connection,
    state: State,
    filter: &Filter,
    last: Option<&Entry>,
) -> Result<Vec<Row>, Error> {
    let (tenant, aggregate) = (&filter.tenant, &filter.aggregate);
    let (event_type, from, to) = (&filter.event_type, &filter.from, &filter.to);
    let mut params: Vec<&(dyn ToSql + Sync)> =
        vec![&PAGE_ROWS, tenant, aggregate, event_type, from, to];
    let (no_text, nil, no_seq, no_bucket) = ("", Uuid::nil(), i64::MIN, i16::MIN);
    let last_tenant = last.map_or(no_text, |last| &last.tenant_id);
    let last_aggregate = last.map_or(no_text, |last| &last.aggregate_id);
    let last_id = last.map_or(nil, |last| last.id);
    let last_seq = last.map_or(no_seq, |last| last.seq);
    let last_bucket = last.map_or(no_bucket, |last| last.bucket);
    let last_published = last.and_then(|last| last.published_at);
    let statement = match state {
        State::Pending => {
            params.extend([&last_bucket as &(dyn ToSql + Sync), &last_seq]);
            &PENDING
        }
        State::Parked => {
            params.extend([&last_tenant as &(dyn ToSql + Sync), &last_aggregate, &last_seq]);
            &PARKED
        }
        State::Published => {
            params.extend([&last_published as &(dyn ToSql + Sync), &last_tenant, &last_id]);
            &PUBLISHED
        }
    };
    connection.query(statement, &params).await
}

// OFFSET 0 keeps each a probe of the primary key.
const FIND: Statement = Statement::new(
    "find rows of the outbox",
    concat!(
        columns!(),
        " FROM unnest($2::uuid[]) AS wanted (id)
          CROSS JOIN LATERAL (
              SELECT * FROM outbox o WHERE o.tenant_id = $1 AND o.id = wanted.id OFFSET 0
          ) o
          ORDER BY o.seq"
    ),
);

/// The rows with these ids that are there.
///
/// # Errors
/// [`Error::Statement`].
pub async fn find(
    connection: &Connection,
    tenant: &str,
    ids: &[Uuid],
) -> Result<Vec<Entry>, Error> {
    let rows = connection.query(&FIND, &[&tenant, &ids]).await?;
    Ok(rows.iter().map(Entry::read).collect())
}

const PAYLOAD: Statement = Statement::new(
    "read the payload of a row",
    "SELECT payload FROM outbox WHERE tenant_id = $1 AND id = $2",
);

/// # Errors
/// [`Error::Statement`].
pub async fn payload(
    connection: &Connection,
    tenant: &str,
    id: Uuid,
) -> Result<Option<Vec<u8>>, Error> {
    Ok(connection.query_opt(&PAYLOAD, &[&tenant, &id]).await?.map(|row| row.get(0)))
}

/// A change of rows.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// Parked rows are pending again, and with them what waits behind them.
    Retry,
    /// Pending rows wait for an operator, and the later rows of their aggregates with them.
    Park { why: &'a str },
    /// Parked rows are never published: they move to outbox_discarded.
    Discard,
    /// Published rows are published once more, with this value in the header `replay`.
    Replay { mark: &'a str },
}

impl Change<'_> {
    /// The state that rows must be in.
    pub fn of(&self) -> State {
        match self {
            Self::Retry | Self::Discard => State::Parked,
            Self::Park { .. } => State::Pending,
            Self::Replay { .. } => State::Published,
        }
    }
}

const RETRY: Statement = Statement::new(
    "retry parked rows",
    "UPDATE outbox o
     SET parked_at = NULL
     FROM unnest($1::text[], $2::uuid[]) AS row (tenant_id, id)
     WHERE o.tenant_id = row.tenant_id AND o.id = row.id
       AND o.published_at IS NULL AND coalesce(o.parked_at, 'infinity') <> 'infinity'",
);

// `parked_at IS NULL` is spelt so that `outbox_pending` does not apply, as in the relay's own.
const PARK: Statement = Statement::new(
    "park pending rows",
    "UPDATE outbox o
     SET parked_at = now(), last_error = $3
     FROM unnest($1::text[], $2::uuid[]) AS row (tenant_id, id)
     WHERE o.tenant_id = row.tenant_id AND o.id = row.id
       AND o.published_at IS NULL AND coalesce(o.parked_at, 'infinity') = 'infinity'",
);

const DISCARD: Statement = Statement::new(
    "discard parked rows",
    "WITH discarded AS (
         DELETE FROM outbox o
         USING unnest($1::text[], $2::uuid[]) AS row (tenant_id, id)
         WHERE o.tenant_id = row.tenant_id AND o.id = row.id
           AND o.published_at IS NULL AND coalesce(o.parked_at, 'infinity') <> 'infinity'
         RETURNING o.tenant_id, o.id, o.aggregate_id, o.aggregate_version, o.event_type, o.payload,
                   o.headers, o.created_at, o.attempts, o.last_error
     )
     INSERT INTO outbox_discarded (
         tenant_id, id, aggregate_id, aggregate_version, event_type, payload,
         headers, created_at, attempts, last_error
     )
     SELECT tenant_id, id, aggregate_id, aggregate_version, event_type, payload,
            headers, created_at, attempts, last_error
     FROM discarded",
);

const REPLAY: Statement = Statement::new(
    "replay published rows",
    "UPDATE outbox o
     SET published_at = NULL,
         published_topic = NULL,
         published_partition = NULL,
         published_offset = NULL,
         headers = o.headers || jsonb_build_object('replay', $3::text)
     FROM unnest($1::text[], $2::uuid[]) AS row (tenant_id, id)
     WHERE o.tenant_id = row.tenant_id AND o.id = row.id
       AND coalesce(o.published_at, 'infinity') <> 'infinity'",
);

/// Makes the change to those of the rows that are still in the state for it; returns how many.
///
/// # Errors
/// [`Error::Statement`].
pub async fn change(
    tx: &Transaction<'_>,
    change: Change<'_>,
    rows: &[Entry],
) -> Result<u64, Error> {
    let tenants: Vec<&str> = rows.iter().map(|row| row.tenant_id.as_str()).collect();
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    match change {
        Change::Retry => tx.execute(&RETRY, &[&tenants, &ids]).await,
        Change::Park { why } => tx.execute(&PARK, &[&tenants, &ids, &why]).await,
        Change::Discard => tx.execute(&DISCARD, &[&tenants, &ids]).await,
        Change::Replay { mark } => tx.execute(&REPLAY, &[&tenants, &ids, &mark]).await,
    }
}

/// Who relays.
#[derive(Debug, Clone, Copy)]
pub struct Relays {
    pub alive: i64,
    pub buckets: i64,
    /// Buckets that nobody has a lease on: nothing of them is published.
    pub buckets_free: i64,
}

const RELAYS: Statement = Statement::new(
    "count relays and buckets",
    "SELECT (SELECT count(*) FROM outbox_relays WHERE alive_until >= clock_timestamp()),
            count(*),
            count(*) FILTER (WHERE leased_until < clock_timestamp())
     FROM outbox_buckets",
);

/// # Errors
/// [`Error::Statement`].
pub async fn relays(connection: &Connection) -> Result<Relays, Error> {
    let row = connection.query_opt(&RELAYS, &[]).await?;
    let row = row.ok_or(Error::Unreadable { what: "the relays" })?;
    Ok(Relays { alive: row.get(0), buckets: row.get(1), buckets_free: row.get(2) })
}
