//! tokio-postgres checks nothing when it compiles, so every statement is prepared here; and a
//! statement is planned once, perhaps on empty tables, so its plan is looked at here too.

use serde_json::Value;
use tokio_postgres::SimpleQueryMessage;

/// The tables that grow, and the columns of which a scan must have one in its index condition.
const GROWING: [(&str, &[&str]); 7] = [
    ("idempotency_keys", &["key", "expires_at"]),
    ("charges", &["id"]),
    ("outbox", &["id", "bucket", "aggregate_id", "published_at"]),
    ("inbox", &["event_id"]),
    ("receipts", &["id"]),
    ("dead_letters", &["id"]),
    ("dead_letter_publications", &["letter_id", "consumer"]),
];

#[tokio::test]
async fn every_statement_prepares_against_the_migrated_schema() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let mut faults = Vec::new();
    for statement in store::STATEMENTS.iter().copied().flatten() {
        if let Err(error) = client.prepare(statement.sql).await {
            faults.push(format!("{}: {error:?}", statement.operation));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test]
async fn a_plan_made_while_the_tables_are_empty_never_scans_one_that_grows() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let session = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
         SET enable_bitmapscan = off";
    client.batch_execute(session).await.unwrap();
    let mut faults = Vec::new();
    for (number, statement) in store::STATEMENTS.iter().copied().flatten().enumerate() {
        let prepare = format!("PREPARE s{number} AS {}", statement.sql);
        client.batch_execute(&prepare).await.unwrap();
        let parameters = client.prepare(statement.sql).await.unwrap().params().len();
        let nulls = vec!["NULL"; parameters].join(", ");
        let arguments = if nulls.is_empty() { nulls } else { format!("({nulls})") };
        let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE s{number}{arguments}");
        let answer = client.simple_query(&explain).await.unwrap();
        let text: String = answer
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            })
            .collect();
        look_at(&serde_json::from_str(&text).unwrap(), false, statement.operation, &mut faults);
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Collects the scans of growing tables that are bounded neither by a condition on one of their
/// columns, nor by a LIMIT on what the index yields, nor by an index that holds few rows.
fn look_at(plan: &Value, limited: bool, operation: &str, faults: &mut Vec<String>) {
    let text = |name: &str| plan.get(name).and_then(Value::as_str).unwrap_or_default();
    let kind = text("Node Type");
    let growing = GROWING.iter().find(|(table, _)| *table == text("Relation Name"));
    if let (true, Some((table, columns))) = (kind.contains("Scan"), growing) {
        let condition = text("Index Cond");
        let names = |column: &str| {
            condition.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == column)
        };
        let short = limited || text("Index Name") == "outbox_parked";
        let bounded = columns.iter().any(|column| names(column));
        let unfiltered = plan.get("Filter").is_none();
        if !(bounded || short && unfiltered) {
            faults.push(format!("{operation}: {kind} of {table} by ({condition})"));
        }
    }
    let parts: Vec<&Value> = match plan {
        Value::Object(node) => node.values().collect(),
        Value::Array(parts) => parts.iter().collect(),
        _ => return,
    };
    // The list of a node's parts stands between it and them.
    let limited = kind == "Limit" || (plan.is_array() && limited);
    parts.into_iter().for_each(|part| look_at(part, limited, operation, faults));
}
