//! Whose data it is: the scope of every key, charge and event.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The id of an authenticated principal, never its token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// The tenant of every request while `auth = "disabled"`.
    pub fn default_tenant() -> Self {
        Self::from("default")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for TenantId {
    fn from(id: &str) -> Self {
        Self(Arc::from(id))
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
