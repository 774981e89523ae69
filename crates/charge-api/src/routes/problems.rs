//! A short page for each kind of problem: what its `type` leads to.

use actix_web::{HttpResponse, web};

use crate::api_error::{ApiError, Kind};

/// GET /problems/{name}
pub async fn show(name: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let kind = Kind::ALL.iter().find(|kind| kind.name == *name).ok_or(ApiError::NotFound)?;
    let retryable = if kind.retryable { "yes, with the same key" } else { "no" };
    let page = format!(
        "{title}\n\nStatus: {status}\nRetryable: {retryable}\n\n{advice}\n",
        title = kind.title,
        status = kind.status,
        advice = kind.advice,
    );
    Ok(HttpResponse::Ok().content_type("text/plain; charset=utf-8").body(page))
}
