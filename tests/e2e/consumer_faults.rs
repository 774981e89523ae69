//! Consumers that die, freeze, join and leave, offsets that are lost, records that come again or are
//! no events: at the end of each the totals equal the charges.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use harness::answers::Answers;
use harness::eventually::{SOON, eventually_true};
use harness::hold::{Hold, When};
use harness::ledger;
use harness::postgres::connect;
use harness::service::{Role, Service, Wiring};
use harness::stack::{STOP_LIMIT, Shape, Stack};
use harness::topic::Topic;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{ClientConfig, Offset};
use uuid::Uuid;

use crate::charges::{charge, charge_until};
use crate::context::{Context, tests};
use crate::servers::unpublished;

tests![
    a_consumer_killed_before_in_or_after_its_transaction_applies_the_event_once,
    members_that_join_and_leave_and_die_under_load_change_no_total,
    a_consumer_that_stood_still_past_its_poll_interval_has_no_second_effect_when_it_goes_on,
    offsets_that_are_deleted_while_a_consumer_lives_bring_every_event_again_and_change_nothing,
    offsets_that_another_member_sets_back_to_zero_under_load_change_nothing,
    two_copies_on_two_partitions_at_once_have_one_effect,
    an_event_that_is_published_three_times_has_one_effect,
    records_that_are_no_events_are_put_aside_and_every_partition_moves_on,
];

/// The shortest that there are, so that nobody waits long for the dead.
const QUICK_TO_LEAVE: [(&str, &str); 3] = [
    ("ONCEBOX_KAFKA_SESSION_TIMEOUT", "6s"),
    ("ONCEBOX_KAFKA_MAX_POLL_INTERVAL", "6s"),
    ("ONCEBOX_CONSUMER_TRANSACTION_TIMEOUT", "5s"),
];

/// Where a consumer is killed.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// It has the record, and nothing is written.
    Before,
    /// All is written, and nothing is committed.
    Inside,
    /// The server has committed, and nobody has told the consumer: no offset is stored.
    After,
}

async fn a_consumer_killed_before_in_or_after_its_transaction_applies_the_event_once(
    context: &Context,
) -> Result<()> {
    let mut stack = Stack::start(wiring(context).await?, Shape::ONE).await?;
    let (url, answers) = (stack.wiring.database_url.clone(), Answers::default());
    for (before, point) in [Point::Before, Point::Inside, Point::After].into_iter().enumerate() {
        let gate = match point {
            Point::Before => Hold::gate(&url, "inbox", When::BeforeInsert).await?,
            Point::Inside | Point::After => Hold::gate(&url, "receipts", When::Commit).await?,
        };
        charge(&stack.api(0), &answers).await?;
        gate.wait_for_blocked(1).await?;
        if let Point::After = point {
            stack.consumers[0].pause()?;
            gate.release().await?;
            eventually_applied(&url, before + 1).await?;
            stack.consumers[0].kill()?;
        } else {
            stack.consumers[0].kill()?;
            gate.terminate_blocked().await?;
            gate.release().await?;
            assert_eq!(applied(&url).await?, (before, before), "{point:?}");
        }
        stack.consumers[0].start_again().await?;

        let verdict = context.settle(&stack.wiring, &answers).await?;
        assert_eq!((verdict.charges, verdict.receipts), (before + 1, before + 1), "{point:?}");
        assert_eq!(applied(&url).await?, (before + 1, before + 1), "{point:?}");
    }
    // The last one had told nobody, so its event has come again.
    eventually_duplicates(&stack.consumers[..1], 1.0).await?;
    stack.stop().await
}

async fn members_that_join_and_leave_and_die_under_load_change_no_total(
    context: &Context,
) -> Result<()> {
    const STEP: usize = 50;
    let mut stack = Stack::start(wiring(context).await?, Shape::ONE).await?;
    let (api, url) = (stack.api(0), stack.wiring.database_url.clone());
    let (over, answers) = (AtomicBool::new(false), Answers::default());
    let load = charge_until(&api, &answers, &over);
    let changes = async {
        for members in [2, 3] {
            goes_on(&url, STEP).await?;
            stack.add(Role::ChargeConsumer).await?.ready().await?;
            all_have_partitions(&stack.consumers[..members]).await?;
        }
        goes_on(&url, STEP).await?;
        let status = stack.consumers[0].stop(STOP_LIMIT).await?;
        ensure!(status.success(), "the consumer ended with {status}");
        goes_on(&url, STEP).await?;
        stack.consumers[1].kill()?;
        goes_on(&url, STEP).await?;
        for member in [0, 1] {
            stack.consumers[member].start_again().await?;
        }
        all_have_partitions(&stack.consumers).await?;
        goes_on(&url, STEP).await?;
        over.store(true, Ordering::Relaxed);
        Ok(())
    };
    tokio::try_join!(load, changes)?;

    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.receipts), (answers.keys(), answers.keys()));
    stack.stop().await
}

async fn a_consumer_that_stood_still_past_its_poll_interval_has_no_second_effect_when_it_goes_on(
    context: &Context,
) -> Result<()> {
    let mut stack = Stack::start(wiring(context).await?, Shape::ONE).await?;
    let (api, url, answers) = (stack.api(0), stack.wiring.database_url.clone(), Answers::default());
    let gate = Hold::gate(&url, "receipts", When::Commit).await?;
    charge(&api, &answers).await?;
    gate.wait_for_blocked(1).await?;
    stack.consumers[0].pause()?;

    // Another one has its partitions, and finds the event recorded by a transaction that is open.
    stack.add(Role::ChargeConsumer).await?.ready().await?;
    one_waits_for_another(&url).await?;
    gate.release().await?;
    eventually_duplicates(&stack.consumers[1..], 1.0).await?;
    assert_eq!(applied(&url).await?, (1, 1));

    stack.consumers[0].resume()?;
    all_have_partitions(&stack.consumers).await?;
    for _ in 0..30 {
        charge(&api, &answers).await?;
    }
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.receipts), (31, 31));
    stack.stop().await
}

async fn offsets_that_are_deleted_while_a_consumer_lives_bring_every_event_again_and_change_nothing(
    context: &Context,
) -> Result<()> {
    const CHARGES: usize = 30;
    let mut stack = Stack::start(wiring(context).await?, Shape::ONE).await?;
    let (api, answers) = (stack.api(0), Answers::default());
    for _ in 0..CHARGES {
        charge(&api, &answers).await?;
    }
    context.settle(&stack.wiring, &answers).await?;

    // A broker deletes the offsets of a group once nobody is in it. The consumer stands still for so
    // long that it is out, and goes on as if nothing had been.
    stack.consumers[0].pause()?;
    let (brokers, group) = (&stack.wiring.kafka_brokers, &stack.wiring.group);
    eventually_true(SOON, "the group is deleted", async || {
        delete_group(brokers, group).await.map(|()| true)
    })
    .await?;
    charge(&api, &answers).await?;
    stack.consumers[0].resume()?;

    eventually_duplicates(&stack.consumers, CHARGES as f64).await?;
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.receipts), (CHARGES + 1, CHARGES + 1));
    stack.stop().await
}

async fn offsets_that_another_member_sets_back_to_zero_under_load_change_nothing(
    context: &Context,
) -> Result<()> {
    const STEP: usize = 50;
    let stack = Stack::start(wiring(context).await?, Shape::ONE).await?;
    let (api, url) = (stack.api(0), stack.wiring.database_url.clone());
    let (over, answers) = (AtomicBool::new(false), Answers::default());
    let load = charge_until(&api, &answers, &over);
    let rewinds = async {
        for _ in 0..2 {
            goes_on(&url, STEP).await?;
            let before = duplicates(&stack.consumers).await?;
            // Those that are settled already; more may be by then.
            let records = context.topic(&stack.wiring).read_all().await?;
            let taken = rewind(context.topic(&stack.wiring), stack.wiring.group.clone()).await?;
            let again = records.iter().filter(|it| taken.contains(&it.partition)).count();
            ensure!(again > 0, "there is nothing in {taken:?}");
            eventually_true(SOON, "the events of those partitions come again", async || {
                Ok(duplicates(&stack.consumers).await? >= before + again as f64)
            })
            .await?;
        }
        over.store(true, Ordering::Relaxed);
        Ok(())
    };
    tokio::try_join!(load, rewinds)?;

    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.receipts), (answers.keys(), answers.keys()));
    stack.stop().await
}

async fn two_copies_on_two_partitions_at_once_have_one_effect(context: &Context) -> Result<()> {
    let shape = Shape { consumers: 2, ..Shape::ONE };
    let stack = Stack::start(wiring(context).await?, shape).await?;
    let (topic, answers) = (context.topic(&stack.wiring), Answers::default());
    all_have_partitions(&stack.consumers).await?;
    // The first one to record the event waits at its commit; who comes second waits for it.
    let gate = Hold::gate(&stack.wiring.database_url, "receipts", When::Commit).await?;
    charge(&stack.api(0), &answers).await?;
    gate.wait_for_blocked(1).await?;
    let records = topic.read_all().await?;
    let [record] = &records[..] else { anyhow::bail!("{} records of one event", records.len()) };
    for partition in (0..topic.partitions).filter(|it| *it != record.partition) {
        topic.produce_again(record, partition).await?;
    }
    one_waits_for_another(&stack.wiring.database_url).await?;
    gate.release().await?;

    eventually_duplicates(&stack.consumers, 2.0).await?;
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.records, verdict.receipts), (1, 3, 1));
    stack.stop().await
}

async fn an_event_that_is_published_three_times_has_one_effect(context: &Context) -> Result<()> {
    const CHARGES: usize = 20;
    let mut stack = Stack::start(wiring(context).await?, Shape::ONE).await?;
    let (topic, answers) = (context.topic(&stack.wiring), Answers::default());
    let mut copied = HashSet::new();
    // The copies come to a consumer that is there, and to one that finds all of them at once.
    for there in [true, false] {
        if !there {
            let status = stack.consumers[0].stop(STOP_LIMIT).await?;
            ensure!(status.success(), "the consumer ended with {status}");
        }
        for _ in 0..CHARGES {
            charge(&stack.api(0), &answers).await?;
        }
        eventually_true(SOON, "all is published", async || {
            Ok(unpublished(&stack.wiring).await? == 0)
        })
        .await?;
        for record in topic.read_all().await? {
            if copied.insert(record.event_id().to_owned()) {
                topic.produce_again(&record, record.partition).await?;
                topic.produce_again(&record, record.partition).await?;
            }
        }
        if !there {
            stack.consumers[0].start_again().await?;
        }
        eventually_duplicates(&stack.consumers, 2.0 * CHARGES as f64).await?;
    }

    let verdict = context.settle(&stack.wiring, &answers).await?;
    let expected = (2 * CHARGES, 3 * 2 * CHARGES, 2 * CHARGES);
    assert_eq!((verdict.charges, verdict.records, verdict.receipts), expected);
    stack.stop().await
}

/// A header or a value that may be missing.
type Part<'a> = Option<&'a [u8]>;

async fn records_that_are_no_events_are_put_aside_and_every_partition_moves_on(
    context: &Context,
) -> Result<()> {
    const CHARGES: usize = 20;
    let stack = Stack::start(wiring(context).await?, Shape::ONE).await?;
    let (topic, answers) = (context.topic(&stack.wiring), Answers::default());
    let kind = ("ce_type", b"ChargeCreated".as_slice());
    // An id of its own for each, and none for those that are said to have none.
    let poison: [(Part<'_>, Part<'_>); 7] = [
        (None, Some(b"{}")),
        (Some(b"\xff\xfe\0"), Some(b"{}")),
        (Some(b""), Some(b"\xff\xfe\0")),
        (Some(b""), Some(b"{\"chargeId\":")),
        (Some(b""), Some(b"{\"charge\":\"1\",\"amount\":\"49.00\"}")),
        (Some(b""), Some(b"")),
        (Some(b""), None),
    ];
    let mut places = HashSet::new();
    for (id, value) in poison {
        for partition in 0..topic.partitions {
            let own = Uuid::now_v7().to_string();
            let id = id.map(|id| ("ce_id", if id.is_empty() { own.as_bytes() } else { id }));
            let headers: Vec<_> = id.into_iter().chain([kind]).collect();
            places.insert((partition, topic.produce(partition, "poison", &headers, value).await?));
        }
        charge(&stack.api(0), &answers).await?;
    }
    while answers.keys() < CHARGES {
        charge(&stack.api(0), &answers).await?;
    }

    let client = connect(&stack.wiring.database_url.parse()?).await?;
    let sql = "SELECT (SELECT count(*) FROM dead_letters), (SELECT count(*) FROM receipts)";
    let all = (i64::try_from(places.len())?, i64::try_from(CHARGES)?);
    eventually_true(SOON, "all is applied or put aside", async || {
        let row = client.query_one(sql, &[]).await?;
        Ok((row.get(0), row.get(1)) == all)
    })
    .await?;
    let sql = "SELECT source_partition, source_offset FROM dead_letters";
    let aside = client.query(sql, &[]).await?;
    let aside: HashSet<(i32, i64)> = aside.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(aside, places);
    let mut records = topic.read_all().await?;
    records.retain(|record| !places.contains(&(record.partition, record.offset)));
    ledger::check(&stack.wiring.database_url, &records, &answers).await?.require()?;
    eventually_true(SOON, "there is nothing left to read", async || {
        Ok(stack.consumers[0].metric("inbox_lag", &[]).await? == 0.0)
    })
    .await?;
    stack.stop().await
}

/// With members that are given up as soon as a broker allows.
async fn wiring(context: &Context) -> Result<Wiring> {
    let mut wiring = context.wiring().await?;
    for (key, value) in QUICK_TO_LEAVE {
        wiring.extra.push((Role::ChargeConsumer, key.to_owned(), value.to_owned()));
    }
    Ok(wiring)
}

/// Rows of the inbox, receipts.
async fn applied(url: &str) -> Result<(usize, usize)> {
    let client = connect(&url.parse()?).await?;
    let sql = "SELECT (SELECT count(*) FROM inbox), (SELECT count(*) FROM receipts)";
    let row = client.query_one(sql, &[]).await?;
    let count = |column| usize::try_from(row.get::<_, i64>(column));
    Ok((count(0)?, count(1)?))
}

async fn eventually_applied(url: &str, events: usize) -> Result<()> {
    let what = format!("{events} events are applied");
    eventually_true(SOON, &what, async || Ok(applied(url).await? == (events, events))).await
}

/// So many events more are applied than now.
async fn goes_on(url: &str, events: usize) -> Result<()> {
    let (before, _) = applied(url).await?;
    eventually_true(SOON, "events are applied", async || {
        Ok(applied(url).await?.1 >= before + events)
    })
    .await
}

async fn all_have_partitions(consumers: &[Service]) -> Result<()> {
    eventually_true(SOON, "each consumer has partitions", async || {
        for consumer in consumers {
            if consumer.metric("inbox_assigned_partitions", &[]).await? == 0.0 {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

/// A transaction waits for the row that another one has written.
async fn one_waits_for_another(url: &str) -> Result<()> {
    let client = connect(&url.parse()?).await?;
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event = 'transactionid'";
    eventually_true(SOON, "both try the event", async || {
        Ok(client.query_one(sql, &[]).await?.get::<_, i64>(0) > 0)
    })
    .await
}

async fn duplicates(consumers: &[Service]) -> Result<f64> {
    let mut sum = 0.0;
    for consumer in consumers {
        sum += consumer.metric("inbox_events_total", &[("outcome", "duplicate")]).await?;
    }
    Ok(sum)
}

async fn eventually_duplicates(consumers: &[Service], expected: f64) -> Result<()> {
    let what = format!("{expected} copies are known as such");
    eventually_true(SOON, &what, async || Ok(duplicates(consumers).await? >= expected)).await
}

/// A group that nobody is in, with its offsets.
async fn delete_group(brokers: &str, group: &str) -> Result<()> {
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    for result in admin.delete_groups(&[group], &AdminOptions::new()).await? {
        result.map_err(|(name, code)| anyhow::anyhow!("deleting the group {name}: {code}"))?;
    }
    Ok(())
}

/// A member that joins the group, sets the offsets of what it gets to zero, and leaves. Says which
/// partitions that were.
async fn rewind(topic: Topic, group: String) -> Result<HashSet<i32>> {
    let rewind = move || -> Result<HashSet<i32>> {
        let member: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &topic.brokers)
            .set("group.id", &group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.auto.commit", "false")
            .create()?;
        member.subscribe(&[&topic.name])?;
        let deadline = Instant::now() + SOON;
        while member.assignment()?.count() == 0 {
            ensure!(Instant::now() < deadline, "no partition for another member");
            let _it_is_not_applied = member.poll(Duration::from_millis(100));
        }
        let mut offsets = member.assignment()?;
        offsets.set_all_offsets(Offset::Offset(0))?;
        member.commit(&offsets, CommitMode::Sync).context("setting the group's offsets back")?;
        Ok(offsets.elements().iter().map(|it| it.partition()).collect())
    };
    tokio::task::spawn_blocking(rewind).await?
}
