//! GET /charges/{id} and GET /charges: one charge, the charge of a key, or a page of them.

use std::future::Future;
use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use domain::{Charge, ChargeId, Endpoint, IdempotencyKey, TenantId};
use serde::Serialize;
use store::key_lock;
use uuid::Uuid;

use crate::Api;
use crate::api_error::ApiError;
use crate::auth::Principal;
use crate::charge_query::{self, ChargeQuery, Cursor};
use crate::committer::Failure;
use crate::create_charge::Context;
use crate::in_flight::Operation;

/// What GET /charges answers.
#[derive(Serialize)]
struct Charges {
    charges: Vec<Charge>,
    /// Where the next page is; absent after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// GET /charges/{id}. An id of another tenant, and what is no id at all, is not found.
pub async fn show(
    id: web::Path<String>,
    principal: web::ReqData<Principal>,
    api: web::Data<Api>,
) -> Result<HttpResponse, ApiError> {
    let id = charge_id(&id).ok_or(ApiError::NotFound)?;
    let charge = in_time(api.http.deadline, async {
        let connection = api.context.pool.get().await?;
        Ok(store::charges::find(&connection, &principal.tenant, id).await?)
    });
    Ok(HttpResponse::Ok().json(charge.await?.ok_or(ApiError::NotFound)?))
}

/// GET /charges
pub async fn list(
    request: HttpRequest,
    principal: web::ReqData<Principal>,
    api: web::Data<Api>,
) -> Result<HttpResponse, ApiError> {
    let (tenant, context) = (&principal.tenant, &api.context);
    match charge_query::parse(request.query_string())? {
        ChargeQuery::OfKey(key) => {
            let found = in_time(api.http.deadline, of_key(context, tenant, key)).await?;
            let charges = match found {
                OfKey::Charged(charge) => vec![charge],
                OfKey::Running => return Err(ApiError::RequestInProgress { waited: None }),
                OfKey::NotCharged => vec![],
            };
            Ok(HttpResponse::Ok().json(Charges { charges, next: None }))
        }
        ChargeQuery::Page { cursor, limit } => {
            let page = in_time(api.http.deadline, page(context, tenant, cursor, limit)).await?;
            let mut response = HttpResponse::Ok();
            if let Some(next) = &page.next {
                response.insert_header((header::LINK, format!("<{next}>; rel=\"next\"")));
            }
            Ok(response.json(page))
        }
    }
}

/// Was it charged?
enum OfKey {
    Charged(Charge),
    /// A request with the key is being written, here or by another process.
    Running,
    /// Nothing is committed under the key. A request on its way may still charge, and only sending
    /// it again under its key is sure to end in one charge.
    NotCharged,
}

/// Who runs is asked first: a request that ends in between has then committed what is found next.
async fn of_key(
    context: &Context,
    tenant: &TenantId,
    key: IdempotencyKey,
) -> Result<OfKey, Failure> {
    let endpoint = Endpoint::CreateCharge;
    let operation = Operation { tenant: tenant.clone(), endpoint, key };
    let runs_here = context.in_flight.runs(&operation);
    let connection = context.pool.get().await?;
    let runs = runs_here || key_lock::is_held(&connection, tenant, endpoint, key).await?;
    Ok(match store::charges::find_by_key(&connection, tenant, key).await? {
        Some(charge) => OfKey::Charged(charge),
        None if runs => OfKey::Running,
        None => OfKey::NotCharged,
    })
}

async fn page(
    context: &Context,
    tenant: &TenantId,
    cursor: Cursor,
    limit: u16,
) -> Result<Charges, Failure> {
    let connection = context.pool.get().await?;
    // One more than is shown tells whether there is a next page.
    let mut charges = store::charges::list(&connection, tenant, cursor.0, limit + 1).await?;
    let more = charges.len() > usize::from(limit);
    charges.truncate(limit.into());
    let last = charges.last().filter(|_| more);
    let next =
        last.map(|charge| format!("/charges?limit={limit}&cursor={}", Cursor(charge.id).to_text()));
    Ok(Charges { charges, next })
}

async fn in_time<T>(
    deadline: Duration,
    read: impl Future<Output = Result<T, Failure>>,
) -> Result<T, ApiError> {
    let read = tokio::time::timeout(deadline, read).await;
    Ok(read.map_err(|_elapsed| ApiError::Unavailable("the request took too long"))??)
}

/// A charge has one address, so only the hyphenated form of its id is one.
fn charge_id(text: &str) -> Option<ChargeId> {
    let id = Uuid::try_parse(text).ok()?;
    text.eq_ignore_ascii_case(&id.to_string()).then_some(ChargeId(id))
}
