//! The api_keys table: whose a key is, and the operator's changes to them.
//!
//! The database's clock decides whether a key is still good.

use domain::{ApiKey, TenantId};
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use tokio_postgres::Row;

use crate::{Connection, Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[&FIND];
pub(crate) const OPERATOR_STATEMENTS: &[&Statement] = &[&INSERT, &LIST, &EXPIRE, &REVOKE];

/// Whom a key speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub tenant: TenantId,
    pub may_write: bool,
}

// By api_keys_prefix. Two keys with one random prefix are as good as impossible; more than a few
// would be somebody's work.
const FIND: Statement = Statement::new(
    "look an API key up",
    "SELECT sha256, tenant_id, may_write
     FROM api_keys
     WHERE prefix = $1
       AND revoked_at IS NULL
       AND (expires_at IS NULL OR expires_at > clock_timestamp())
     LIMIT 8",
);

/// Whose this key is; `None` when it is nobody's, expired or revoked.
///
/// # Errors
/// [`Error::Statement`].
pub async fn authenticate(
    connection: &Connection,
    key: &ApiKey,
) -> Result<Option<Principal>, Error> {
    let rows = connection.query(&FIND, &[&key.prefix()]).await?;
    let row = rows.iter().find(|row| key.sha256().ct_eq(row.get::<_, &[u8]>(0)).into());
    Ok(row.map(|row| Principal {
        tenant: TenantId::from(row.get::<_, &str>(1)),
        may_write: row.get(2),
    }))
}

/// A key as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub tenant: TenantId,
    pub prefix: String,
    pub name: String,
    pub may_write: bool,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// It opens the API now.
    pub is_live: bool,
}

impl Listed {
    fn read(row: &Row) -> Self {
        Self {
            tenant: TenantId::from(row.get::<_, &str>(0)),
            prefix: row.get(1),
            name: row.get(2),
            may_write: row.get(3),
            created_at: row.get(4),
            expires_at: row.get(5),
            revoked_at: row.get(6),
            is_live: row.get(7),
        }
    }
}

/// What a new key is to be.
#[derive(Debug, Clone)]
pub struct NewKey<'a> {
    pub tenant: &'a TenantId,
    pub name: &'a str,
    pub may_write: bool,
    /// Seconds from now; `None` = never.
    pub expires_in: Option<f64>,
}

const INSERT: Statement = Statement::new(
    "create an API key",
    "INSERT INTO api_keys (tenant_id, prefix, sha256, name, may_write, expires_at)
     VALUES ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6))
     RETURNING tenant_id, prefix, name, may_write, created_at, expires_at, revoked_at, true",
);

/// # Errors
/// [`Error::Statement`]; its constraint is `api_keys_tenant_id_check` for an id that none can have.
pub async fn create(tx: &Transaction<'_>, new: &NewKey<'_>, key: &ApiKey) -> Result<Listed, Error> {
    let hash: &[u8] = key.sha256();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&new.tenant.as_str(), &key.prefix(), &hash, &new.name, &new.may_write, &new.expires_in];
    let row = tx.query_opt(&INSERT, &params).await?;
    Ok(Listed::read(&row.expect("invariant: an INSERT of one row returns one")))
}

const LIST: Statement = Statement::new(
    "list API keys",
    "SELECT tenant_id, prefix, name, may_write, created_at, expires_at, revoked_at,
            revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
     FROM api_keys
     WHERE ($1::text IS NULL OR tenant_id = $1) AND (tenant_id, prefix) > ($2, $3)
     ORDER BY tenant_id, prefix
     LIMIT $4",
);

/// The keys of one tenant or of all, at most `limit`, after the place that the last page ended at.
///
/// # Errors
/// [`Error::Statement`].
pub async fn list(
    connection: &Connection,
    tenant: Option<&TenantId>,
    after: Option<&Listed>,
    limit: u32,
) -> Result<Vec<Listed>, Error> {
    let after = after.map_or(("", ""), |key| (key.tenant.as_str(), &key.prefix));
    let tenant = tenant.map(TenantId::as_str);
    let rows = connection.query(&LIST, &[&tenant, &after.0, &after.1, &i64::from(limit)]).await?;
    Ok(rows.iter().map(Listed::read).collect())
}

// By api_keys_prefix. It never gives a key more time than it had.
const EXPIRE: Statement = Statement::new(
    "let an API key expire",
    "UPDATE api_keys
     SET expires_at = least(expires_at, clock_timestamp() + make_interval(secs => $2))
     WHERE prefix = $1
       AND revoked_at IS NULL
       AND (expires_at IS NULL OR expires_at > clock_timestamp())
     RETURNING tenant_id, prefix, name, may_write, created_at, expires_at, revoked_at, true",
);

/// Gives a live key so many seconds more at most: the overlap of a rotation. `None` when there is no
/// such live key.
///
/// # Errors
/// [`Error::Statement`].
pub async fn expire(
    tx: &Transaction<'_>,
    prefix: &str,
    seconds: f64,
) -> Result<Option<Listed>, Error> {
    let row = tx.query_opt(&EXPIRE, &[&prefix, &seconds]).await?;
    Ok(row.as_ref().map(Listed::read))
}

// By api_keys_prefix.
const REVOKE: Statement = Statement::new(
    "revoke an API key",
    "UPDATE api_keys
     SET revoked_at = coalesce(revoked_at, clock_timestamp())
     WHERE prefix = $1
     RETURNING tenant_id, prefix, name, may_write, created_at, expires_at, revoked_at, false",
);

/// Ends a key for good, from now on. `None` when there is no such key.
///
/// # Errors
/// [`Error::Statement`].
pub async fn revoke(tx: &Transaction<'_>, prefix: &str) -> Result<Option<Listed>, Error> {
    let row = tx.query_opt(&REVOKE, &[&prefix]).await?;
    Ok(row.as_ref().map(Listed::read))
}
