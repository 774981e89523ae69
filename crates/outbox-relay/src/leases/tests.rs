use std::sync::Arc;
use std::time::{Duration, Instant};

use store::outbox_buckets::{Census, Lease};

use super::{Leases, Occupant, share};
use crate::settings::Sharing;

fn lease(bucket: i16, epoch: i64) -> Lease {
    Lease { bucket, epoch }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn no_bucket_is_left_over_by_the_shares() {
    for relays in 1..=40 {
        let share = share(Sharing::Fair, Census { relays, buckets: 32, stands_by: false });
        let all = share * usize::try_from(relays).unwrap();
        assert!((32..32 + usize::try_from(relays).unwrap()).contains(&all), "{relays}: {share}");
    }
}

#[test]
fn a_lease_is_usable_until_its_time_and_not_after() {
    let leases = Leases::default();
    let until = soon();
    leases.claimed(&[lease(1, 5)], until);
    assert_eq!(leases.usable(Instant::now()), [(1, 5)].into());
    assert!(leases.usable(until).is_empty());
}

#[test]
fn what_a_renewal_does_not_bring_was_lost_and_another_epoch_is_another_lease() {
    let leases = Leases::default();
    leases.claimed(&[lease(1, 1), lease(2, 1), lease(3, 1)], soon());
    assert_eq!(leases.renewed(&[lease(1, 1), lease(2, 4), lease(9, 1)], soon()), 2);
    assert_eq!(leases.usable(Instant::now()), [(1, 1), (2, 4), (9, 1)].into());
}

#[test]
fn a_bucket_is_given_back_only_when_no_occupant_has_anything_of_it_in_memory() {
    let leases = Arc::new(Leases::default());
    let [one, other] = [Occupant::new(&leases), Occupant::new(&leases)];
    leases.claimed(&[lease(1, 1), lease(2, 1), lease(3, 1)], soon());
    leases.give_up(2);
    assert_eq!(leases.usable(Instant::now()).len(), 1);
    assert!(leases.quiet().is_empty());
    for _ in 0..2 {
        one.report_quiet(|bucket| bucket != 1);
        assert!(leases.quiet().is_empty());
    }
    other.report_quiet(|_| true);
    assert_eq!(leases.quiet(), [lease(2, 1)]);
    leases.released(&[lease(2, 1)]);
    // The same one is still to go.
    leases.give_up(1);
    assert_eq!(leases.usable(Instant::now()), [(3, 1)].into());
}

#[test]
fn a_bucket_need_not_go_when_the_share_grows_again() {
    let leases = Arc::new(Leases::default());
    let occupant = Occupant::new(&leases);
    leases.claimed(&[lease(1, 1), lease(2, 1)], soon());
    leases.give_up(1);
    occupant.report_quiet(|_| true);
    leases.give_up(0);
    assert_eq!(leases.usable(Instant::now()).len(), 2);
    assert!(leases.quiet().is_empty());
}
