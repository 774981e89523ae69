//! The outbox as it is held against a topic: rows by the ids of records, and published rows in turn.

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&LOOK_UP, &PUBLISHED];

/// Rows of one statement, and a few more: those published at the same time stay together.
const PAGE_ROWS: i64 = 5_000;

/// Where a row says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

/// What the outbox knows of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    Row {
        aggregate_id: String,
        payload_sha256: Vec<u8>,
        /// An operator let it be published once more.
        is_replay: bool,
        /// `None` while it is not published, or not again.
        published: Option<Place>,
    },
    /// An operator discarded it: an earlier copy may be in the topic.
    Discarded,
    Nothing,
}

// OFFSET 0 keeps each a probe of a primary key.
const LOOK_UP: Statement = Statement::new(
    "look records up in the outbox",
    "SELECT o.aggregate_id, sha256(o.payload), o.published_topic, o.published_partition,
            o.published_offset, o.published_at IS NOT NULL, o.headers ? 'replay',
            o.aggregate_id IS NULL AND EXISTS (
                SELECT FROM outbox_discarded d
                WHERE d.tenant_id = wanted.tenant_id AND d.id = wanted.id
                OFFSET 0
            )
     FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS wanted (tenant_id, id, position)
     LEFT JOIN LATERAL (
         SELECT * FROM outbox o WHERE o.tenant_id = wanted.tenant_id AND o.id = wanted.id OFFSET 0
     ) o ON true
     ORDER BY wanted.position",
);

/// What is known of each of these ids, in their order.
///
/// # Errors
/// [`Error::Statement`].
pub async fn look_up(
    connection: &Connection,
    tenants: &[&str],
    ids: &[Uuid],
) -> Result<Vec<Known>, Error> {
    let rows = connection.query(&LOOK_UP, &[&tenants, &ids]).await?;
    let known = |row: &Row| match (row.get(0), row.get(7)) {
        (Some(aggregate_id), _) => {
            let published = if row.get(5) { place(row, 2) } else { None };
            let (payload_sha256, is_replay) = (row.get(1), row.get(6));
            Known::Row { aggregate_id, payload_sha256, is_replay, published }
        }
        (None, true) => Known::Discarded,
        (None, false) => Known::Nothing,
    };
    Ok(rows.iter().map(known).collect())
}

fn place(row: &Row, first: usize) -> Option<Place> {
    let topic = row.get::<_, Option<String>>(first)?;
    let partition = row.get::<_, Option<i32>>(first + 1)?;
    let offset = row.get::<_, Option<i64>>(first + 2)?;
    Some(Place { topic, partition, offset })
}

/// A published row.
#[derive(Debug, Clone)]
pub struct Published {
    pub tenant_id: String,
    pub id: Uuid,
    pub at: Timestamp,
    pub place: Option<Place>,
}

// By outbox_published. A batch of the relay has one time, which WITH TIES keeps on one page.
const PUBLISHED: Statement = Statement::new(
    "read published rows in turn",
    "SELECT tenant_id, id, published_at, published_topic, published_partition, published_offset
     FROM outbox
     WHERE published_at > coalesce($1::timestamptz, '-infinity') AND published_at < $2
     ORDER BY published_at
     FETCH FIRST $3 ROWS WITH TIES",
);

/// The next page of rows that were published after the one time and before the other; empty at the
/// end.
///
/// # Errors
/// [`Error::Statement`].
pub async fn published(
    connection: &Connection,
    after: Option<Timestamp>,
    before: Timestamp,
) -> Result<Vec<Published>, Error> {
    let rows = connection.query(&PUBLISHED, &[&after, &before, &PAGE_ROWS]).await?;
    let read = |row: &Row| Published {
        tenant_id: row.get(0),
        id: row.get(1),
        at: row.get(2),
        place: place(row, 3),
    };
    Ok(rows.iter().map(read).collect())
}
