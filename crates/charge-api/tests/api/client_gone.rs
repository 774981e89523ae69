//! Clients that hang up: what was accepted is written whole, and its key replays it.

use uuid::Uuid;

use crate::app::eventually;
use crate::contracts;
use crate::hold::{HELD, Hold, PATIENT};
use crate::request::{charge, charge_as};

const BODY: &str = r#"{"amountCents":4900}"#;

contracts! {
    with PATIENT;
    async fn a_reset_while_the_charge_is_written_does_not_cancel_it(app: &TestApp) {
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let mut client = app.connect().await;
        client.send(&charge_as(key, HELD).bytes()).await;
        hold.reached().await;
        client.reset();
        // It is still running, whoever has gone.
        app.send(&charge_as(key, HELD)).await.assert_problem(409, "request-in-progress");
        hold.release().await;
        eventually("the charge is there", async || (app.rows().await == [1, 1, 1]).then_some(())).await;
        let stored = "SELECT response_body FROM idempotency_keys";
        let stored: Vec<u8> = app.client().await.query_one(stored, &[]).await.unwrap().get(0);
        let replay = app.send(&charge_as(key, HELD)).await;
        assert_eq!((replay.status, replay.header("idempotent-replayed")), (201, Some("true")));
        assert_eq!(replay.body, stored);
    }

    with PATIENT;
    async fn a_client_that_has_finished_sending_still_gets_its_answer(app: &TestApp) {
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let mut client = app.connect().await;
        client.send(&charge_as(key, HELD).bytes()).await;
        client.finish().await;
        hold.reached().await;
        hold.release().await;
        let first = client.response().await;
        first.assert_created();
        client.closed().await;
        app.send(&charge_as(key, HELD)).await.assert_replay_of(&first);
    }

    async fn a_hang_up_right_after_the_request_is_one_charge_all_the_same(app: &TestApp) {
        let mut keys = Vec::new();
        for n in 0..40 {
            let key = Uuid::new_v4();
            let mut client = app.connect().await;
            client.send(&charge_as(key, BODY).bytes()).await;
            if n % 2 == 0 {
                client.reset();
            } else {
                drop(client);
            }
            keys.push(key);
        }
        // Whether a reset overtook its request nobody can tell; sent again, each is there once.
        for key in keys {
            let answer = eventually("an answer that is not 409", async || {
                let answer = app.send(&charge_as(key, BODY)).await;
                (answer.status != 409).then_some(answer)
            });
            assert_eq!(answer.await.status, 201);
        }
        assert_eq!(app.rows().await, [40, 40, 40]);
    }

    async fn a_hang_up_inside_a_request_leaves_nothing(app: &TestApp) {
        let bytes = charge(BODY).bytes();
        for cut in [1, 20, bytes.len() / 2, bytes.len() - BODY.len(), bytes.len() - 1] {
            let mut reset = app.connect().await;
            reset.send(&bytes[..cut]).await;
            reset.reset();
            let mut finished = app.connect().await;
            finished.send(&bytes[..cut]).await;
            finished.finish().await;
            let rest = String::from_utf8(finished.rest().await).unwrap();
            assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400 "), "{rest}");
        }
        let chunked = charge(BODY).chunked(7).bytes();
        let mut finished = app.connect().await;
        finished.send(&chunked[..chunked.len() - 2]).await;
        finished.finish().await;
        finished.response().await.assert_problem(400, "body-incomplete");
        finished.closed().await;
        assert_eq!(app.rows().await, [0, 0, 0]);
        app.send(&charge(BODY)).await.assert_created();
    }
}
