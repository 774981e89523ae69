//! Kafka with TLS, passwords and rules: everything works over it, and whoever is refused says why,
//! loses nothing and goes on when let in.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use harness::answers::Answers;
use harness::client::Client;
use harness::eventually::{SOON, eventually_true};
use harness::kafka_security::{PASSWORD, SecuredKafka};
use harness::postgres::connect;
use harness::service::{Role, Service, Wiring};
use harness::stack::{STOP_LIMIT, Shape, Stack};
use uuid::Uuid;

use crate::context::{Context, tests};
use crate::verification::verify;

tests![
    charges_reach_the_consumer_over_tls_and_the_topic_is_verified_over_it,
    whoever_is_refused_by_the_brokers_says_why_and_what_waited_goes_out_once_it_is_let_in,
    a_relay_that_may_not_write_says_so_and_publishes_once_it_may_without_a_restart,
];

const USERS: [&str; 3] = ["relay", "consumer", "operator"];
const CHARGES: usize = 20;

async fn charges_reach_the_consumer_over_tls_and_the_topic_is_verified_over_it(
    context: &Context,
) -> Result<()> {
    let kafka = SecuredKafka::start(&context.logs, &USERS).await?;
    let mut wiring = wiring(context, &kafka).await?;
    allow_all(&kafka, &wiring).await?;
    log_in(&kafka, &mut wiring, PASSWORD, kafka.authority());
    let stack = Stack::start(wiring, Shape::ONE).await?;
    let answers = Answers::default();

    charge(&stack, &answers).await?;
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.receipts, verdict.duplicates()), (CHARGES, CHARGES, 0));

    let operator = kafka.environment("operator", PASSWORD, &kafka.authority());
    let report = verify(&stack, &operator, &[]).await?;
    let found = (report["records"].as_u64(), report["rowsProven"].as_u64());
    assert_eq!(found, (Some(CHARGES as u64), Some(CHARGES as u64)), "{report}");
    let wrong = kafka.environment("operator", "guessed", &kafka.authority());
    let refused = verify(&stack, &wrong, &[]).await.expect_err("a wrong password").to_string();
    ensure!(refused.contains("Authentication failed"), "{refused}");
    stack.stop().await?;
    kafka.stop().await
}

async fn whoever_is_refused_by_the_brokers_says_why_and_what_waited_goes_out_once_it_is_let_in(
    context: &Context,
) -> Result<()> {
    let kafka = SecuredKafka::start(&context.logs, &USERS).await?;
    let wiring = wiring(context, &kafka).await?;
    allow_all(&kafka, &wiring).await?;
    let mut stack = Stack::start(wiring, Shape::API).await?;
    let answers = Answers::default();

    for (round, (password, authority, reason)) in [
        ("guessed", kafka.authority(), "Authentication failed"),
        (PASSWORD, kafka.stranger(), "certificate verify failed"),
    ]
    .into_iter()
    .enumerate()
    {
        log_in(&kafka, &mut stack.wiring, password, authority);
        charge(&stack, &answers).await?;
        for role in [Role::OutboxRelay, Role::ChargeConsumer] {
            let service = stack.add(role).await?;
            not_ready_because(service, reason).await?;
            let log = service.log();
            ensure!(log.contains(reason), "{reason} is not in its log\n{}", log.tail());
        }
        assert_eq!(waiting(&stack.wiring).await?, (CHARGES as i64, 0), "pending, and tried");

        for service in [&mut stack.relays, &mut stack.consumers].into_iter().flatten() {
            service.stop(STOP_LIMIT).await?;
        }
        log_in(&kafka, &mut stack.wiring, PASSWORD, kafka.authority());
        for role in [Role::OutboxRelay, Role::ChargeConsumer] {
            stack.add(role).await?.ready().await?;
        }
        let verdict = context.settle(&stack.wiring, &answers).await?;
        assert_eq!(verdict.receipts, CHARGES * (round + 1), "{reason}");
        for mut service in stack.relays.drain(..).chain(stack.consumers.drain(..)) {
            if service.pid().is_some() {
                service.stop(STOP_LIMIT).await?;
            }
        }
    }
    stack.stop().await?;
    kafka.stop().await
}

async fn a_relay_that_may_not_write_says_so_and_publishes_once_it_may_without_a_restart(
    context: &Context,
) -> Result<()> {
    let kafka = SecuredKafka::start(&context.logs, &USERS).await?;
    let mut wiring = wiring(context, &kafka).await?;
    let topic = wiring.topic.clone();
    kafka.allow("relay", &format!("--operation Describe --topic {topic}")).await?;
    log_in(&kafka, &mut wiring, PASSWORD, kafka.authority());
    let mut stack = Stack::start(wiring, Shape::API).await?;
    charge(&stack, &Answers::default()).await?;
    stack.add(Role::OutboxRelay).await?;
    let denied = [("class", "denied")];

    // It may write nowhere: it does not even become a producer.
    let relay = &stack.relays[0];
    not_ready_because(relay, "authorization failed").await?;
    eventually_true(SOON, "that is counted as denied", async || {
        Ok(relay.metric("outbox_publish_errors_total", &denied).await? >= 1.0)
    })
    .await?;
    // It becomes one, and this topic is still forbidden.
    kafka.allow("relay", "--operation Write --topic another").await?;
    not_ready_because(relay, "Topic authorization failed").await?;
    assert_eq!(waiting(&stack.wiring).await?, (CHARGES as i64, 0), "pending, and tried");

    kafka.allow("relay", &format!("--operation Write --topic {topic}")).await?;
    eventually_true(SOON, "all is published", async || Ok(waiting(&stack.wiring).await? == (0, 0)))
        .await?;
    relay.ready().await?;
    assert_eq!(context.topic(&stack.wiring).read_all().await?.len(), CHARGES);
    stack.stop().await?;
    kafka.stop().await
}

/// The harness comes by the plain listener.
async fn wiring(context: &Context, kafka: &SecuredKafka) -> Result<Wiring> {
    let shared = context.wiring().await?;
    context.wiring_on(&shared.database_url, &kafka.brokers(), 1).await
}

/// What `docs/ACCESS.md` says that each needs, and nothing more.
async fn allow_all(kafka: &SecuredKafka, wiring: &Wiring) -> Result<()> {
    let Wiring { topic, group, .. } = wiring;
    for (user, rule) in [
        ("relay", format!("--operation Write --topic {topic}")),
        ("consumer", format!("--operation Read --topic {topic} --group {group}")),
        ("consumer", format!("--operation DescribeConfigs --topic {topic}")),
        ("operator", format!("--operation Read --topic {topic}")),
    ] {
        kafka.allow(user, &rule).await?;
    }
    Ok(())
}

/// The relay and the consumer as users of their own; what was set before has no effect any more.
fn log_in(kafka: &SecuredKafka, wiring: &mut Wiring, password: &str, authority: PathBuf) {
    for (role, user) in [(Role::OutboxRelay, "relay"), (Role::ChargeConsumer, "consumer")] {
        let settings = kafka.environment(user, password, &authority);
        wiring.extra.extend(settings.map(|(key, value)| (role, key, value)));
    }
}

async fn charge(stack: &Stack, answers: &Answers) -> Result<()> {
    let client = Client::default();
    for _ in 0..CHARGES {
        let key = Uuid::new_v4();
        let answer = client.charge(&stack.api(0), key, 4900).await?;
        ensure!(answer.status == 201, "answered {}", answer.status);
        answers.note(key, 4900, &answer);
    }
    Ok(())
}

async fn not_ready_because(service: &Service, reason: &str) -> Result<()> {
    let client = Client::default();
    let what = format!("{} is not ready because: {reason}", service.name());
    eventually_true(SOON, &what, async || {
        let answer = client.get(&service.admin_url(), "/readyz").await?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == 503 && text.contains(reason), "{}: {text}", answer.status);
        Ok(true)
    })
    .await
}

/// Rows that are pending, and those that an attempt was consumed of.
async fn waiting(wiring: &Wiring) -> Result<(i64, i64)> {
    let client = connect(&wiring.database_url.parse()?).await?;
    let sql = "SELECT count(*) FILTER (WHERE published_at IS NULL),
                      count(*) FILTER (WHERE attempts > 0) FROM outbox";
    let row = client.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}
