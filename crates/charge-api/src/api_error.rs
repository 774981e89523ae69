//! Errors as clients see them: the one file that knows status codes.
//!
//! 400–431: the request has to change. 409: later, with the same key. 422: the key is taken.
//! 500: a fault of ours. 503: a dependency is away; the same key is safe to send again.
//! All are `application/problem+json` (RFC 9457), and none repeats the input.

use std::fmt;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use domain::ChargeId;
use domain::idempotency_key::InvalidKey;
use serde::Serialize;

use crate::charge_body::{Invalid, Violation};
use crate::committer::Failure;
use crate::edge::Refusal;
use crate::prefer::{PREFERENCE_APPLIED, Wait};

/// When a client should ask again, in seconds: a first request rarely runs longer.
const RETRY_AFTER_SECONDS: u32 = 1;

#[derive(Debug)]
pub enum ApiError {
    /// `presented` tells a key that is no good from none at all.
    Unauthenticated {
        presented: bool,
    },
    Forbidden,
    TooManyRequests {
        retry_after: Duration,
    },
    TooManyKeys {
        retry_after: Duration,
    },
    KeyMissing,
    KeyInvalid(InvalidKey),
    KeyRepeated,
    KeyReused {
        differing: Vec<&'static str>,
    },
    RequestInProgress {
        waited: Option<Wait>,
    },
    KeyExpired {
        charge: ChargeId,
    },
    /// `parameter` is one of ours, `None` for one that is not known.
    InvalidParameter {
        parameter: Option<&'static str>,
        why: &'static str,
    },
    InvalidBody(Invalid),
    UnsupportedMediaType,
    UnsupportedContentEncoding,
    BodyTooLarge {
        limit: usize,
    },
    BodyIncomplete,
    BodyTimeout,
    Refused(Refusal),
    NotFound,
    MethodNotAllowed {
        allow: &'static str,
    },
    Unavailable(&'static str),
    Internal,
}

/// A kind of problem: the last part of its `type`, and what its page says.
pub struct Kind {
    pub name: &'static str,
    pub title: &'static str,
    pub status: StatusCode,
    pub retryable: bool,
    /// What a client should do about it.
    pub advice: &'static str,
}

macro_rules! kinds {
    ($($constant:ident: $name:literal, $status:ident, $retryable:literal, $title:literal, $advice:literal;)+) => {
        $(const $constant: Kind = Kind {
            name: $name,
            title: $title,
            status: StatusCode::$status,
            retryable: $retryable,
            advice: $advice,
        };)+

        impl Kind {
            /// All kinds, for their pages.
            pub const ALL: &'static [Self] = &[$($constant),+];
        }
    };
}

kinds! {
    UNAUTHENTICATED: "unauthenticated", UNAUTHORIZED, false,
        "There is no valid API key",
        "Send Authorization: Bearer and an API key that has neither expired nor been revoked.";
    FORBIDDEN: "forbidden", FORBIDDEN, false,
        "The API key may only read",
        "Use a key that was made for charging.";
    TOO_MANY_REQUESTS: "too-many-requests", TOO_MANY_REQUESTS, true,
        "More requests than this tenant may send",
        "Send the same request with the same key again after the time in Retry-After. Nothing was stored.";
    TOO_MANY_KEYS: "too-many-keys", TOO_MANY_REQUESTS, true,
        "More idempotency keys than this tenant may have",
        "Keys make room when they expire. Charges that are there already are still answered. Nothing was stored.";
    KEY_MISSING: "idempotency-key-missing", BAD_REQUEST, false,
        "The Idempotency-Key header is missing",
        "Choose a random UUID for each purchase, send it with the request, and send the same one with every retry.";
    KEY_INVALID: "idempotency-key-invalid", BAD_REQUEST, false,
        "The Idempotency-Key header is not a key",
        "Send one header line with one UUID in its hyphenated form, bare or in double quotes.";
    KEY_REUSED: "idempotency-key-reused", UNPROCESSABLE_ENTITY, false,
        "The key was used with another payload",
        "A retry must send the payload of the first request. Another purchase needs another key.";
    REQUEST_IN_PROGRESS: "request-in-progress", CONFLICT, true,
        "The first request with this key is still running",
        "Send the same request with the same key again after the time in Retry-After.";
    KEY_EXPIRED: "idempotency-key-expired", CONFLICT, false,
        "The key was used, and its answer is no longer replayed",
        "The member charge and the Link header lead to what was charged. Another purchase needs another key.";
    INVALID_PARAMETER: "invalid-parameter", BAD_REQUEST, false,
        "A query parameter is not right",
        "Correct the parameter that is named, or leave it out. A cursor is taken from next as it is.";
    INVALID_BODY: "invalid-body", BAD_REQUEST, false,
        "The body is not a charge",
        "Correct what the member errors lists. Nothing was stored: the same key may be used.";
    UNSUPPORTED_MEDIA_TYPE: "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, false,
        "The body is not of a type that is read here",
        "Send Content-Type: application/json and no Content-Encoding.";
    BODY_TOO_LARGE: "body-too-large", PAYLOAD_TOO_LARGE, false,
        "The body is too large",
        "A charge fits in a few hundred bytes; the limit is in the detail.";
    BODY_INCOMPLETE: "body-incomplete", BAD_REQUEST, false,
        "The body did not arrive whole",
        "Send as many bytes as Content-Length says, or well-formed chunks.";
    BODY_TIMEOUT: "body-timeout", REQUEST_TIMEOUT, true,
        "The body took too long to arrive",
        "Send the request again with the same key. Nothing was stored.";
    MALFORMED: "malformed-request", BAD_REQUEST, false,
        "The request is not well-formed HTTP/1.1",
        "Send HTTP/1.1 as RFC 9112 has it: lines end in CR LF, one Host, one length. The connection is closed.";
    TARGET_TOO_LONG: "target-too-long", URI_TOO_LONG, false,
        "The request target is too long",
        "No target that is served here is longer than a hundred bytes. The connection is closed.";
    HEAD_TOO_LARGE: "head-too-large", REQUEST_HEADER_FIELDS_TOO_LARGE, false,
        "The headers are too many or too large",
        "Send fewer or smaller headers. The connection is closed.";
    HEAD_TIMEOUT: "head-timeout", REQUEST_TIMEOUT, true,
        "The head of the request took too long to arrive",
        "Send the request again with the same key. Nothing was stored; the connection is closed.";
    NOT_FOUND: "not-found", NOT_FOUND, false,
        "There is nothing here",
        "Check the path and the id.";
    METHOD_NOT_ALLOWED: "method-not-allowed", METHOD_NOT_ALLOWED, false,
        "The method is not allowed here",
        "Use one of the methods in the Allow header.";
    UNAVAILABLE: "unavailable", SERVICE_UNAVAILABLE, true,
        "The service cannot answer just now",
        "Send the same request with the same key again after the time in Retry-After: it is charged once.";
    INTERNAL: "internal", INTERNAL_SERVER_ERROR, false,
        "A fault of the service",
        "Ask with the same key later, or tell the operator the time of the request.";
}

/// RFC 9457, with extension members from `retryable` on.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    retryable: bool,
    /// Where the charge is that the key stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    charge: Option<String>,
    /// Which query parameter is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'static str>,
    #[serde(skip_serializing_if = "<[Violation]>::is_empty")]
    errors: &'a [Violation],
}

impl ApiError {
    fn kind(&self) -> &'static Kind {
        match self {
            Self::Unauthenticated { .. } => &UNAUTHENTICATED,
            Self::Forbidden => &FORBIDDEN,
            Self::TooManyRequests { .. } => &TOO_MANY_REQUESTS,
            Self::TooManyKeys { .. } => &TOO_MANY_KEYS,
            Self::KeyMissing => &KEY_MISSING,
            Self::KeyInvalid(_) | Self::KeyRepeated => &KEY_INVALID,
            Self::KeyReused { .. } => &KEY_REUSED,
            Self::RequestInProgress { .. } => &REQUEST_IN_PROGRESS,
            Self::KeyExpired { .. } => &KEY_EXPIRED,
            Self::InvalidParameter { .. } => &INVALID_PARAMETER,
            Self::InvalidBody(_) => &INVALID_BODY,
            Self::UnsupportedMediaType | Self::UnsupportedContentEncoding => {
                &UNSUPPORTED_MEDIA_TYPE
            }
            Self::BodyTooLarge { .. } => &BODY_TOO_LARGE,
            Self::BodyIncomplete => &BODY_INCOMPLETE,
            Self::BodyTimeout => &BODY_TIMEOUT,
            Self::Refused(Refusal::Malformed(_)) => &MALFORMED,
            Self::Refused(Refusal::TargetTooLong) => &TARGET_TOO_LONG,
            Self::Refused(Refusal::HeadTooLarge) => &HEAD_TOO_LARGE,
            Self::Refused(Refusal::HeadTimeout) => &HEAD_TIMEOUT,
            Self::NotFound => &NOT_FOUND,
            Self::MethodNotAllowed { .. } => &METHOD_NOT_ALLOWED,
            Self::Unavailable(_) => &UNAVAILABLE,
            Self::Internal => &INTERNAL,
        }
    }

    fn detail(&self) -> Option<String> {
        match self {
            Self::KeyInvalid(invalid) => Some(invalid.to_string()),
            Self::KeyRepeated => Some("the header is there more than once".into()),
            Self::KeyReused { differing } if !differing.is_empty() => {
                Some(format!("these members differ: {}", differing.join(", ")))
            }
            Self::UnsupportedMediaType => Some("Content-Type must be application/json".into()),
            Self::UnsupportedContentEncoding => Some("Content-Encoding must be absent".into()),
            Self::BodyTooLarge { limit } => Some(format!("the limit is {limit} bytes")),
            Self::InvalidParameter { parameter, why } => Some(match parameter {
                Some(parameter) => format!("{parameter} {why}"),
                None => (*why).into(),
            }),
            Self::Unavailable(why) | Self::Refused(Refusal::Malformed(why)) => Some((*why).into()),
            Self::Unauthenticated { .. }
            | Self::Forbidden
            | Self::TooManyRequests { .. }
            | Self::TooManyKeys { .. }
            | Self::KeyMissing
            | Self::KeyReused { .. }
            | Self::RequestInProgress { .. }
            | Self::KeyExpired { .. }
            | Self::InvalidBody(_)
            | Self::BodyIncomplete
            | Self::BodyTimeout
            | Self::Refused(_)
            | Self::NotFound
            | Self::MethodNotAllowed { .. }
            | Self::Internal => None,
        }
    }

    fn add_headers(&self, response: &mut HttpResponseBuilder) {
        let kind = self.kind();
        match self {
            // RFC 6750 §3: no error code for a request that tried nothing.
            Self::Unauthenticated { presented } => {
                let challenge = match presented {
                    true => "Bearer realm=\"oncebox\", error=\"invalid_token\"",
                    false => "Bearer realm=\"oncebox\"",
                };
                response.insert_header((header::WWW_AUTHENTICATE, challenge));
            }
            Self::TooManyRequests { retry_after } | Self::TooManyKeys { retry_after } => {
                // Rounded up: a client that is exact must not come too soon.
                let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
                response.insert_header((header::RETRY_AFTER, seconds.max(1)));
            }
            Self::KeyMissing | Self::KeyInvalid(_) | Self::KeyRepeated => {
                let link = format!("</problems/{}>; rel=\"describedby\"", kind.name);
                response.insert_header((header::LINK, link));
            }
            // Not Location: RFC 9110 §10.2.2 gives it a meaning for 201 and 3xx alone.
            Self::KeyExpired { charge } => {
                response
                    .insert_header((header::LINK, format!("</charges/{charge}>; rel=\"related\"")));
            }
            Self::RequestInProgress { waited } => {
                response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
                if let Some(wait) = waited {
                    response.insert_header((PREFERENCE_APPLIED, wait.applied()));
                }
            }
            Self::Unavailable(_) => {
                response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
            }
            Self::MethodNotAllowed { allow } => {
                response.insert_header((header::ALLOW, HeaderValue::from_static(allow)));
            }
            // Cut off by a wrong length? Then what follows it is no request.
            Self::InvalidBody(Invalid::Document(_)) => {
                response.force_close();
            }
            _ => {}
        }
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.kind().status
    }

    fn error_response(&self) -> HttpResponse {
        let kind = self.kind();
        let errors = match self {
            Self::InvalidBody(invalid) => invalid.violations(),
            _ => &[],
        };
        let charge = match self {
            Self::KeyExpired { charge } => Some(format!("/charges/{charge}")),
            _ => None,
        };
        let parameter = match self {
            Self::InvalidParameter { parameter, .. } => *parameter,
            _ => None,
        };
        let problem = Problem {
            r#type: format!("/problems/{}", kind.name),
            title: kind.title,
            status: kind.status.as_u16(),
            detail: self.detail(),
            retryable: kind.retryable,
            charge,
            parameter,
            errors,
        };
        let mut response = HttpResponse::build(kind.status);
        self.add_headers(&mut response);
        response
            .content_type("application/problem+json")
            .body(serde_json::to_vec(&problem).expect("invariant: a problem always serialises"))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().title)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable(why) => Self::Unavailable(why),
            Failure::Bug(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a fault of ours");
                Self::Internal
            }
        }
    }
}
