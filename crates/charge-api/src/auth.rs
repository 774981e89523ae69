//! Who is asking. Every request has its principal before anything else of it is looked at.
//!
//! The tenant comes from the key alone: nothing that a request says of itself chooses it. A key is
//! never logged, and what is remembered of it is its hash.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap};
use actix_web::middleware::Next;
use actix_web::{HttpMessage as _, web};
use domain::{ApiKey, TenantId};
use store::Pool;
pub use store::api_keys::Principal;
use tokio::time::Instant;

use crate::Api;
use crate::api_error::ApiError;
use crate::committer::Failure;
use crate::settings::Auth;

/// What anybody may read: the description of the API, and the pages that explain a problem, a missing
/// key among them.
fn is_public(path: &str) -> bool {
    let below = |folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    path == "/openapi.json" || below("/docs") || below("/problems")
}

/// Keys that are remembered at a time; further ones are asked for each time. A hundred bytes each.
const KNOWN_MAX: usize = 10_000;

/// Middleware: 401, 403 and 429 come before whatever the request is about, and its body is not read.
/// A handler finds the principal as `ReqData<Principal>`.
pub async fn authenticate<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, actix_web::Error> {
    if is_public(request.path()) {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    let api = request.app_data::<web::Data<Api>>().cloned();
    let api = api.expect("invariant: the app is made with it");
    match admit(&api, request.method(), request.headers()).await {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            Ok(next.call(request).await?.map_into_left_body())
        }
        Err(error) => Ok(request.error_response(error).map_into_right_body()),
    }
}

async fn admit(api: &Api, method: &Method, headers: &HeaderMap) -> Result<Principal, ApiError> {
    let identify = api.authenticator.identify(headers);
    let principal = tokio::time::timeout(api.http.deadline, identify)
        .await
        .map_err(|_elapsed| ApiError::Unavailable("the request took too long"))??;
    if !principal.may_write && !method.is_safe() {
        return Err(ApiError::Forbidden);
    }
    api.limits.admit(&principal.tenant)?;
    Ok(principal)
}

/// Tells whose a key is.
pub struct Authenticator {
    auth: Auth,
    pool: Pool,
    /// How long an answer of the database counts: a revoked key works no longer than this.
    ttl: Duration,
    known: Mutex<HashMap<ApiKey, Known>>,
}

struct Known {
    principal: Principal,
    until: Instant,
}

impl Authenticator {
    pub fn new(auth: Auth, ttl: Duration, pool: Pool) -> Self {
        Self { auth, pool, ttl, known: Mutex::default() }
    }

    async fn identify(&self, headers: &HeaderMap) -> Result<Principal, ApiError> {
        match self.auth {
            Auth::Disabled => Ok(Principal { tenant: TenantId::default_tenant(), may_write: true }),
            Auth::ApiKeys => self.look_up(bearer(headers)?).await,
        }
    }

    async fn look_up(&self, key: ApiKey) -> Result<Principal, ApiError> {
        // Taken before the question: what is revoked while it is answered is not kept for longer.
        let now = Instant::now();
        if let Some(principal) = self.recall(&key, now) {
            return Ok(principal);
        }
        let connection = self.pool.get().await.map_err(Failure::from)?;
        let found =
            store::api_keys::authenticate(&connection, &key).await.map_err(Failure::from)?;
        let principal = found.ok_or(ApiError::Unauthenticated { presented: true })?;
        self.remember(key, Known { principal: principal.clone(), until: now + self.ttl }, now);
        Ok(principal)
    }

    fn recall(&self, key: &ApiKey, now: Instant) -> Option<Principal> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|known| known.until > now).map(|known| known.principal.clone())
    }

    /// Only keys that are good come here, so nobody fills the table by guessing.
    fn remember(&self, key: ApiKey, found: Known, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, known| known.until > now);
        }
        if known.len() < KNOWN_MAX || known.contains_key(&key) {
            known.insert(key, found);
        }
    }
}

/// The key of `Authorization: Bearer …` (RFC 6750 §2.1), the only place it is read from.
fn bearer(headers: &HeaderMap) -> Result<ApiKey, ApiError> {
    let mut lines = headers.get_all(header::AUTHORIZATION);
    let Some(line) = lines.next() else {
        return Err(ApiError::Unauthenticated { presented: false });
    };
    let is_only = lines.next().is_none();
    let credentials = line.to_str().ok().filter(|_| is_only).and_then(|line| line.split_once(' '));
    credentials
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .and_then(|(_, token)| ApiKey::parse(token.trim_start_matches(' ')))
        .ok_or(ApiError::Unauthenticated { presented: true })
}
