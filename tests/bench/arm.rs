//! The arms that the product is compared with: the same HTTP server and the same tables, and the
//! charge written as most would write it (`naive`: seven round trips) or as one statement a request
//! (`single`). They have no error paths: they are here to be fast at the one thing that is measured.

use std::io::Write as _;

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use sha2::{Digest, Sha256};
use tokio_postgres::NoTls;
use uuid::Uuid;

#[derive(Args)]
pub struct Arguments {
    style: Style,
    database_url: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Style {
    Naive,
    Single,
}

/// As many connections as serve two cores best.
const POOL: usize = 16;

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    amount_cents: i64,
}

#[derive(Clone)]
struct State {
    pool: Pool,
    style: Style,
}

pub fn serve(arguments: Arguments) -> Result<()> {
    actix_web::rt::System::new().block_on(async {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(arguments.database_url.parse()?, NoTls, config);
        let pool = Pool::builder(manager).max_size(POOL).build()?;
        let state = State { pool, style: arguments.style };
        let server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::new(state.clone()))
                .route("/charges", web::post().to(create))
        })
        .workers(2)
        .bind("127.0.0.1:0")?;
        let addr = server.addrs()[0];
        writeln!(std::io::stdout(), "listening {addr}")?;
        server.run().await.context("serving")
    })
}

async fn create(
    request: HttpRequest,
    body: web::Json<Body>,
    state: web::Data<State>,
) -> Result<HttpResponse, actix_web::Error> {
    let key = request.headers().get("idempotency-key").and_then(|value| value.to_str().ok());
    let Some(key) = key.and_then(|key| key.parse().ok()) else {
        return Ok(HttpResponse::BadRequest().finish());
    };
    let charge = Charge::new(key, body.amount_cents);
    let written = match state.style {
        Style::Naive => naive(&state.pool, &charge).await,
        Style::Single => single(&state.pool, &charge).await,
    };
    written.map_err(actix_web::error::ErrorInternalServerError)?;
    Ok(HttpResponse::Created().content_type("application/json").body(charge.body))
}

struct Charge {
    key: Uuid,
    id: Uuid,
    amount: i64,
    fingerprint: Vec<u8>,
    body: Vec<u8>,
    outbox_id: Uuid,
    aggregate: String,
}

impl Charge {
    fn new(key: Uuid, amount: i64) -> Self {
        let id = Uuid::now_v7();
        let body = format!(
            r#"{{"id":"{id}","amountCents":{amount},"currency":"BRL","status":"succeeded","createdAt":"2026-11-30T21:00:00.123456Z"}}"#
        );
        let fingerprint = Sha256::digest(amount.to_string()).to_vec();
        let (body, aggregate) = (body.into_bytes(), id.to_string());
        Self { key, id, amount, fingerprint, body, outbox_id: Uuid::now_v7(), aggregate }
    }
}

/// BEGIN, look the key up, take it, charge, event, complete the key, COMMIT.
async fn naive(pool: &Pool, charge: &Charge) -> Result<()> {
    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    let look = tx
        .prepare_cached("SELECT response_body FROM idempotency_keys WHERE tenant_id = 'default' AND endpoint = 'POST /charges' AND key = $1")
        .await?;
    tx.query_opt(&look, &[&charge.key]).await?;
    let take = tx
        .prepare_cached("INSERT INTO idempotency_keys (tenant_id, endpoint, key, fingerprint, fingerprint_version, state, charge_id, expires_at) VALUES ('default', 'POST /charges', $1, $2, 1, 'in_progress', $3, clock_timestamp() + interval '24 hours')")
        .await?;
    tx.execute(&take, &[&charge.key, &charge.fingerprint, &charge.id]).await?;
    let insert = tx
        .prepare_cached("INSERT INTO charges (tenant_id, id, idempotency_key, amount_cents, currency, status, created_at) VALUES ('default', $1, $2, $3, 'BRL', 'succeeded', clock_timestamp())")
        .await?;
    tx.execute(&insert, &[&charge.id, &charge.key, &charge.amount]).await?;
    let event = tx
        .prepare_cached("INSERT INTO outbox (id, aggregate_id, aggregate_version, event_type, payload) VALUES ($1, $2, 1, 'ChargeCreated', $3)")
        .await?;
    tx.execute(&event, &[&charge.outbox_id, &charge.aggregate, &charge.body]).await?;
    let complete = tx
        .prepare_cached("UPDATE idempotency_keys SET state = 'completed', response_status = 201, response_content_type = 'application/json', response_body = $2 WHERE tenant_id = 'default' AND endpoint = 'POST /charges' AND key = $1")
        .await?;
    tx.execute(&complete, &[&charge.key, &charge.body]).await?;
    tx.commit().await?;
    Ok(())
}

/// The same rows in one statement.
async fn single(pool: &Pool, charge: &Charge) -> Result<()> {
    let client = pool.get().await?;
    let statement = client
        .prepare_cached(
            "WITH k AS (
                 INSERT INTO idempotency_keys (tenant_id, endpoint, key, fingerprint, fingerprint_version, state, charge_id,
                     response_status, response_content_type, response_body, expires_at)
                 VALUES ('default', 'POST /charges', $1, $2, 1, 'completed', $3, 201, 'application/json', $4,
                     clock_timestamp() + interval '24 hours')
                 ON CONFLICT DO NOTHING RETURNING charge_id
             ), c AS (
                 INSERT INTO charges (tenant_id, id, idempotency_key, amount_cents, currency, status, created_at)
                 SELECT 'default', charge_id, $1, $5, 'BRL', 'succeeded', clock_timestamp() FROM k
             ), o AS (
                 INSERT INTO outbox (id, aggregate_id, aggregate_version, event_type, payload)
                 SELECT $6, $7, 1, 'ChargeCreated', $4 FROM k
             )
             SELECT charge_id FROM k",
        )
        .await?;
    client
        .query_opt(
            &statement,
            &[
                &charge.key,
                &charge.fingerprint,
                &charge.id,
                &charge.body,
                &charge.amount,
                &charge.outbox_id,
                &charge.aggregate,
            ],
        )
        .await?;
    Ok(())
}
