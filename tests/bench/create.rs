//! P1 and P1b: new charges, by many connections and by one.

use anyhow::Result;
use uuid::Uuid;

use crate::Effort;
use crate::load::{self, Outcome};
use crate::machine::{Usage, peak_memory};
use crate::report::{Bar, Report, Series};
use crate::rig::{Arm, Rig};

/// One round of each arm, one after the other.
async fn rounds(
    bench: &str,
    arms: &[(&str, &Arm)],
    connections: usize,
    effort: Effort,
    report: &Report,
) -> Result<Vec<Vec<Outcome>>> {
    let mut outcomes: Vec<Vec<Outcome>> = arms.iter().map(|_| Vec::new()).collect();
    for round in 1..=effort.rounds {
        for ((name, arm), outcomes) in arms.iter().zip(&mut outcomes) {
            arm.checkpoint().await?;
            let (usage, before) = (Usage::now()?, arm.used()?);
            let outcome = load::charges(arm.addr, connections, effort.round, Uuid::new_v4).await?;
            outcome.only(&[201])?;
            let (rate, p99) = (outcome.per_second, outcome.p99_ms());
            let after = arm.used()?;
            let each = |ticks: u64| ticks * 10_000 / outcome.statuses.values().sum::<u64>();
            report.say(&format!(
                "     {bench} round {round} of {}: {name} {rate:.0}/s, p99 {p99:.2} ms; a charge took \
                 {} µs of PostgreSQL and {} µs of the service",
                effort.rounds,
                each(after.0 - before.0),
                each(after.1 - before.1)
            ));
            usage.tell(report, name)?;
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

fn series(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> Series {
    Series::of(outcomes.iter().map(figure))
}

/// Round by round, so that drift cancels out.
fn ratio(a: &[Outcome], b: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> Series {
    Series::of(a.iter().zip(b).map(|(a, b)| figure(a) / figure(b)))
}

/// P1: 64 kept-alive connections, a new key each time.
pub async fn sixty_four_connections(
    rig: &mut Rig,
    effort: Effort,
    report: &mut Report,
) -> Result<()> {
    let naive = rig.reference("naive").await?;
    let settings = [("ONCEBOX_BATCH_MAX", "1"), ("ONCEBOX_BATCH_CONNECTIONS", "16")];
    let alone = rig.product("bench-batch-1", &settings).await?;
    let batched = rig.product("bench-batched", &[]).await?;
    let arms = [("naive", &naive), ("batch.max = 1", &alone), ("batched", &batched)];
    let outcomes = rounds("p1", &arms, 64, effort, report).await?;
    let [naive, alone, many] = &outcomes[..] else { unreachable!("invariant: three arms") };
    for (name, outcomes) in [("naive", naive), ("batch.max = 1", alone), ("batched", many)] {
        report.figure("p1", format!("create, {name}"), "/s", series(outcomes, |o| o.per_second));
        report.figure(
            "p1",
            format!("create, {name}, p99"),
            "ms",
            series(outcomes, Outcome::p99_ms),
        );
    }
    let rate = |outcome: &Outcome| outcome.per_second;
    report.against("p1", "batched ÷ naive", "×", ratio(many, naive, rate), Bar::AtLeast(8.0));
    report.against(
        "p1",
        "batch.max = 1 ÷ naive",
        "×",
        ratio(alone, naive, rate),
        Bar::AtLeast(2.5),
    );
    let p99 = ratio(many, naive, Outcome::p99_ms);
    report.against("p1", "p99, batched ÷ naive", "×", p99, Bar::AtMost(0.2));
    if let Some(pid) = batched.pid() {
        let memory = Series::of([peak_memory(pid)?]);
        report.against("p1", "memory of charge-api at this load", "MB", memory, Bar::AtMost(20.0));
    }
    Ok(())
}

/// P1b: one connection, so that nothing can be gathered.
pub async fn one_connection(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let single = rig.reference("single").await?;
    let product = rig.product("bench-one", &[]).await?;
    let arms = [("one statement a request", &single), ("batched", &product)];
    let outcomes = rounds("p1b", &arms, 1, effort, report).await?;
    let [single, batched] = &outcomes[..] else { unreachable!("invariant: two arms") };
    report.figure("p1b", "one statement a request, p50", "ms", series(single, Outcome::p50_ms));
    report.figure("p1b", "batched, p50", "ms", series(batched, Outcome::p50_ms));
    let p50 = ratio(batched, single, Outcome::p50_ms);
    report.against("p1b", "p50, batched ÷ one statement a request", "×", p50, Bar::AtMost(1.15));
    Ok(())
}
