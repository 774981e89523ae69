//! Swagger UI over the description of the API. Its files are in the binary: it works without a network,
//! and nothing of a payment page is loaded from anywhere else.

use std::sync::Arc;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use utoipa_swagger_ui::Config;

use crate::api_error::ApiError;

/// Scripts are this server's own; Swagger UI styles itself in place and draws with `data:` pictures.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// GET /docs/{file}
pub async fn show(file: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let config = Config::from("/openapi.json").validator_url("none");
    let served = utoipa_swagger_ui::serve(&file, Arc::new(config)).map_err(|error| {
        tracing::error!(error = &*error, "a file of Swagger UI cannot be served");
        ApiError::Internal
    })?;
    let served = served.ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok()
        .content_type(served.content_type)
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .body(served.bytes.into_owned()))
}

/// GET /docs: the files of Swagger UI are named relative to a folder.
pub async fn redirect() -> HttpResponse {
    HttpResponse::PermanentRedirect().insert_header((header::LOCATION, "/docs/")).finish()
}
