//! Work after the commit: each row is one worker's for its lease, and nobody's void claim counts.

use std::time::Duration;

use store::dead_letters::PUBLICATIONS as QUEUE;
use store::follow_ups::{Backlog, Claim, claim, count, finish, put_off};
use store::migrate::{MIGRATIONS, run, run_these};
use store::{Connection, Pool};
use tokio_postgres::Client;

use crate::pool;

const LONG: Duration = Duration::from_secs(3600);
const WRITE: &str = "INSERT INTO dead_letters (consumer, source_topic, source_partition, source_offset,
     source_timestamp, headers, reason, attempts)
     SELECT consumer, 't', 0, n, 1, '[]', 'no', 1 FROM generate_series(1, 3) n, (VALUES ('c'), ('d')) v (consumer)";

async fn claimed(connection: &Connection, most: i64, lease: Duration) -> Vec<Claim> {
    claim(connection, &QUEUE, "c", most, lease).await.unwrap()
}

async fn connection(pool: &Pool) -> Connection {
    pool.get().await.unwrap()
}

async fn number(client: &Client, from: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {from}"), &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_row_is_claimed_once_for_its_lease_and_again_after_it_until_it_is_done() {
    let database = pg_test::database().await;
    database.client().await.batch_execute(WRITE).await.unwrap();
    let pool = pool(&database);
    let (one, other) = (connection(&pool).await, connection(&pool).await);

    let first = claimed(&one, 2, LONG).await;
    let rest = claimed(&other, 5, Duration::ZERO).await;
    assert_eq!((first.len(), rest.len()), (2, 1), "those of another consumer are not ours");
    let again = claimed(&other, 5, LONG).await;
    assert_eq!((again[0].id, again[0].attempts), (rest[0].id, 2), "its lease has ended");

    assert_eq!(finish(&one, &QUEUE, &[rest[0].id, first[0].id]).await.unwrap(), 2);
    let left = count(&one, &QUEUE, "c").await.unwrap();
    assert_eq!(left, Backlog { waiting: 1, given_up: 0 });
}

#[tokio::test]
async fn what_is_put_off_comes_again_and_what_is_given_up_never() {
    let database = pg_test::database().await;
    let client = database.client().await;
    client.batch_execute(WRITE).await.unwrap();
    let connection = connection(&pool(&database)).await;
    let [a, b, c] = claimed(&connection, 3, LONG).await[..] else { panic!("three rows") };

    let off = async |claim, wait| put_off(&connection, &QUEUE, claim, wait, "why").await.unwrap();
    assert_eq!(off(a, Some(Duration::ZERO)).await, 1);
    assert_eq!(off(b, None).await, 1);
    let again = claimed(&connection, 3, LONG).await;
    assert_eq!(again.iter().map(|claim| claim.id).collect::<Vec<_>>(), [a.id]);
    // The claim of before is void, and so is one of what is done.
    assert_eq!(off(a, Some(Duration::ZERO)).await, 0);
    finish(&connection, &QUEUE, &[c.id]).await.unwrap();
    assert_eq!(off(c, Some(Duration::ZERO)).await, 0);

    assert_eq!(claimed(&connection, 3, LONG).await.len(), 0);
    let left = count(&connection, &QUEUE, "c").await.unwrap();
    assert_eq!(left, Backlog { waiting: 1, given_up: 1 });
    assert_eq!(number(&client, "dead_letter_publications WHERE last_error = 'why'").await, 2);
}

#[tokio::test]
async fn a_claim_passes_over_rows_that_another_claim_has_locked() {
    let database = pg_test::database().await;
    let (client, connection) = (database.client().await, connection(&pool(&database)).await);
    client.batch_execute(WRITE).await.unwrap();
    let lock = "BEGIN; SELECT FROM dead_letter_publications WHERE consumer = 'c'
                ORDER BY letter_id LIMIT 2 FOR UPDATE";
    client.batch_execute(lock).await.unwrap();

    assert_eq!(claimed(&connection, 3, LONG).await.len(), 1);
}

#[tokio::test]
async fn every_dead_letter_is_to_be_published_whoever_wrote_it_and_until_it_is_gone() {
    let database = pg_test::empty_database().await;
    let (client, url) = (database.client().await, database.url());
    let before = MIGRATIONS.iter().position(|it| it.name.ends_with("dead_letter_publications.sql"));
    run_these(&url, &MIGRATIONS[..before.unwrap()]).await.unwrap();
    client.batch_execute(WRITE).await.unwrap();
    run(&url).await.unwrap();
    assert_eq!(number(&client, "dead_letter_publications WHERE consumer = 'c'").await, 3);

    let by_the_consumer =
        format!("SET ROLE oncebox_consumer; {}; RESET ROLE", WRITE.replace("'t'", "'u'"));
    client.batch_execute(&by_the_consumer).await.unwrap();
    let unpublished = "dead_letter_publications p JOIN dead_letters d
         ON d.id = p.letter_id AND d.consumer = p.consumer WHERE published_at IS NULL";
    assert_eq!(number(&client, unpublished).await, 12);
    client.batch_execute("DELETE FROM dead_letters WHERE consumer = 'd'").await.unwrap();
    assert_eq!(number(&client, "dead_letter_publications").await, 6);
}
