//! Who may send what.

use crate::rig::{Member, NewRow, Rig};

/// How many buckets each relay has, by the table.
async fn shares(rig: &Rig, relays: &[&Member]) -> Vec<i64> {
    let mut shares = Vec::new();
    for relay in relays {
        let sql = "SELECT count(*) FROM outbox_buckets WHERE owner = $1 AND leased_until > clock_timestamp()";
        shares.push(rig.client.query_one(sql, &[&relay.keeper.relay]).await.unwrap().get(0));
    }
    shares
}

/// One round: each says that it is alive, gives up what is too much, and takes what is free.
async fn round(relays: &mut [&mut Member]) {
    for relay in relays.iter_mut() {
        relay.renew().await;
        relay.pass().await;
    }
}

#[tokio::test]
async fn relays_share_the_buckets_fairly_as_they_come_and_go() {
    let rig = Rig::new().await;
    let mut first = rig.member(&[]).await;
    assert_eq!(shares(&rig, &[&first]).await, [32]);

    let mut second = rig.member(&[]).await;
    for _ in 0..3 {
        round(&mut [&mut first, &mut second]).await;
    }
    assert_eq!(shares(&rig, &[&first, &second]).await, [16, 16]);

    let mut third = rig.member(&[]).await;
    for _ in 0..3 {
        round(&mut [&mut first, &mut second, &mut third]).await;
    }
    let mut three = shares(&rig, &[&first, &second, &third]).await;
    three.sort_unstable();
    assert_eq!(three, [10, 11, 11]);

    let Member { keeper, leases, connection, mut relay, .. } = second;
    relay.drain();
    keeper.leave(&connection, &leases).await.unwrap();
    for _ in 0..2 {
        round(&mut [&mut first, &mut third]).await;
    }
    assert_eq!(shares(&rig, &[&first, &third]).await, [16, 16]);
    assert_eq!(first.metrics.leases_lost.get() + third.metrics.leases_lost.get(), 0);
    assert_eq!(first.metrics.buckets_owned.get(), 16);
}

const SINGLE: [(&str, &str); 1] = [("ONCEBOX_RELAY_SHARING", "single")];

#[tokio::test]
async fn of_single_relays_the_oldest_has_every_bucket_and_the_next_takes_over() {
    let rig = Rig::new().await;
    let mut first = rig.member(&SINGLE).await;
    let mut second = rig.member(&SINGLE).await;
    let mut third = rig.member(&SINGLE).await;
    for _ in 0..3 {
        round(&mut [&mut first, &mut second, &mut third]).await;
    }
    assert_eq!(shares(&rig, &[&first, &second, &third]).await, [32, 0, 0]);

    let Member { keeper, leases, connection, mut relay, .. } = first;
    relay.drain();
    keeper.leave(&connection, &leases).await.unwrap();
    round(&mut [&mut third, &mut second]).await;
    assert_eq!(shares(&rig, &[&second, &third]).await, [32, 0]);
    rig.insert(&NewRow::of("a")).await;
    second.until_drained(&rig).await;
}

/// As while the setting is being changed: whoever stands by is not counted as taking a share.
#[tokio::test]
async fn single_and_fair_relays_side_by_side_leave_no_bucket_over() {
    let rig = Rig::new().await;
    let mut fair = rig.member(&[]).await;
    let mut single = rig.member(&SINGLE).await;
    for _ in 0..3 {
        round(&mut [&mut fair, &mut single]).await;
    }
    assert_eq!(shares(&rig, &[&fair, &single]).await, [32, 0]);
    let mut young = rig.member(&[]).await;
    for _ in 0..3 {
        round(&mut [&mut fair, &mut single, &mut young]).await;
    }
    assert_eq!(shares(&rig, &[&fair, &single, &young]).await, [16, 0, 16]);
}

/// As after a pause longer than the lease: another relay has taken everything.
async fn lose_all_leases(rig: &Rig, from: &Member) -> Member {
    let expire = "UPDATE outbox_buckets SET leased_until = clock_timestamp() - interval '1 second' WHERE owner = $1";
    rig.client.execute(expire, &[&from.keeper.relay]).await.unwrap();
    let gone = "DELETE FROM outbox_relays WHERE id = $1";
    rig.client.execute(gone, &[&from.keeper.relay]).await.unwrap();
    rig.member(&[]).await
}

#[tokio::test]
async fn a_lease_that_another_relay_took_is_counted_and_used_no_more() {
    let rig = Rig::new().await;
    let mut loser = rig.member(&[]).await;
    let _winner = lose_all_leases(&rig, &loser).await;
    rig.insert(&NewRow::of("a")).await;
    loser.renew().await;
    assert_eq!(loser.metrics.leases_lost.get(), 32);
    for _ in 0..5 {
        let pass = loser.pass().await;
        assert_eq!((pass.read, pass.sent), (0, 0));
        loser.relay.rest().await;
    }
    assert_eq!(rig.published().await, 0);
}

#[tokio::test]
async fn an_acknowledgement_is_marked_though_the_lease_is_lost() {
    let rig = Rig::new().await;
    let mut loser = rig.member(&[]).await;
    rig.insert(&NewRow::of("a")).await;
    loser.send_without_marking(1).await;
    let mut winner = lose_all_leases(&rig, &loser).await;
    loser.renew().await;
    loser.until("it marks", async |pass| pass.marked == 1).await;
    assert_eq!((rig.published().await, loser.metrics.marks_unmatched.get()), (1, 0));
    // So the winner has nothing to do.
    assert_eq!(winner.pass().await.read, 0);
}

#[tokio::test]
async fn a_row_that_two_relays_published_is_counted() {
    let rig = Rig::new().await;
    let mut loser = rig.member(&[]).await;
    rig.insert(&NewRow::of("a")).await;
    loser.send_without_marking(1).await;
    let mut winner = lose_all_leases(&rig, &loser).await;
    winner.until_drained(&rig).await;
    loser.until("it marks", async |pass| pass.marked == 1).await;
    assert_eq!(loser.metrics.marks_unmatched.get(), 1);
    assert_eq!(rig.records().await.len(), 2);
}

#[tokio::test]
async fn a_relay_that_lost_a_bucket_parks_nothing_in_it() {
    let rig = Rig::new().await;
    let mut loser = rig.member(&[]).await;
    rig.let_any_row_in().await;
    rig.insert(&NewRow::of("")).await;
    // It reads the row; that it is impossible shows in the next pass, and it is parked after that.
    loser.until("it reads", async |pass| pass.read == 1).await;
    let _winner = lose_all_leases(&rig, &loser).await;
    loser.until("it reads it again, as it could not park it", async |pass| pass.read == 1).await;
    let sql = "SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL";
    assert_eq!(rig.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0);
    assert_eq!(loser.metrics.rows_parked.get(), 0);
}

#[tokio::test]
async fn without_renewals_a_relay_stops_before_its_leases_end() {
    let rig = Rig::new().await;
    let settings = [("ONCEBOX_RELAY_LEASE", "2s"), ("ONCEBOX_KAFKA_MESSAGE_TIMEOUT", "1500ms")];
    let mut relay = rig.member_without_leases(&settings).await;
    relay.renew().await;
    let leases = std::sync::Arc::clone(&relay.leases);
    let unusable = async |_: &_| leases.usable(std::time::Instant::now()).is_empty();
    relay.until("it may send no more", unusable).await;
    rig.insert(&NewRow::of("a")).await;
    let pass = relay.pass().await;
    assert_eq!((pass.read, pass.sent), (0, 0));
    // The next renewal brings them back, under the same epochs: nobody took them.
    relay.renew().await;
    assert_eq!(relay.metrics.leases_lost.get(), 0);
    assert_eq!(relay.leases.usable(std::time::Instant::now()).len(), 32);
}
