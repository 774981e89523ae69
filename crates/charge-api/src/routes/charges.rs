//! POST /charges: from HTTP to a command, and from its outcome to HTTP.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap};
use actix_web::{HttpRequest, HttpResponse, web};
use domain::{Endpoint, IdempotencyKey, Outcome, StoredResponse};

use crate::Api;
use crate::api_error::ApiError;
use crate::auth::Principal;
use crate::create_charge::{Command, create_charge};
use crate::prefer::{PREFERENCE_APPLIED, Wait};
use crate::{charge_body, request_body, trace_context};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const IDEMPOTENT_REPLAYED: &str = "idempotent-replayed";

/// POST /charges. Checks go from the cheap to the dear: media type, size, key, body, state of the key.
pub async fn create(
    request: HttpRequest,
    payload: web::Payload,
    principal: web::ReqData<Principal>,
    api: web::Data<Api>,
) -> Result<HttpResponse, ApiError> {
    let body = request_body::read(&request, payload, &api.http).await?;
    let key = idempotency_key(request.headers())?;
    let charge = charge_body::parse(&body, &api.charges).map_err(ApiError::InvalidBody)?;
    let wait = Wait::of(request.headers(), api.wait_max);
    let command = Command {
        tenant: principal.into_inner().tenant,
        key,
        charge,
        wait: wait.map_or(Duration::ZERO, Wait::duration),
        trace_headers: trace_context::of(request.headers()),
    };
    let create = async {
        api.limits.admit_key(&api.context.pool, &command).await?;
        Ok::<_, ApiError>(create_charge(&api.context, command).await?)
    };
    let outcome = tokio::time::timeout(api.http.deadline, create)
        .await
        .map_err(|_elapsed| ApiError::Unavailable("the request took too long"))??;
    let labels = [Endpoint::CreateCharge.as_str(), outcome.label()];
    api.metrics.outcomes.with_label_values(&labels).inc();
    match outcome {
        Outcome::Created(response) => Ok(answer(key, response, "false", wait)),
        Outcome::Replayed(response) => Ok(answer(key, response, "true", wait)),
        Outcome::PayloadConflict { differing } => Err(ApiError::KeyReused { differing }),
        Outcome::InFlight => Err(ApiError::RequestInProgress { waited: wait }),
        Outcome::Expired { charge } => Err(ApiError::KeyExpired { charge }),
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<IdempotencyKey, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY);
    let value = values.next().ok_or(ApiError::KeyMissing)?;
    if values.next().is_some() {
        return Err(ApiError::KeyRepeated);
    }
    if value.is_empty() {
        return Err(ApiError::KeyMissing);
    }
    IdempotencyKey::parse(value.as_bytes()).map_err(ApiError::KeyInvalid)
}

/// The stored answer as it was given first; only the replay marker differs.
fn answer(
    key: IdempotencyKey,
    response: StoredResponse,
    replayed: &'static str,
    wait: Option<Wait>,
) -> HttpResponse {
    let status =
        StatusCode::from_u16(response.status).expect("invariant: only statuses of ours are stored");
    let mut builder = HttpResponse::build(status);
    builder
        .content_type(response.content_type)
        .insert_header((IDEMPOTENCY_KEY, key.to_string()))
        .insert_header((IDEMPOTENT_REPLAYED, replayed));
    if let Some(location) = response.location {
        builder.insert_header((header::LOCATION, location));
    }
    if let Some(wait) = wait {
        builder.insert_header((PREFERENCE_APPLIED, wait.applied()));
    }
    builder.body(response.body)
}
