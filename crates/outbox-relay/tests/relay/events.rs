//! What Kafka gets of a row.

use std::collections::BTreeMap;

use serde_json::json;

use crate::rig::{NewRow, PARTITIONS, Rig};

#[tokio::test]
async fn payloads_are_published_byte_for_byte() {
    let rig = Rig::new().await;
    let large = vec![b'x'; 900 * 1024];
    let payloads: [&[u8]; 6] = [
        b"\0nul\0inside\0",
        br#"{"n":9007199254740993,"big":1e400,"b":1,"a":2,"a":3}"#,
        b"",
        &large,
        &[0xff, 0xfe, 0x80],
        "{ \"white\" :\t\"space\\u0000\" }\n".as_bytes(),
    ];
    let mut expected = BTreeMap::new();
    for (n, payload) in payloads.iter().enumerate() {
        let aggregate = format!("aggregate-{n}");
        let id = rig.insert(&NewRow { payload, ..NewRow::of(&aggregate) }).await;
        expected.insert(id.to_string(), Some(payload.to_vec()));
    }
    rig.member(&[]).await.until_drained(&rig).await;
    let records = rig.records().await;
    let got: BTreeMap<_, _> =
        records.into_iter().map(|it| (it.id().to_owned(), it.payload)).collect();
    assert!(got == expected, "some payload changed on the way");
}

#[tokio::test]
async fn a_record_carries_the_cloud_event_headers_and_those_of_its_row() {
    let rig = Rig::new().await;
    let headers = json!({
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "vendor=1",
        "ce_id": "forged",
    });
    let id = rig.insert(&NewRow { headers, version: Some(7), ..NewRow::of("a-1") }).await;
    let plain = rig.insert(&NewRow::of("a-2")).await;
    rig.member(&[]).await.until_drained(&rig).await;

    let records = rig.records().await;
    let full = &records.iter().find(|it| it.key == "a-1").unwrap().headers;
    let time = "SELECT to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') FROM outbox WHERE id = $1";
    let time: String = rig.client.query_one(time, &[&id]).await.unwrap().get(0);
    assert!(full["ce_time"].starts_with(&time) && full["ce_time"].ends_with('Z'), "{full:?}");
    let mut others = full.clone();
    others.remove("ce_time");
    let id = id.to_string();
    let expected = [
        ("ce_specversion", "1.0"),
        ("ce_id", id.as_str()),
        ("ce_type", "ChargeCreated"),
        ("ce_source", "/oncebox/charges"),
        ("ce_subject", "a-1"),
        ("ce_tenantid", "default"),
        ("ce_sequence", "7"),
        ("content-type", "application/json"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate", "vendor=1"),
    ];
    assert_eq!(others, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());

    let bare = &records.iter().find(|it| it.key == "a-2").unwrap().headers;
    assert_eq!(bare["ce_id"], plain.to_string());
    assert!(!bare.contains_key("ce_sequence") && !bare.contains_key("traceparent"), "{bare:?}");
}

/// The vectors are those of `UtilsTest.testMurmur2` in the Java client.
#[tokio::test]
async fn keys_are_on_the_partitions_where_java_clients_put_them() {
    let vectors: [(&str, i32); 6] = [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ];
    let rig = Rig::new().await;
    // So many partitions that no other hash agrees by chance.
    rig.cluster.create_topic("wide", 97, 1).unwrap();
    for (key, _) in vectors {
        rig.insert(&NewRow::of(key)).await;
    }
    rig.member(&[("ONCEBOX_KAFKA_TOPIC", "wide")]).await.until_drained(&rig).await;
    for (key, murmur2) in vectors {
        let sql = "SELECT published_partition FROM outbox WHERE aggregate_id = $1";
        let partition: i32 = rig.client.query_one(sql, &[&key]).await.unwrap().get(0);
        assert_eq!(partition, (murmur2 & 0x7fff_ffff) % 97, "{key}");
    }
}

#[tokio::test]
async fn a_published_row_has_its_receipt() {
    let rig = Rig::new().await;
    let id = rig.insert(&NewRow::of("a")).await;
    rig.member(&[]).await.until_drained(&rig).await;
    let sql = "SELECT published_topic, published_partition, published_offset, attempts,
                      published_at >= created_at
               FROM outbox WHERE id = $1";
    let row = rig.client.query_one(sql, &[&id]).await.unwrap();
    let record = &rig.records().await[0];
    assert_eq!(row.get::<_, &str>(0), crate::rig::TOPIC);
    assert_eq!((row.get(1), row.get(2)), (record.partition, record.offset));
    assert!(record.partition < PARTITIONS);
    assert_eq!((row.get::<_, i32>(3), row.get(4)), (0, true));
}
