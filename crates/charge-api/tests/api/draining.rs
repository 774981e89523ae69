//! The end of the process: what was accepted is answered, and nothing new is.

use uuid::Uuid;

use crate::app::eventually;
use crate::contracts;
use crate::hold::{HELD, Hold, PATIENT};
use crate::request::{charge, charge_as};

const BODY: &str = r#"{"amountCents":4900}"#;

contracts! {
    with PATIENT;
    async fn requests_in_flight_are_answered_and_idle_connections_closed(app: &TestApp) {
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let (mut busy, mut idle, mut fresh) =
            (app.connect().await, app.connect().await, app.connect().await);
        idle.send(&charge(BODY).bytes()).await;
        idle.response().await.assert_created();
        busy.send(&[charge_as(key, HELD).bytes(), charge(BODY).bytes()].concat()).await;
        hold.reached().await;

        app.begin_to_stop();
        idle.closed().await;
        fresh.closed().await;
        eventually("nobody listens any more", async || {
            tokio::net::TcpStream::connect(app.addr).await.is_err().then_some(())
        })
        .await;
        hold.release().await;
        let answer = busy.response().await;
        assert_eq!(answer.assert_created().header("connection"), Some("close"));
        // What was pipelined behind it was not accepted.
        busy.closed().await;
        assert_eq!(app.rows().await, [2, 2, 2]);
    }

    with PATIENT;
    async fn a_charge_whose_client_has_gone_is_written_before_the_end(app: &TestApp) {
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let mut client = app.connect().await;
        client.send(&charge_as(key, HELD).bytes()).await;
        hold.reached().await;
        client.reset();
        app.begin_to_stop();
        hold.release().await;
        eventually("the charge is there", async || (app.rows().await == [1, 1, 1]).then_some(())).await;
    }
}
