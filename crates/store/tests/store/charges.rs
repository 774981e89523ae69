//! The one statement that writes a charge: what it writes, what it leaves alone, what it says.

use std::time::Duration;

use domain::{
    AmountCents, ChargeId, Currency, Endpoint, Fingerprint, IdempotencyKey, NewCharge, OutboxId,
    TenantId,
};
use pg_test::TestDatabase;
use store::idempotency_keys::{Lifetime, Probe, StoredKey, probe};
use store::key_lock::KeyLock;
use store::outbox::{ChargeRecord, Recorded, record_charges};
use store::{Connection, Error};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{pool, until_blocked};

const ENDPOINT: Endpoint = Endpoint::CreateCharge;
const DAY: Lifetime = Lifetime { retention: Some(Duration::from_secs(86_400)), tombstone: false };

fn record(key: Uuid, cents: i64) -> ChargeRecord {
    let charge = NewCharge {
        amount: AmountCents::new(cents).unwrap(),
        currency: Currency::parse("BRL").unwrap(),
        description: None,
    };
    let id = Uuid::now_v7();
    ChargeRecord {
        tenant: TenantId::default_tenant(),
        key: IdempotencyKey::parse(key.to_string().as_bytes()).unwrap(),
        fingerprint: Fingerprint::of_charge(&charge),
        charge_id: ChargeId(id),
        charge,
        created_at: "2026-11-30T21:00:00.123456Z".parse().unwrap(),
        location: format!("/charges/{id}"),
        body: format!("{{\"id\":\"{id}\"}}").into_bytes(),
        outbox_id: OutboxId(Uuid::now_v7()),
        payload: b"{}".to_vec(),
        headers: serde_json::json!({}),
    }
}

async fn write(connection: &Connection, records: &[&ChargeRecord]) -> Vec<Recorded> {
    record_charges(connection, ENDPOINT, DAY, records).await.unwrap()
}

/// Keys, charges, events.
async fn rows(client: &Client) -> [i64; 3] {
    let count = "SELECT (SELECT count(*) FROM idempotency_keys), (SELECT count(*) FROM charges), (SELECT count(*) FROM outbox)";
    let row = client.query_one(count, &[]).await.unwrap();
    [row.get(0), row.get(1), row.get(2)]
}

fn stored(recorded: &Recorded) -> &StoredKey {
    match recorded {
        Recorded::Stored(stored) => stored,
        other => panic!("not stored: {other:?}"),
    }
}

struct Database {
    database: TestDatabase,
    connection: Connection,
    client: Client,
}

async fn database() -> Database {
    let database = pg_test::database().await;
    let connection = pool(&database).get().await.unwrap();
    let client = database.client().await;
    Database { database, connection, client }
}

#[tokio::test]
async fn each_charge_of_a_batch_is_written_with_its_key_and_its_event() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let records: Vec<_> = (1..=100).map(|cents| record(Uuid::new_v4(), cents)).collect();
    let recorded = write(connection, &records.iter().collect::<Vec<_>>()).await;
    assert!(recorded.iter().all(|recorded| *recorded == Recorded::Written));
    let joined = "SELECT count(*) FROM idempotency_keys k
         JOIN charges c ON c.tenant_id = k.tenant_id AND c.id = k.charge_id AND c.idempotency_key = k.key
         JOIN outbox o ON o.tenant_id = c.tenant_id AND o.aggregate_id = c.id::text AND o.published_at IS NULL
         WHERE k.state = 'completed' AND k.expires_at - k.created_at BETWEEN interval '23:59:59' AND interval '24:00:01'";
    assert_eq!(client.query_one(joined, &[]).await.unwrap().get::<_, i64>(0), 100);
    assert_eq!(rows(client).await, [100, 100, 100]);
}

#[tokio::test]
async fn a_key_that_is_there_gives_its_answer_and_writes_nothing() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let key = Uuid::new_v4();
    let first = record(key, 4900);
    write(connection, &[&first]).await;
    let (again, other, new) = (record(key, 4900), record(key, 1), record(Uuid::new_v4(), 1));
    let recorded = write(connection, &[&again, &new]).await;
    let answer = stored(&recorded[0]);
    assert_eq!(answer.charge_id, first.charge_id);
    assert_eq!(answer.fingerprint, again.fingerprint);
    assert_eq!(answer.response.as_ref().unwrap().body, first.body);
    assert_eq!(recorded[1], Recorded::Written);
    let recorded = write(connection, &[&other]).await;
    assert_ne!(stored(&recorded[0]).fingerprint, other.fingerprint);
    assert_eq!(rows(client).await, [2, 2, 2]);
}

#[tokio::test]
async fn written_again_the_same_record_finds_its_own_charge() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let first = record(Uuid::new_v4(), 4900);
    write(connection, &[&first]).await;
    let recorded = write(connection, &[&first]).await;
    assert_eq!(stored(&recorded[0]).charge_id, first.charge_id);
    assert_eq!(rows(client).await, [1, 1, 1]);
}

#[tokio::test]
async fn a_replay_takes_no_transaction_id() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let first = record(Uuid::new_v4(), 4900);
    write(connection, &[&first]).await;
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
    let before: String = client.query_one(next, &[]).await.unwrap().get(0);
    write(connection, &[&first]).await;
    let after: String = client.query_one(next, &[]).await.unwrap().get(0);
    assert_eq!(before, after);
}

#[tokio::test]
async fn tenants_do_not_meet_under_one_key() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let ours = record(Uuid::new_v4(), 4900);
    let theirs = ChargeRecord { tenant: TenantId::from("other"), ..record(ours.key.uuid(), 1) };
    let recorded = write(connection, &[&ours, &theirs]).await;
    assert_eq!(recorded, [Recorded::Written, Recorded::Written]);
    assert_eq!(rows(client).await, [2, 2, 2]);
    let found = store::charges::find(connection, &theirs.tenant, ours.charge_id).await.unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn an_expired_key_is_new_again_and_its_first_charge_stays() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let key = Uuid::new_v4();
    let (first, second) = (record(key, 4900), record(key, 1));
    write(connection, &[&first]).await;
    let expire = "UPDATE idempotency_keys SET expires_at = clock_timestamp()";
    client.batch_execute(expire).await.unwrap();
    assert_eq!(write(connection, &[&second]).await, [Recorded::Written]);
    let recorded = write(connection, &[&record(key, 1)]).await;
    assert_eq!(stored(&recorded[0]).charge_id, second.charge_id);
    assert_eq!(rows(client).await, [1, 2, 2]);
}

#[tokio::test]
async fn a_tombstone_is_stored_for_whoever_keeps_them_and_new_for_others() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let keeping = Lifetime { tombstone: true, ..DAY };
    let first = record(Uuid::new_v4(), 4900);
    write(connection, &[&first]).await;
    let lock = KeyLock::of(&first.tenant, ENDPOINT, first.key, &first.fingerprint);
    let probed = async |tombstones| {
        probe(connection, &first.tenant, ENDPOINT, first.key, lock, tombstones).await.unwrap()
    };
    assert!(matches!(probed(true).await, Probe::Stored(key) if !key.expired));
    client.batch_execute("UPDATE idempotency_keys SET expires_at = now()").await.unwrap();
    assert!(matches!(probed(true).await, Probe::Stored(key) if key.expired));
    assert_eq!(probed(false).await, Probe::Free);

    let again = record(first.key.uuid(), 4900);
    let recorded = record_charges(connection, ENDPOINT, keeping, &[&again]).await.unwrap();
    assert!(stored(&recorded[0]).expired && stored(&recorded[0]).charge_id == first.charge_id);
    assert_eq!(rows(client).await, [1, 1, 1]);

    client.batch_execute("UPDATE idempotency_keys SET state = 'in_progress'").await.unwrap();
    let recorded = record_charges(connection, ENDPOINT, keeping, &[&again]).await.unwrap();
    assert!(!stored(&recorded[0]).expired, "an unfinished key is not over");
    client.batch_execute("UPDATE idempotency_keys SET state = 'completed'").await.unwrap();
    assert_eq!(write(connection, &[&again]).await, [Recorded::Written]);
}

#[tokio::test]
async fn a_key_kept_for_ever_has_no_end() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let kept = record(Uuid::new_v4(), 4900);
    let for_ever = Lifetime { retention: None, tombstone: false };
    record_charges(connection, ENDPOINT, for_ever, &[&kept]).await.unwrap();
    let expires = "SELECT expires_at IS NULL FROM idempotency_keys";
    assert!(client.query_one(expires, &[]).await.unwrap().get::<_, bool>(0));
}

/// Another process in the middle of its transaction for this record.
async fn running_elsewhere(client: &Client, record: &ChargeRecord) {
    let lock = KeyLock::of(&record.tenant, ENDPOINT, record.key, &record.fingerprint);
    client.batch_execute("BEGIN").await.unwrap();
    let take = "SELECT pg_try_advisory_xact_lock($1), pg_try_advisory_xact_lock($2)";
    let row = client.query_one(take, &[&lock.fingerprint, &lock.key]).await.unwrap();
    assert!(row.get::<_, bool>(0) && row.get::<_, bool>(1));
}

#[tokio::test]
async fn while_another_process_runs_the_key_same_and_other_command_are_told_apart() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let first = record(Uuid::new_v4(), 4900);
    running_elsewhere(client, &first).await;
    let (same, other) = (record(first.key.uuid(), 4900), record(first.key.uuid(), 1));
    assert_eq!(write(connection, &[&same]).await, [Recorded::SameCommandRuns]);
    let neighbour = record(Uuid::new_v4(), 1);
    let recorded = write(connection, &[&other, &neighbour]).await;
    assert_eq!(recorded, [Recorded::OtherCommandRuns, Recorded::Written]);
    let look = |record: &ChargeRecord| {
        let lock = KeyLock::of(&record.tenant, ENDPOINT, record.key, &record.fingerprint);
        let (connection, tenant, key) = (connection, record.tenant.clone(), record.key);
        async move { probe(connection, &tenant, ENDPOINT, key, lock, false).await.unwrap() }
    };
    let held = async |key| {
        store::key_lock::is_held(connection, &first.tenant, ENDPOINT, key).await.unwrap()
    };
    assert!(held(first.key).await && !held(neighbour.key).await);
    assert_eq!(look(&same).await, Probe::SameCommandRuns);
    assert_eq!(look(&other).await, Probe::Free);
    assert!(matches!(look(&neighbour).await, Probe::Stored(_)));
}

#[tokio::test]
async fn a_key_committed_after_the_snapshot_is_unseen_and_then_stored() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    let (winner, loser) = (record(Uuid::new_v4(), 4900), record(Uuid::new_v4(), 4900));
    let loser = ChargeRecord { key: winner.key, ..loser };
    // The winner writes its key row without the locks and commits while the loser waits for it.
    client.batch_execute("BEGIN").await.unwrap();
    let insert = "INSERT INTO idempotency_keys (tenant_id, endpoint, key, fingerprint, fingerprint_version,
             state, charge_id, response_status, response_content_type, response_body)
         VALUES ('default', 'POST /charges', $1, $2, 1, 'completed', $3, 201, 'application/json', '')";
    let digest: &[u8] = winner.fingerprint.digest();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&winner.key.uuid(), &digest, &winner.charge_id.0];
    client.execute(insert, &params).await.unwrap();
    let records = [&loser];
    let loses = write(connection, &records);
    let commits = async {
        until_blocked(&db.database).await;
        client.batch_execute("COMMIT").await.unwrap();
    };
    let (recorded, ()) = tokio::join!(loses, commits);
    assert_eq!(recorded, [Recorded::Unseen]);
    let recorded = write(connection, &[&loser]).await;
    assert_eq!(stored(&recorded[0]).charge_id, winner.charge_id);
    assert_eq!(rows(client).await, [1, 0, 0]);
}

#[tokio::test]
async fn whichever_part_fails_nothing_of_the_batch_is_there() {
    let db = database().await;
    let (connection, client) = (&db.connection, &db.client);
    client
        .batch_execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$",
        )
        .await
        .unwrap();
    for table in ["idempotency_keys", "charges", "outbox"] {
        let trigger = format!(
            "CREATE TRIGGER refuse AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
        );
        client.batch_execute(&trigger).await.unwrap();
        let records = [record(Uuid::new_v4(), 1), record(Uuid::new_v4(), 2)];
        let refused =
            record_charges(connection, ENDPOINT, DAY, &records.iter().collect::<Vec<_>>()).await;
        assert!(matches!(refused, Err(Error::Statement { .. })), "{table}");
        assert_eq!(rows(client).await, [0, 0, 0], "{table}");
        client.batch_execute(&format!("DROP TRIGGER refuse ON {table}")).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_read_back_is_what_was_charged() {
    let db = database().await;
    let connection = &db.connection;
    let written = record(Uuid::new_v4(), 4900);
    write(connection, &[&written]).await;
    let found = store::charges::find(connection, &written.tenant, written.charge_id).await;
    let found = found.unwrap().unwrap();
    assert_eq!(found.id, written.charge_id);
    assert_eq!(found.amount_cents, written.charge.amount);
    assert_eq!(found.currency, written.charge.currency);
    assert_eq!(found.created_at, written.created_at);
}
