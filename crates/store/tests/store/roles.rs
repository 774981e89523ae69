//! Each role may do what its process does, and not what another's does.

use pg_test::TestDatabase;
use store::migrate;
use store::roles::ROLES;
use tokio_postgres::error::SqlState;

#[tokio::test]
async fn every_role_may_run_the_statements_of_its_process() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let mut faults = Vec::new();
    for (role, modules) in ROLES {
        client.batch_execute(&format!("SET ROLE {role}")).await.unwrap();
        for statement in modules.iter().copied().flatten() {
            let parameters = match client.prepare(statement.sql).await {
                Ok(prepared) => prepared.params().len(),
                Err(error) => {
                    faults.push(format!("{role}: {}: {error:?}", statement.operation));
                    continue;
                }
            };
            let prepare = format!("DEALLOCATE ALL; PREPARE one AS {}", statement.sql);
            client.batch_execute(&prepare).await.unwrap();
            let nulls = vec!["NULL"; parameters].join(", ");
            let arguments = if nulls.is_empty() { nulls } else { format!("({nulls})") };
            // Rights are checked when a plan is about to be run, and EXPLAIN stops after that.
            let explain = format!("EXPLAIN EXECUTE one{arguments}");
            if let Err(error) = client.simple_query(&explain).await {
                faults.push(format!("{role}: {}: {error:?}", statement.operation));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test]
async fn no_role_may_do_what_is_not_its_business() {
    let database = pg_test::database().await;
    for (role, statements) in [
        (
            "oncebox_api",
            &[
                "UPDATE charges SET amount_cents = 1",
                "DELETE FROM charges",
                "DELETE FROM idempotency_keys",
                "UPDATE outbox SET published_at = now()",
                "SELECT FROM outbox WHERE payload IS NULL",
                "INSERT INTO api_keys DEFAULT VALUES",
                "UPDATE api_keys SET revoked_at = NULL",
                "SELECT amount_cents FROM receipts",
            ][..],
        ),
        (
            "oncebox_relay",
            &[
                "INSERT INTO outbox DEFAULT VALUES",
                "DELETE FROM outbox_discarded",
                "UPDATE outbox SET payload = ''",
                "SELECT amount_cents FROM charges",
                "SELECT key FROM idempotency_keys",
                "SELECT sha256 FROM api_keys",
            ],
        ),
        (
            "oncebox_consumer",
            &[
                "DELETE FROM inbox",
                "DROP TABLE inbox_first",
                "INSERT INTO inbox_first DEFAULT VALUES",
                "UPDATE inbox_horizon SET complete_since = '-infinity'",
                "SELECT keep_inbox()",
                "UPDATE receipts SET amount_cents = 1",
                "SELECT payload FROM outbox",
                "INSERT INTO charges DEFAULT VALUES",
                "DELETE FROM dead_letters",
                "UPDATE dead_letters SET reason = ''",
                "INSERT INTO dead_letter_publications DEFAULT VALUES",
                "DELETE FROM dead_letter_publications",
                "SELECT add_dead_letter_publication()",
            ],
        ),
        (
            "oncebox_jobs",
            &[
                "INSERT INTO charges DEFAULT VALUES",
                "UPDATE charges SET amount_cents = 1",
                "DELETE FROM charges",
                "UPDATE idempotency_keys SET fingerprint = ''",
                "UPDATE outbox SET payload = ''",
                "INSERT INTO outbox DEFAULT VALUES",
                "DELETE FROM inbox",
                "SELECT sha256 FROM api_keys",
            ],
        ),
        (
            "oncebox_readonly",
            &[
                "INSERT INTO charges DEFAULT VALUES",
                "UPDATE outbox SET parked_at = NULL",
                "DELETE FROM inbox",
                "SELECT sha256 FROM api_keys",
                "SELECT grant_to_roles()",
            ],
        ),
        (
            "oncebox_writer",
            &[
                "SELECT FROM outbox WHERE payload IS NULL",
                "INSERT INTO outbox (aggregate_id, event_type, payload, published_at) VALUES ('a', 'A', '', now())",
                "INSERT INTO outbox (aggregate_id, event_type, payload, seq) OVERRIDING SYSTEM VALUE VALUES ('a', 'A', '', 1)",
                "UPDATE outbox SET payload = ''",
                "DELETE FROM outbox",
                "INSERT INTO charges DEFAULT VALUES",
                "SELECT amount_cents FROM charges",
            ],
        ),
    ] {
        let client = database.client().await;
        client.batch_execute(&format!("SET ROLE {role}")).await.unwrap();
        let everybody = ["CREATE TABLE more ()", "DROP TABLE charges", "TRUNCATE outbox"];
        for statement in statements.iter().chain(&everybody) {
            let refused = client.batch_execute(statement).await.unwrap_err();
            let code = refused.code();
            assert_eq!(code, Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{role}: {statement}");
        }
        assert!(ROLES.iter().any(|(name, _)| *name == role));
    }
}

/// A new table is closed to everybody; for whoever only looks it is opened, or kept closed on purpose.
#[tokio::test]
async fn who_only_looks_sees_every_table() {
    let database = pg_test::database().await;
    let tables = "SELECT relname FROM pg_class
         WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')
           -- A partition is read through its table.
           AND NOT relispartition
           AND NOT has_any_column_privilege('oncebox_readonly', oid, 'SELECT')";
    let unseen = database.client().await.query(tables, &[]).await.unwrap();
    let unseen: Vec<String> = unseen.iter().map(|row| row.get(0)).collect();
    assert_eq!(unseen, Vec::<String>::new(), "add rows to role_grants and call grant_to_roles()");
}

#[tokio::test]
async fn databases_of_one_cluster_migrate_at_the_same_time() {
    let one = pg_test::empty_database().await;
    let two = pg_test::empty_database().await;
    let three = pg_test::empty_database().await;
    let (one, two, three) = (one.url(), two.url(), three.url());
    let (a, b, c) = tokio::join!(migrate::run(&one), migrate::run(&two), migrate::run(&three));
    for applied in [a, b, c] {
        applied.unwrap();
    }
}

#[tokio::test]
async fn an_owner_who_may_not_create_roles_migrates_and_is_told_what_is_missing() {
    let database = pg_test::empty_database().await;
    let (name, client) = (database.name(), database.client().await);
    // Roles are the whole server's; the end of the name is what makes it unique.
    let unique = &name[name.len() - 8..];
    let owner = format!("owner_{unique}");
    let make = format!(
        "CREATE ROLE {owner} LOGIN PASSWORD 'secret'; ALTER DATABASE {name} OWNER TO {owner}"
    );
    client.batch_execute(&make).await.unwrap();
    let url = as_user(&database, &owner);
    migrate::run(&url).await.unwrap();
    // The roles are there by the other databases of this server; here is one that is not.
    let absent = format!("absent_{unique}");
    let add = format!("INSERT INTO role_grants VALUES ('{absent}', 'SELECT', 'charges')");
    client.batch_execute(&add).await.unwrap();
    let (by_owner, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let missing = by_owner.query("SELECT grant_to_roles()", &[]).await.unwrap();
    let missing: Vec<String> = missing.iter().map(|row| row.get(0)).collect();
    assert!(missing.contains(&format!("CREATE ROLE {absent} NOLOGIN")), "{missing:?}");

    client.batch_execute(&format!("CREATE ROLE {absent} NOLOGIN")).await.unwrap();
    by_owner.query("SELECT grant_to_roles()", &[]).await.unwrap();
    client.batch_execute(&format!("SET ROLE {absent}; SELECT id FROM charges")).await.unwrap();
    let clean = format!(
        "RESET ROLE; DROP OWNED BY {absent}; DROP ROLE {absent};
         ALTER DATABASE {name} OWNER TO CURRENT_USER; REASSIGN OWNED BY {owner} TO CURRENT_USER;
         DROP OWNED BY {owner}; DROP ROLE {owner}"
    );
    client.batch_execute(&clean).await.unwrap();
}

fn as_user(database: &TestDatabase, user: &str) -> String {
    let url = database.url();
    let (_, place) = url.split_once('@').expect("a URL with a user");
    format!("postgres://{user}:secret@{place}")
}
