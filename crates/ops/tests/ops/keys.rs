//! `oncebox keys`.

use domain::ApiKey;
use pg_test::TestDatabase;

use crate::oncebox;

/// Tenants that the key opens the API for now, as the API would ask.
async fn opens(database: &TestDatabase, key: &str) -> Vec<String> {
    let key = ApiKey::parse(key).expect("it is spelled as a key");
    let hash: &[u8] = key.sha256();
    let find = "SELECT tenant_id FROM api_keys WHERE prefix = $1 AND sha256 = $2
                AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())";
    let rows = database.client().await.query(find, &[&key.prefix(), &hash]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_key_is_said_once_and_rotated_and_revoked_by_its_prefix() {
    let database = pg_test::database().await;
    let url = database.url();
    let create = ["keys", "create", "--tenant", "shop", "--name", "checkout"];

    let made = oncebox(&url, &create).await.ends_with(0);
    let key = made.stdout.lines().next().unwrap().to_owned();
    assert_eq!(opens(&database, &key).await, ["shop"]);
    let prefix = ApiKey::parse(&key).unwrap().prefix().to_owned();
    let secret = key.rsplit('_').next().unwrap();
    for format in [&[][..], &["--json"]] {
        let listed = oncebox(&url, &[&["keys", "list"], format].concat()).await.ends_with(0);
        assert!(listed.stdout.contains(&prefix), "{listed:?}");
        assert!(!listed.stdout.contains(secret), "{listed:?}");
    }

    let rotate = ["keys", "rotate", &prefix, "--expires-in", "90d", "--overlap", "1h", "--json"];
    let rotated = oncebox(&url, &rotate).await.ends_with(0).json();
    let new = rotated["key"].as_str().unwrap();
    assert_eq!(rotated["created"]["tenant"], "shop");
    assert_eq!(rotated["created"]["name"], "checkout");
    assert!(rotated["replaces"]["expiresAt"].is_string(), "{rotated}");
    assert_eq!(opens(&database, new).await, ["shop"]);
    assert_eq!(opens(&database, &key).await, ["shop"], "both work for the overlap");

    oncebox(&url, &["keys", "revoke", &prefix]).await.ends_with(64);
    assert_eq!(opens(&database, &key).await, ["shop"], "not without --yes");
    oncebox(&url, &["keys", "revoke", &prefix, "--yes"]).await.ends_with(0);
    assert!(opens(&database, &key).await.is_empty());
    assert_eq!(opens(&database, new).await, ["shop"]);

    let actions = "SELECT action, arguments::text FROM operator_actions ORDER BY at";
    let rows = database.client().await.query(actions, &[]).await.unwrap();
    let actions: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(actions, ["keys create", "keys rotate", "keys revoke"]);
    assert!(rows.iter().all(|row| !row.get::<_, &str>(1).contains(secret)));
}

#[tokio::test]
async fn a_dry_run_makes_no_key_and_says_none() {
    let database = pg_test::database().await;
    let create = ["keys", "create", "--tenant", "a", "--name", "n", "--dry-run", "--json"];
    let dry = oncebox(&database.url(), &create).await.ends_with(0).json();
    assert!(dry["key"].is_null(), "{dry}");
    let listed = oncebox(&database.url(), &["keys", "list", "--json"]).await.ends_with(0).json();
    assert_eq!(listed["keys"], serde_json::json!([]));
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_says_why() {
    let database = pg_test::database().await;
    let url = database.url();
    let wrong = ["keys", "create", "--tenant", "a b", "--name", "n"];
    oncebox(&url, &wrong).await.ends_with(64);
    let unknown = oncebox(&url, &["keys", "rotate", "0000", "--expires-in", "never"]).await;
    assert!(unknown.stderr.contains("no live key has the prefix"), "{unknown:?}");
    assert_ne!(unknown.code, 0);
    let unknown = oncebox(&url, &["keys", "revoke", "0000", "--yes"]).await;
    assert!(unknown.stderr.contains("no key has the prefix"), "{unknown:?}");
    assert_ne!(unknown.code, 0);
}
