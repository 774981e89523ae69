//! The body of POST /charges: from bytes to a valid command, or to a list of what is wrong with it.
//!
//! Members are read one by one by hand: a derived reader would accept an array for the object,
//! stop at the first fault, and repeat the input in its messages.

use std::borrow::Cow;
use std::fmt;

use domain::{AmountCents, Currency, Description, NewCharge};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::settings::ChargeSettings;

/// What is wrong with one member; neither part holds input.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// JSON pointer (RFC 6901); empty for the whole body.
    pub pointer: &'static str,
    pub detail: String,
}

impl Violation {
    fn new(pointer: &'static str, detail: impl Into<String>) -> Self {
        Self { pointer, detail: detail.into() }
    }
}

/// Why a body is not a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// It is not one JSON object. It may be a part of one, cut off by a wrong length.
    Document(Violation),
    /// At least one.
    Members(Vec<Violation>),
}

impl Invalid {
    pub fn violations(&self) -> &[Violation] {
        match self {
            Self::Document(violation) => std::slice::from_ref(violation),
            Self::Members(violations) => violations,
        }
    }
}

/// # Errors
/// Every violation of the body.
pub fn parse(body: &[u8], settings: &ChargeSettings) -> Result<NewCharge, Invalid> {
    let Members { amount, currency, description, twice, unknown } =
        members(body).map_err(Invalid::Document)?;
    let mut violations = Vec::new();
    if unknown {
        violations.push(Violation::new(
            "",
            "has a member other than amountCents, currency and description",
        ));
    }
    violations.extend(twice.into_iter().map(|pointer| Violation::new(pointer, "is given twice")));
    let mut note = |violation| violations.push(violation);
    let amount = read_amount(amount, settings.amount_max).map_err(&mut note).ok();
    let currency = read_currency(currency, settings).map_err(&mut note).ok();
    let description = read_description(description).map_err(&mut note).ok();
    match (amount, currency, description) {
        (Some(amount), Some(currency), Some(description)) if violations.is_empty() => {
            Ok(NewCharge { amount, currency, description })
        }
        _ => Err(Invalid::Members(violations)),
    }
}

const AMOUNT: &str = "/amountCents";
const CURRENCY: &str = "/currency";
const DESCRIPTION: &str = "/description";

fn read_amount(raw: Option<&RawValue>, max: i64) -> Result<AmountCents, Violation> {
    let Some(raw) = raw else { return Err(Violation::new(AMOUNT, "is required")) };
    // The spelling is checked, not the value: 4900.0, 4.9e3 and -0 are numbers of JSON too, and
    // a reader that rounds them charges another amount.
    let digits = raw.get();
    let integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    let amount = if integer { digits.parse().ok() } else { None };
    amount
        .filter(|cents| *cents <= max)
        .and_then(AmountCents::new)
        .ok_or_else(|| Violation::new(AMOUNT, format!("must be an integer from 1 to {max}")))
}

fn read_currency(raw: Option<&RawValue>, settings: &ChargeSettings) -> Result<Currency, Violation> {
    match read_text(raw, CURRENCY)? {
        None => Ok(settings.default_currency.0),
        Some(code) => Currency::parse(&code).ok_or_else(|| {
            Violation::new(CURRENCY, "must be an ISO 4217 code in upper case, such as BRL")
        }),
    }
}

fn read_description(raw: Option<&RawValue>) -> Result<Option<Description>, Violation> {
    read_text(raw, DESCRIPTION)?
        .map(|text| Description::parse(&text))
        .transpose()
        .map_err(|invalid| Violation::new(DESCRIPTION, invalid.to_string()))
}

/// `null` equals absent.
fn read_text<'a>(
    raw: Option<&'a RawValue>,
    pointer: &'static str,
) -> Result<Option<Cow<'a, str>>, Violation> {
    let Some(raw) = raw else { return Ok(None) };
    serde_json::from_str(raw.get()).map_err(|_| Violation::new(pointer, "must be a string"))
}

/// The members of the body as they are spelt.
#[derive(Default)]
struct Members<'a> {
    amount: Option<&'a RawValue>,
    currency: Option<&'a RawValue>,
    description: Option<&'a RawValue>,
    twice: Vec<&'static str>,
    unknown: bool,
}

fn members(body: &[u8]) -> Result<Members<'_>, Violation> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let detail = match error.classify() {
            serde_json::error::Category::Data => "must be a JSON object".to_owned(),
            _ => format!("is not JSON: line {line}, column {column}"),
        };
        Violation::new("", detail)
    })
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members<'de>, M::Error> {
                let mut members = Members::default();
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    let (slot, pointer) = match name.as_ref() {
                        "amountCents" => (&mut members.amount, AMOUNT),
                        "currency" => (&mut members.currency, CURRENCY),
                        "description" => (&mut members.description, DESCRIPTION),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            members.unknown = true;
                            continue;
                        }
                    };
                    if slot.replace(map.next_value()?).is_some()
                        && !members.twice.contains(&pointer)
                    {
                        members.twice.push(pointer);
                    }
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ChargeSettings {
        settings::load::<ChargeSettings>(None, &[]).expect("the defaults are valid")
    }

    fn parse_text(body: &str) -> Result<NewCharge, Invalid> {
        parse(body.as_bytes(), &settings())
    }

    #[test]
    fn one_command_has_many_spellings() {
        let plain = parse_text(r#"{"amountCents":4900,"currency":"BRL","description":"café"}"#);
        let plain = plain.expect("a charge");
        let spellings = [
            "{ \"description\" : \"caf\\u00e9\",\n\t\"currency\":\"BRL\",\"amountCents\":4900 }",
            r#"{"amountCents":4900,"description":"café"}"#,
            r#"{"\u0061mountCents":4900,"currency":null,"description":"caf\u00E9"}"#,
        ];
        for spelling in spellings {
            assert_eq!(parse_text(spelling).as_ref(), Ok(&plain), "{spelling}");
        }
    }

    #[test]
    fn an_amount_is_spelt_in_digits() {
        let amounts = [
            "0",
            "-1",
            "-0",
            "-0.0",
            "0.0",
            "1e3",
            "4900.0",
            "49.99",
            "\"4900\"",
            "true",
            "null",
            "{}",
            "[4900]",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551616",
            "1e400",
            "1000000000000",
        ];
        for amount in amounts {
            let body = format!("{{\"amountCents\":{amount}}}");
            let invalid = parse_text(&body).expect_err(&body);
            assert_eq!(invalid.violations()[0].pointer, AMOUNT, "{body}");
        }
        assert!(parse_text(r#"{"amountCents":999999999999}"#).is_ok());
    }

    #[test]
    fn what_is_not_one_json_object_is_refused() {
        let bodies: [&[u8]; 22] = [
            b"",
            b" ",
            b"null",
            b"4900",
            b"\"x\"",
            b"[]",
            b"[4900,\"BRL\",null]",
            b"{",
            b"{}{}",
            br#"{"amountCents":1} x"#,
            br#"{"amountCents":1,}"#,
            br#"{"amountCents":1/**/}"#,
            b"\xef\xbb\xbf{\"amountCents\":1}",
            br#"{"amountCents":04900}"#,
            br#"{"amountCents":+1}"#,
            br#"{"amountCents":NaN}"#,
            br#"{"amountCents":Infinity}"#,
            br#"{"amountCents":0x10}"#,
            b"{\"amountCents\":1,\"description\":\"\xff\"}",
            br#"{"amountCents":1,"description":"\ud800"}"#,
            br#"{'amountCents':1}"#,
            br#"{"amountCents":1,"description":"a
b"}"#,
        ];
        for body in bodies {
            assert!(parse(body, &settings()).is_err(), "{}", String::from_utf8_lossy(body));
        }
        let deep = format!("{{\"amountCents\":1,\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
        assert!(parse_text(&deep).is_err());
    }

    #[test]
    fn every_violation_is_listed_and_no_input_repeated() {
        let body = concat!(
            r#"{"amountCents":"canary","amountCents":-1,"currency":"canary","#,
            r#""description":"4111 1111 1111 1111 canary","canary":"canary"}"#,
        );
        let invalid = parse_text(body).expect_err("five faults");
        let pointers: Vec<_> =
            invalid.violations().iter().map(|violation| violation.pointer).collect();
        assert_eq!(pointers, ["", AMOUNT, AMOUNT, CURRENCY, DESCRIPTION]);
        assert!(!format!("{invalid:?}").contains("canary"));
    }

    #[test]
    fn a_member_given_twice_is_refused_however_it_is_spelt() {
        let invalid = parse_text(r#"{"amountCents":1,"\u0061mountCents":1}"#);
        let twice = Violation::new(AMOUNT, "is given twice");
        assert_eq!(invalid, Err(Invalid::Members(vec![twice])));
    }
}
