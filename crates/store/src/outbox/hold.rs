//! An operator holds buckets for a moment, as a relay would: no relay reads them while rows that it
//! has passed become pending again. Without it, a relay could publish a later row of an aggregate
//! before its next sweep finds the earlier one.

use std::time::Duration;

use uuid::Uuid;

use crate::{Connection, Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[&TAKE, &CONFIRM, &GIVE_BACK];

/// How long the buckets are held beyond the leases that they had: longer than a change may take
/// (`database.statement_timeout`, and twice for what goes with it). An operator's process that dies
/// delays these buckets by that much.
const HOLD: Duration = Duration::from_secs(30);

// The relay that has a bucket learns at its next renewal that it has lost it; until the end of its
// lease it may still send, so the lease is waited out.
const TAKE: Statement = Statement::new(
    "hold buckets of the outbox",
    "UPDATE outbox_buckets b
     SET owner = $1,
         epoch = b.epoch + 1,
         leased_until = greatest(held.leased_until, clock_timestamp()) + make_interval(secs => $3)
     FROM (
         SELECT bucket, leased_until
         FROM outbox_buckets
         WHERE bucket = ANY ($2)
         ORDER BY bucket
         FOR UPDATE
     ) held
     WHERE b.bucket = held.bucket
     RETURNING CASE WHEN held.leased_until > clock_timestamp()
                    THEN extract(epoch FROM held.leased_until - clock_timestamp())::float8
                    ELSE 0
               END",
);

/// Takes the buckets from whoever has them. Returns after how long nobody else may be reading them.
///
/// # Errors
/// [`Error::Statement`]; what was taken all the same runs out by itself.
pub async fn take(
    connection: &Connection,
    owner: Uuid,
    buckets: &[i16],
) -> Result<Duration, Error> {
    let rows = connection.query(&TAKE, &[&owner, &buckets, &HOLD.as_secs_f64()]).await?;
    let longest = rows.iter().map(|row| row.get(0)).fold(0.0, f64::max);
    Ok(Duration::try_from_secs_f64(longest).unwrap_or_default())
}

const CONFIRM: Statement = Statement::new(
    "confirm held buckets",
    "SELECT bucket
     FROM outbox_buckets
     WHERE bucket = ANY ($2) AND owner = $1 AND leased_until > clock_timestamp()
     ORDER BY bucket
     FOR UPDATE",
);

/// Are all of them still held? They stay so until the transaction ends.
///
/// # Errors
/// [`Error::Statement`].
pub async fn confirm(tx: &Transaction<'_>, owner: Uuid, buckets: &[i16]) -> Result<bool, Error> {
    Ok(tx.query(&CONFIRM, &[&owner, &buckets]).await?.len() == buckets.len())
}

const GIVE_BACK: Statement = Statement::new(
    "give held buckets back",
    "UPDATE outbox_buckets SET owner = NULL, leased_until = '-infinity' WHERE owner = $1",
);

/// Lets the relays have them: whoever takes one reads it from its start.
///
/// # Errors
/// [`Error::Statement`]; the hold runs out by itself.
pub async fn give_back(connection: &Connection, owner: Uuid) -> Result<(), Error> {
    connection.execute(&GIVE_BACK, &[&owner]).await.map(drop)
}
