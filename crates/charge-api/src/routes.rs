//! What is served where.

pub mod charge_reads;
pub mod charges;
pub mod description;
pub mod explorer;
pub mod problems;

use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::{self, ServiceConfig};
use actix_web::{Error, FromRequest, Handler, HttpRequest, Resource, Responder};

use crate::Api;
use crate::api_error::ApiError;

/// A path, and the methods that are served there.
pub struct Served {
    pub path: &'static str,
    /// As the header Allow has them.
    pub allow: &'static str,
}

const CHARGES: Served = Served { path: "/charges", allow: "GET, HEAD, POST" };
const CHARGE: Served = Served { path: "/charges/{id}", allow: "GET, HEAD" };
const DESCRIPTION: Served = Served { path: "/openapi.json", allow: "GET, HEAD" };
/// For people, and no operations of the API: the description leaves them out.
const EXPLORER: Served = Served { path: "/docs", allow: "GET, HEAD" };
const EXPLORER_FILE: Served = Served { path: "/docs/{file:.*}", allow: "GET, HEAD" };
const PROBLEMS: Served = Served { path: "/problems", allow: "GET, HEAD" };
const PROBLEM: Served = Served { path: "/problems/{name}", allow: "GET, HEAD" };

#[cfg(test)]
impl Served {
    pub const ALL: [Self; 5] = [CHARGES, CHARGE, DESCRIPTION, PROBLEMS, PROBLEM];
}

pub fn configure(config: &mut ServiceConfig) {
    config
        .service(read(&CHARGES, charge_reads::list).route(web::post().to(charges::create)))
        .service(read(&CHARGE, charge_reads::show))
        .service(read(&DESCRIPTION, description::show))
        .service(read(&EXPLORER, explorer::redirect))
        .service(read(&EXPLORER_FILE, explorer::show))
        .service(read(&PROBLEMS, problems::index))
        .service(read(&PROBLEM, problems::show))
        .default_service(web::to(not_found));
}

/// GET and HEAD by one handler; any method that is not added is refused.
fn read<F, Args>(served: &Served, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    let allow = served.allow;
    web::resource(served.path)
        .route(web::get().to(handler.clone()))
        .route(web::head().to(handler))
        .default_service(web::to(move || refuse_method(allow)))
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
