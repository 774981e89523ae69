//! What is served where.

pub mod charges;
pub mod problems;

use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::{self, ServiceConfig};
use actix_web::{Error, HttpRequest};

use crate::Api;
use crate::api_error::ApiError;

pub fn configure(config: &mut ServiceConfig) {
    config
        .service(
            web::resource("/charges")
                .route(web::post().to(charges::create))
                .default_service(web::to(|| refuse_method("POST"))),
        )
        .service(
            web::resource("/charges/{id}")
                .route(web::get().to(charges::show))
                .route(web::head().to(charges::show))
                .default_service(web::to(|| refuse_method("GET, HEAD"))),
        )
        .service(
            web::resource("/problems/{name}")
                .route(web::get().to(problems::show))
                .route(web::head().to(problems::show))
                .default_service(web::to(|| refuse_method("GET, HEAD"))),
        )
        .default_service(web::to(not_found));
}

async fn refuse_method(allow: &'static str) -> Result<&'static str, ApiError> {
    Err(ApiError::MethodNotAllowed { allow })
}

async fn not_found(_request: HttpRequest) -> Result<&'static str, ApiError> {
    Err(ApiError::NotFound)
}

/// Times every request, by route pattern: a path as a label would let clients make series.
pub async fn measure(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let start = Instant::now();
    let api = request.app_data::<web::Data<Api>>().cloned();
    let result = next.call(request).await;
    let (pattern, status) = match &result {
        Ok(response) => (response.request().match_pattern(), response.status()),
        Err(error) => (None, error.as_response_error().status_code()),
    };
    if let Some(api) = api {
        let route = pattern.as_deref().unwrap_or("unmatched");
        let duration = api.metrics.request_duration.with_label_values(&[route, status.as_str()]);
        duration.observe(start.elapsed().as_secs_f64());
    }
    result
}
