//! The grammar of each type, by table: the text, and what becomes of it.

use std::{fmt::Debug, net::SocketAddr, time::Duration};

use crate::{ByteSize, FromSetting};

fn check<T: FromSetting + PartialEq + Debug>(table: &[(&str, Result<T, &str>)]) {
    for (text, expected) in table {
        let expected = expected.as_ref().map_err(|why| (*why).to_owned());
        let found = T::from_setting(text);
        assert_eq!(found.as_ref().map_err(Clone::clone), expected, "of {text:?}");
    }
}

#[test]
fn duration_is_an_integer_and_one_unit() {
    check(&[
        ("0s", Ok(Duration::ZERO)),
        ("0ms", Ok(Duration::ZERO)),
        ("250ms", Ok(Duration::from_millis(250))),
        ("5s", Ok(Duration::from_secs(5))),
        ("10m", Ok(Duration::from_secs(600))),
        ("24h", Ok(Duration::from_secs(86_400))),
        ("7d", Ok(Duration::from_secs(604_800))),
        ("18446744073709551615ms", Ok(Duration::from_millis(u64::MAX))),
        ("18446744073709551615s", Err("is too long")),
        ("213503982335d", Err("is too long")),
        ("18446744073709551616ms", Err("is too large")),
        ("", Err("is empty")),
        ("0", Err("has no unit (ms, s, m, h or d)")),
        ("5", Err("has no unit (ms, s, m, h or d)")),
        ("-5s", Err("is negative")),
        ("s", Err("does not start with a number")),
        ("+5s", Err("does not start with a number")),
        (" 5s", Err("does not start with a number")),
        ("5 s", Err("has a unit other than ms, s, m, h or d")),
        ("5S", Err("has a unit other than ms, s, m, h or d")),
        ("1.5s", Err("has a unit other than ms, s, m, h or d")),
        ("1h30m", Err("has a unit other than ms, s, m, h or d")),
        ("٥s", Err("does not start with a number")),
    ]);
}

#[test]
fn byte_size_is_an_integer_and_a_binary_unit() {
    check(&[
        ("0B", Ok(ByteSize::new(0))),
        ("512B", Ok(ByteSize::new(512))),
        ("16KiB", Ok(ByteSize::kib(16))),
        ("4MiB", Ok(ByteSize::mib(4))),
        ("1GiB", Ok(ByteSize::mib(1024))),
        ("17179869184GiB", Err("is too large")),
        ("18446744073709551616B", Err("is too large")),
        ("16", Err("has no unit (B, KiB, MiB or GiB)")),
        ("16KB", Err("has a unit other than B, KiB, MiB or GiB")),
        ("16k", Err("has a unit other than B, KiB, MiB or GiB")),
        ("-1B", Err("is negative")),
        ("", Err("is empty")),
    ]);
}

#[test]
fn integer_knows_its_bounds() {
    check::<u16>(&[
        ("0", Ok(0)),
        ("65535", Ok(65535)),
        ("65536", Err("is too large")),
        ("-1", Err("is not such an integer")),
        ("1_000", Err("is not such an integer")),
        ("", Err("is empty")),
    ]);
    check::<i16>(&[("-32768", Ok(-32768)), ("-32769", Err("is too small"))]);
}

#[test]
fn list_is_comma_separated() {
    let list = |texts: &[&str]| Ok(texts.iter().map(ToString::to_string).collect::<Vec<_>>());
    check(&[
        ("", list(&[])),
        ("a", list(&["a"])),
        ("a, b", list(&["a", "b"])),
        ("a,,b", Err("has an empty element")),
        ("a,", Err("has an empty element")),
    ]);
}

#[test]
fn truth_is_spelled_out() {
    check(&[("true", Ok(true)), ("false", Ok(false))]);
    for text in ["", "1", "yes", "True"] {
        check::<bool>(&[(text, Err("is neither true nor false"))]);
    }
}

#[test]
fn address_is_an_ip_address_and_a_port() {
    check(&[("[::1]:0", Ok(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0))))]);
    for text in ["", "localhost:80", "127.0.0.1", "127.0.0.1:65536", ":80"] {
        check::<SocketAddr>(&[(text, Err("is not an IP address and port"))]);
    }
}

#[test]
fn number_is_finite() {
    check(&[("0.5", Ok(0.5)), ("1e3", Ok(1000.0))]);
    for text in ["", "NaN", "inf", "1e999", "x"] {
        check::<f64>(&[(text, Err("is not a finite number"))]);
    }
}
