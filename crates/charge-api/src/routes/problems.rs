//! A short page for each kind of problem: what its `type` leads to; and a list of them.

use actix_web::{HttpResponse, web};

use crate::api_error::{ApiError, Kind};

/// GET /problems
pub async fn index() -> HttpResponse {
    let lines = Kind::ALL.iter().map(|kind| {
        format!("/problems/{:<24} {} {}\n", kind.name, kind.status.as_u16(), kind.title)
    });
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body(lines.collect::<String>())
}

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
