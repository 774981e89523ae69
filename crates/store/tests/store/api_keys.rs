//! API keys: whom they speak for, and when they stop.

use domain::{ApiKey, NewApiKey, TenantId};
use store::api_keys::{self, Listed, NewKey, Principal};
use store::{Connection, Pool};

use crate::pool;

fn key(number: u8) -> NewApiKey {
    NewApiKey::from_random([number; 8], [number; 32])
}

async fn create(pool: &Pool, tenant: &str, key: &NewApiKey, expires_in: Option<f64>) -> Listed {
    let mut connection = pool.get().await.unwrap();
    let tx = connection.transaction().await.unwrap();
    let tenant = TenantId::from(tenant);
    let new = NewKey { tenant: &tenant, name: "test", may_write: true, expires_in };
    let listed = api_keys::create(&tx, &new, &key.key).await.unwrap();
    tx.commit().await.unwrap();
    listed
}

async fn tenant_of(connection: &Connection, key: &ApiKey) -> Option<String> {
    let principal = api_keys::authenticate(connection, key).await.unwrap();
    principal.map(|principal: Principal| principal.tenant.as_str().to_owned())
}

#[tokio::test]
async fn a_key_speaks_for_its_tenant_until_it_expires_or_is_revoked() {
    let database = pg_test::database().await;
    let pool = pool(&database);
    let (a, b, expired) = (key(1), key(2), key(3));
    create(&pool, "a", &a, None).await;
    create(&pool, "b", &b, Some(3600.0)).await;
    create(&pool, "c", &expired, Some(-1.0)).await;

    let mut connection = pool.get().await.unwrap();
    assert_eq!(tenant_of(&connection, &a.key).await.as_deref(), Some("a"));
    assert_eq!(tenant_of(&connection, &b.key).await.as_deref(), Some("b"));
    assert_eq!(tenant_of(&connection, &expired.key).await, None);
    let other_secret = NewApiKey::from_random([1; 8], [9; 32]);
    assert_eq!(tenant_of(&connection, &other_secret.key).await, None);

    let tx = connection.transaction().await.unwrap();
    assert!(api_keys::revoke(&tx, a.key.prefix()).await.unwrap().is_some());
    assert_eq!(api_keys::revoke(&tx, "none").await.unwrap(), None);
    tx.commit().await.unwrap();
    assert_eq!(tenant_of(&connection, &a.key).await, None);
    let tx = connection.transaction().await.unwrap();
    assert_eq!(api_keys::expire(&tx, a.key.prefix(), 60.0).await.unwrap(), None, "it is revoked");
}

#[tokio::test]
async fn the_overlap_of_a_rotation_never_gives_a_key_more_time_than_it_had() {
    let database = pg_test::database().await;
    let pool = pool(&database);
    let (short, endless) = (key(1), key(2));
    let created = create(&pool, "a", &short, Some(10.0)).await;
    create(&pool, "a", &endless, None).await;
    let mut connection = pool.get().await.unwrap();
    let tx = connection.transaction().await.unwrap();
    let kept = api_keys::expire(&tx, short.key.prefix(), 3600.0).await.unwrap().unwrap();
    assert_eq!(kept.expires_at, created.expires_at);
    let bounded = api_keys::expire(&tx, endless.key.prefix(), 3600.0).await.unwrap().unwrap();
    assert!(bounded.expires_at.is_some());
    tx.commit().await.unwrap();
    assert!(tenant_of(&connection, &endless.key).await.is_some(), "both work for a while");
}

#[tokio::test]
async fn keys_are_listed_by_page_and_tenant_without_what_proves_them() {
    let database = pg_test::database().await;
    let pool = pool(&database);
    for number in 1..=3 {
        create(&pool, "a", &key(number), None).await;
    }
    create(&pool, "b", &key(4), Some(-1.0)).await;
    let connection = pool.get().await.unwrap();
    let first = api_keys::list(&connection, None, None, 3).await.unwrap();
    let rest = api_keys::list(&connection, None, first.last(), 3).await.unwrap();
    assert_eq!(first.iter().map(|key| key.tenant.as_str()).collect::<Vec<_>>(), ["a", "a", "a"]);
    assert_eq!(rest.len(), 1);
    assert!(first[0].is_live && !rest[0].is_live);
    let of_b = api_keys::list(&connection, Some(&TenantId::from("b")), None, 10).await.unwrap();
    assert_eq!(of_b, rest);
}
