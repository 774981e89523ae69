//! The arms that the relay's drain is compared with: they claim rows with SKIP LOCKED and mark them,
//! and send nothing. So each is the most that its way of marking allows.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use harness::postgres::connect;
use uuid::Uuid;

/// How rows are marked.
#[derive(Debug, Clone, Copy)]
pub enum Marking {
    UpdateEach,
    UpdateBatch,
    Delete,
}

/// Rows of one claim: larger ones hardly pay.
const CLAIM: i64 = 500;

/// The index that these claims want, in place of the one by bucket.
pub const INDEX: &str = "DROP INDEX outbox_pending;
    CREATE INDEX arm_pending ON outbox (seq) WHERE published_at IS NULL AND parked_at IS NULL";

const SELECT: &str = "SELECT tenant_id, id, seq, aggregate_id, event_type, payload, headers::text
    FROM outbox WHERE published_at IS NULL AND parked_at IS NULL
    ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED";
const DELETE: &str = "DELETE FROM outbox WHERE (tenant_id, id) IN (
        SELECT tenant_id, id FROM outbox WHERE published_at IS NULL AND parked_at IS NULL
        ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED)
    RETURNING tenant_id, id, seq, aggregate_id, event_type, payload, headers::text";
const UPDATE_EACH: &str = "UPDATE outbox SET published_at = now(), published_topic = 'nowhere',
        published_partition = 0, published_offset = 0
    WHERE tenant_id = $1 AND id = $2";
const UPDATE_BATCH: &str = "UPDATE outbox o SET published_at = now(), published_topic = 'nowhere',
        published_partition = 0, published_offset = 0
    FROM unnest($1::text[], $2::uuid[]) AS done (tenant_id, id)
    WHERE o.tenant_id = done.tenant_id AND o.id = done.id";

/// Claims and marks for at most `duration` on one connection; rows a second.
pub async fn rate(database_url: &str, duration: Duration, marking: Marking) -> Result<f64> {
    let mut client = connect(&database_url.parse()?).await?;
    let statement = match marking {
        Marking::UpdateEach => UPDATE_EACH,
        Marking::UpdateBatch => UPDATE_BATCH,
        Marking::Delete => DELETE,
    };
    let (select, statement) = (client.prepare(SELECT).await?, client.prepare(statement).await?);
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < duration {
        let claimed = match marking {
            Marking::Delete => client.query(&statement, &[&CLAIM]).await?.len(),
            Marking::UpdateEach | Marking::UpdateBatch => {
                let transaction = client.transaction().await?;
                let rows = transaction.query(&select, &[&CLAIM]).await?;
                if let Marking::UpdateEach = marking {
                    for row in &rows {
                        let (tenant, id): (&str, Uuid) = (row.get(0), row.get(1));
                        transaction.execute(&statement, &[&tenant, &id]).await?;
                    }
                } else {
                    let tenants: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
                    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(1)).collect();
                    transaction.execute(&statement, &[&tenants, &ids]).await?;
                }
                transaction.commit().await?;
                rows.len()
            }
        };
        if claimed == 0 {
            break;
        }
        done += claimed;
    }
    ensure!(done > 0, "there was nothing to claim");
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
