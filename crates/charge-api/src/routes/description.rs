//! The description of the API: the committed file, byte for byte. `openapi.rs` makes it.

use actix_web::HttpResponse;

pub const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

/// GET /openapi.json
pub async fn show() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(DOCUMENT)
}
