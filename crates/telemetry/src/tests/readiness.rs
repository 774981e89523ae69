//! Conditions as `/readyz` sees them.

use crate::Readiness;

#[test]
fn condition_does_not_hold_until_it_is_set() {
    let readiness = Readiness::new();
    assert!(readiness.failing().is_empty(), "nothing to wait for");

    let database = readiness.condition("database");
    let topic = readiness.condition("topic");
    assert_eq!(
        readiness.failing(),
        [("database", "not yet known".into()), ("topic", "not yet known".into())]
    );

    database.set(true);
    topic.set_false("no leader");
    assert_eq!(readiness.failing(), [("topic", "no leader".into())]);

    topic.set(true);
    database.set(false);
    assert_eq!(readiness.failing(), [("database", "not ready".into())]);
}
