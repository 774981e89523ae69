//! Rows that break the outbox's contract: parked with a reason, once, and nobody else waits.

use crate::rig::{NewRow, Rig};

/// What a row says otherwise than a good one, and why it is parked.
const BROKEN: [(&str, &str, &str); 14] = [
    ("tenant_id", "''", "tenant_id is empty"),
    ("tenant_id", "repeat('x', 256)", "tenant_id has 256 bytes, more than 255"),
    ("aggregate_id", "''", "aggregate_id is empty"),
    ("aggregate_id", "repeat('x', 2000)", "aggregate_id has 2000 bytes, more than 1024"),
    ("aggregate_version", "-1", "aggregate_version is negative"),
    ("event_type", "''", "event_type is empty"),
    ("event_type", "repeat('x', 2000)", "event_type has 2000 bytes, more than 255"),
    (
        "payload",
        "convert_to(repeat('x', 2000000), 'UTF8')",
        "the payload has 2000000 bytes, more than kafka.message_bytes_max",
    ),
    ("headers", "'[\"no\", \"object\"]'", "headers is not an object of texts"),
    ("headers", "'{\"traceparent\": 1}'", "headers is not an object of texts"),
    ("headers", "'{\"traceparent\": {\"a\": \"b\"}}'", "headers is not an object of texts"),
    ("headers", "'{\"\": \"x\"}'", BAD_NAME),
    ("headers", "'{\"a\\nb\": \"x\"}'", BAD_NAME),
    (
        "headers",
        "jsonb_build_object('a', repeat('x', 20000))",
        "headers has 20009 bytes, more than 16384",
    ),
];
const BAD_NAME: &str =
    "headers has a name that is not of letters, digits, dots, underscores and hyphens";

impl Rig {
    /// As before the constraints: such rows may be in a database that is migrated.
    pub async fn let_any_row_in(&self) {
        let drop_all = "DO $$ DECLARE name text; BEGIN
                 FOR name IN SELECT conname FROM pg_constraint
                     WHERE conrelid = 'outbox'::regclass AND contype = 'c' LOOP
                     EXECUTE format('ALTER TABLE outbox DROP CONSTRAINT %I', name);
                 END LOOP;
             END $$";
        self.client.batch_execute(drop_all).await.unwrap();
    }
}

#[tokio::test]
async fn rows_that_break_the_contract_are_parked_with_a_reason_and_no_other_row_waits() {
    let rig = Rig::new().await;
    rig.let_any_row_in().await;
    for (number, (column, value, _)) in BROKEN.iter().enumerate() {
        let aggregate = format!("'a-{number}'");
        let row = [
            ("tenant_id", "'default'"),
            ("aggregate_id", &aggregate),
            ("aggregate_version", "1"),
            ("event_type", "'Counted'"),
            ("payload", "'{}'"),
            ("headers", "'{}'"),
        ];
        let row = row.map(|cell| if cell.0 == *column { (cell.0, *value) } else { cell });
        let values = row.map(|(_, value)| value).join(", ");
        let names = row.map(|(name, _)| name).join(", ");
        let insert = format!("INSERT INTO outbox ({names}) VALUES ({values})");
        rig.client.batch_execute(&insert).await.unwrap();
        rig.insert(&NewRow::of(&format!("good-{number}"))).await;
    }
    let mut relay = rig.member(&[]).await;

    relay.until_drained(&rig).await;
    // Nothing of them is tried again.
    for _ in 0..3 {
        relay.pass().await;
    }

    let good = i64::try_from(BROKEN.len()).unwrap();
    assert_eq!((rig.published().await, rig.records().await.len()), (good, BROKEN.len()));
    let sql = "SELECT last_error, attempts FROM outbox WHERE parked_at IS NOT NULL ORDER BY seq";
    let parked = rig.client.query(sql, &[]).await.unwrap();
    let parked: Vec<(String, i32)> = parked.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = BROKEN.map(|(_, _, reason)| (reason.to_owned(), 1));
    assert_eq!(parked, expected);
}
