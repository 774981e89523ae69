//! Reads a JSON body within its limits: media type, size and time.

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{BytesMut, Payload};
use futures_util::StreamExt as _;

use crate::api_error::ApiError;
use crate::settings::HttpSettings;

/// # Errors
/// 415 before anything is read; 413 as soon as the size is known or passed; 408 when time is up.
pub async fn read(
    request: &HttpRequest,
    payload: Payload,
    limits: &HttpSettings,
) -> Result<BytesMut, ApiError> {
    if request.headers().contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::UnsupportedContentEncoding);
    }
    if !is_json(request.headers()) {
        return Err(ApiError::UnsupportedMediaType);
    }
    let limit = limits.body_max.as_usize();
    if content_length(request.headers()).is_some_and(|length| length > limit) {
        return Err(ApiError::BodyTooLarge { limit });
    }
    tokio::time::timeout(limits.body_timeout, collect(payload, limit))
        .await
        .map_err(|_elapsed| ApiError::BodyTimeout)?
}

/// One Content-Type, of JSON. JSON is UTF-8 (RFC 8259 §8.1), so a parameter that names another
/// charset contradicts it; other parameters mean nothing.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE);
    let (Some(first), None) = (types.next(), types.next()) else { return false };
    let mut parts = first.to_str().unwrap_or_default().split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    is_json
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
                value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

/// A length that does not parse has been refused by the server already.
fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn collect(mut payload: Payload, limit: usize) -> Result<BytesMut, ApiError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| ApiError::BodyIncomplete)?;
        if body.len() + chunk.len() > limit {
            return Err(ApiError::BodyTooLarge { limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
