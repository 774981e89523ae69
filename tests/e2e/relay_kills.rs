//! Relays that are killed, frozen or told to stop under load: nothing is lost, each aggregate stays in
//! order, and every further copy has a kill to explain it.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use harness::eventually::{SOON, eventually_true};
use harness::hold::{Hold, When};
use harness::kafka::Kafka;
use harness::postgres::connect;
use harness::servers::{Given, Servers};
use harness::service::{Role, Service};
use harness::stack::{STOP_LIMIT, Shape, Stack};

use crate::context::{Context, tests};
use crate::versions;

tests![
    two_relays_killed_at_every_point_duplicate_at_most_one_event_of_an_aggregate_a_kill,
    four_relays_killed_at_every_point_duplicate_at_most_one_event_of_an_aggregate_a_kill,
    a_relay_that_stood_still_past_its_lease_sends_nothing_out_of_order_when_it_goes_on,
    relays_restarted_one_after_the_other_under_load_leave_no_duplicates,
    a_row_that_the_broker_finds_too_large_is_parked_and_all_others_go_out,
];

/// Where a relay is killed.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// It has buckets, and whatever it does just then.
    Claimed,
    /// Its records are with a broker that says nothing.
    Sent,
    /// Its records are acknowledged, and the mark never happens.
    Acknowledged,
    /// The server carries the mark out though its client is dead.
    Marking,
}

impl Point {
    const ALL: [Self; 4] = [Self::Claimed, Self::Sent, Self::Acknowledged, Self::Marking];
}

async fn two_relays_killed_at_every_point_duplicate_at_most_one_event_of_an_aggregate_a_kill(
    context: &Context,
) -> Result<()> {
    kills(context, 2).await
}

async fn four_relays_killed_at_every_point_duplicate_at_most_one_event_of_an_aggregate_a_kill(
    context: &Context,
) -> Result<()> {
    kills(context, 4).await
}

async fn kills(context: &Context, relays: usize) -> Result<()> {
    // The database is shared, and Kafka a private one: it is frozen.
    let shared = context.wiring().await?;
    let given = Given { database_url: Some(shared.database_url.clone()), kafka_brokers: None };
    let mut servers = Servers::start(given, Some(1), &context.logs).await?;
    let brokers = servers.kafka_brokers.clone().expect("a private broker was started");
    let mut wiring = context.wiring_on(&shared.database_url, &brokers, 1).await?;
    // What is frozen for a moment is not given up: that would be a copy without a kill.
    for (key, value) in [("ONCEBOX_RELAY_LEASE", "16s"), ("ONCEBOX_KAFKA_MESSAGE_TIMEOUT", "12s")] {
        wiring.extra.push((Role::OutboxRelay, key.to_owned(), value.to_owned()));
    }
    let mut stack = Stack::start(wiring, Shape { apis: 0, relays, consumers: 0 }).await?;
    let url = stack.wiring.database_url.clone();
    let kafka = servers.kafka.as_mut().expect("a private broker was started");

    let over = AtomicBool::new(false);
    let load = versions::write_until(&url, &over);
    let relays = &mut stack.relays;
    let doing = async {
        for (number, point) in Point::ALL.into_iter().enumerate() {
            let doomed = number % relays.len();
            versions::goes_on(&url, 1000).await?;
            for relay in &*relays {
                owns_buckets(relay).await?;
            }
            kill_at(point, relays, doomed, &url, kafka).await?;
            versions::goes_on(&url, 1000).await?;
            relays[doomed].start_again().await?;
        }
        over.store(true, Ordering::Relaxed);
        Ok(())
    };
    let (last, ()) = tokio::try_join!(load, doing)?;

    versions::all_published(&url, last).await?;
    let records = context.topic(&stack.wiring).read_all().await?;
    versions::require(&records, last, Point::ALL.len())?;
    stack.stop().await?;
    servers.stop().await
}

async fn kill_at(
    point: Point,
    relays: &mut [Service],
    doomed: usize,
    url: &str,
    kafka: &mut Kafka,
) -> Result<()> {
    let all = relays.len();
    let relay = &mut relays[doomed];
    match point {
        Point::Claimed => relay.kill(),
        Point::Sent => {
            kafka.pause(0)?;
            eventually_true(SOON, "records are on their way", async || {
                Ok(relay.metric("outbox_rows_in_flight", &[]).await? > 0.0)
            })
            .await?;
            relay.kill()?;
            kafka.resume(0)
        }
        Point::Acknowledged | Point::Marking => {
            let gate = Hold::gate(url, "outbox", When::BeforeUpdate).await?;
            gate.wait_for_blocked(all).await?;
            relay.kill()?;
            if matches!(point, Point::Acknowledged) {
                gate.terminate_blocked().await?;
            }
            gate.release().await
        }
    }
}

async fn a_relay_that_stood_still_past_its_lease_sends_nothing_out_of_order_when_it_goes_on(
    context: &Context,
) -> Result<()> {
    const BUCKETS: f64 = 32.0;
    let mut stack = context.stack(Shape { apis: 0, relays: 2, consumers: 0 }).await?;
    let url = stack.wiring.database_url.clone();
    let over = AtomicBool::new(false);
    let load = versions::write_until(&url, &over);
    let relays = &mut stack.relays;
    let doing = async {
        for frozen in [0, 1] {
            versions::goes_on(&url, 1000).await?;
            owns_buckets(&relays[frozen]).await?;
            relays[frozen].pause()?;
            let other = &relays[1 - frozen];
            eventually_true(SOON, "the other one has all buckets", async || {
                Ok(other.metric("outbox_buckets_owned", &[]).await? == BUCKETS)
            })
            .await?;
            versions::goes_on(&url, 1000).await?;
            relays[frozen].resume()?;
        }
        versions::goes_on(&url, 1000).await?;
        over.store(true, Ordering::Relaxed);
        Ok(())
    };
    let (last, ()) = tokio::try_join!(load, doing)?;

    versions::all_published(&url, last).await?;
    // What was on its way when it froze may have arrived, and was sent by the other one too.
    versions::require(&context.topic(&stack.wiring).read_all().await?, last, 2)?;
    stack.stop().await
}

async fn relays_restarted_one_after_the_other_under_load_leave_no_duplicates(
    context: &Context,
) -> Result<()> {
    let mut stack = context.stack(Shape { apis: 0, relays: 4, consumers: 0 }).await?;
    let url = stack.wiring.database_url.clone();
    let over = AtomicBool::new(false);
    let load = versions::write_until(&url, &over);
    let relays = &mut stack.relays;
    let doing = async {
        for relay in relays {
            versions::goes_on(&url, 500).await?;
            let status = relay.stop(STOP_LIMIT).await?;
            ensure!(status.success(), "the relay ended with {status}\n{}", relay.log().tail());
            relay.start_again().await?;
        }
        over.store(true, Ordering::Relaxed);
        Ok(())
    };
    let (last, ()) = tokio::try_join!(load, doing)?;

    versions::all_published(&url, last).await?;
    versions::require(&context.topic(&stack.wiring).read_all().await?, last, 0)?;
    stack.stop().await
}

async fn a_row_that_the_broker_finds_too_large_is_parked_and_all_others_go_out(
    context: &Context,
) -> Result<()> {
    const LAST: i32 = 25;
    let mut wiring = context.wiring().await?;
    // The relay lets it through, and with its headers it is more than a topic takes by default.
    for (key, value) in
        [("ONCEBOX_KAFKA_MESSAGE_BYTES_MAX", "2MiB"), ("ONCEBOX_KAFKA_COMPRESSION", "none")]
    {
        wiring.extra.push((Role::OutboxRelay, key.to_owned(), value.to_owned()));
    }
    let url = wiring.database_url.clone();
    let client = connect(&url.parse()?).await?;
    versions::write(&url, 1, LAST).await?;
    let too_large = "INSERT INTO outbox (aggregate_id, event_type, payload)
                     VALUES ('large', 'Large', convert_to(repeat('x', 1048576), 'UTF8'))";
    client.execute(too_large, &[]).await?;
    versions::write(&url, LAST + 1, 2 * LAST).await?;

    let stack = Stack::start(wiring, Shape { apis: 0, relays: 1, consumers: 0 }).await?;
    versions::all_published(&url, 2 * LAST).await?;
    let parked = "SELECT attempts, last_error FROM outbox WHERE parked_at IS NOT NULL";
    eventually_true(SOON, "the row is parked", async || {
        Ok(client.query_opt(parked, &[]).await?.is_some())
    })
    .await?;
    let row = client.query_one(parked, &[]).await?;
    let (attempts, reason): (i32, String) = (row.get(0), row.get(1));
    ensure!(attempts == 1 && reason.contains("too large"), "{attempts}: {reason}");
    versions::require(&context.topic(&stack.wiring).read_all().await?, 2 * LAST, 0)?;
    stack.stop().await
}

async fn owns_buckets(relay: &Service) -> Result<()> {
    eventually_true(SOON, "the relay has buckets", async || {
        Ok(relay.metric("outbox_buckets_owned", &[]).await? > 0.0)
    })
    .await
}
