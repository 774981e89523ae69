//! The head of a request: complete, within its limits, and readable in one way only (RFC 9112).

use std::ops::Range;

use actix_web::http::uri::{Authority, Scheme};
use actix_web::http::{Method, Uri};

use super::Refusal;
use super::Refusal::Malformed;

/// As many as the parser behind accepts.
const HEADERS_MAX: usize = 96;

/// How the end of the body is found (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// In bytes, with the empty line.
    pub length: usize,
    pub framing: Framing,
}

/// Checks the head at the front of `bytes`, of which the first `seen` were looked at before.
/// `None` when it goes on after them. A head that can no longer become right is refused at once.
pub fn check(bytes: &mut [u8], seen: usize, max: usize) -> Result<Option<Head>, Refusal> {
    let end = end_of_head(bytes, seen)?;
    if end.unwrap_or(bytes.len()) > max {
        let first_line = bytes.iter().position(|byte| *byte == b'\n');
        let too_long = first_line.is_none_or(|end| end >= max);
        return Err(if too_long { Refusal::TargetTooLong } else { Refusal::HeadTooLarge });
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(Malformed("the version is not HTTP/1.1")),
        Err(_) => return Err(Malformed("the head is not that of an HTTP/1.1 request")),
    }
    let Some(length) = end else { return Ok(None) };
    let method = request.method.unwrap_or_default();
    // The parser behind knows fewer characters than the standard allows.
    Method::from_bytes(method.as_bytes()).map_err(|_| Malformed("the method is not one"))?;
    target(method, request.path.unwrap_or_default())?;
    let framing = framing(&request)?;
    let upgrades = upgrades(request.headers, bytes.as_ptr());
    for range in upgrades {
        bytes[range].copy_from_slice(IGNORED);
    }
    Ok(Some(Head { length, framing }))
}

/// Lines end in CR LF and in nothing else: a reader that takes a bare LF for an end sees headers
/// where another one sees a value.
fn end_of_head(bytes: &[u8], seen: usize) -> Result<Option<usize>, Refusal> {
    for at in seen..bytes.len() {
        if bytes[at] != b'\n' {
            continue;
        }
        match &bytes[..=at] {
            [.., b'\r', b'\n', b'\r', b'\n'] => return Ok(Some(at + 1)),
            [.., b'\r', b'\n'] => {}
            _ => return Err(Malformed("a line ends in LF without CR")),
        }
    }
    Ok(None)
}

/// The forms of RFC 9112 §3.2. A fragment is never sent.
fn target(method: &str, target: &str) -> Result<(), Refusal> {
    let wrong = Malformed("the request target is not one");
    let uri = Uri::try_from(target).map_err(|_| wrong)?;
    let known = match uri.scheme() {
        Some(scheme) => {
            let authority = uri.authority().map_or("", Authority::as_str);
            [Scheme::HTTP, Scheme::HTTPS].contains(scheme) && is_host(authority.as_bytes())
        }
        None => {
            target.starts_with('/') || (method == "OPTIONS" && target == "*") || method == "CONNECT"
        }
    };
    if known && !target.contains('#') { Ok(()) } else { Err(wrong) }
}

/// A host with or without a port (RFC 9112 §3.2.3). Who a caller is, is never said here
/// (RFC 9110 §4.2.4).
fn is_host(value: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(value) else { return false };
    let text = authority.as_str();
    // The colons of an IPv6 address stand in brackets.
    let after_host = match text.rsplit_once(']') {
        Some((_, rest)) => rest,
        None => text.find(':').map_or("", |colon| &text[colon..]),
    };
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let ends_well =
        matches!(after_host, "" | ":") || after_host.strip_prefix(':').is_some_and(is_port);
    ends_well && !text.contains('@')
}

fn framing(request: &httparse::Request<'_, '_>) -> Result<Framing, Refusal> {
    let is_1_1 = request.version == Some(1);
    let (mut hosts, mut length, mut chunked) = (0, None, false);
    for header in request.headers.iter() {
        let named = |name| header.name.eq_ignore_ascii_case(name);
        if named("host") {
            hosts += 1;
            if !is_host(header.value) || hosts > 1 {
                return Err(Malformed("there must be one Host, and it must be one"));
            }
        } else if named("content-length") {
            if length.replace(content_length(header.value)?).is_some() {
                return Err(Malformed("Content-Length is there more than once"));
            }
        } else if named("transfer-encoding") {
            if chunked || !is_1_1 || !header.value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed("Transfer-Encoding must be chunked, once"));
            }
            chunked = true;
        }
    }
    if is_1_1 && hosts == 0 {
        return Err(Malformed("there must be one Host, and it must be one"));
    }
    match (length, chunked) {
        (Some(_), true) => {
            Err(Malformed("Content-Length and Transfer-Encoding exclude each other"))
        }
        (None, true) => Ok(Framing::Chunked),
        (None, false) if !is_1_1 && request.method == Some("POST") => {
            Err(Malformed("a body of HTTP/1.0 needs a Content-Length"))
        }
        (length, false) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

/// Digits and nothing else: no list, no sign, no blanks.
fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    let digits = std::str::from_utf8(value).ok();
    digits
        .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or(Malformed("Content-Length is not a number of bytes"))
}

/// As long as `upgrade`.
const IGNORED: &[u8; 7] = b"ignored";

/// Where the head asks for another protocol. A server may ignore that (RFC 9110 §7.8), as every
/// client that asks knows; the parser behind would take a WebSocket's body as endless.
fn upgrades(headers: &[httparse::Header<'_>], start: *const u8) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut note = |part: &[u8]| {
        if part.eq_ignore_ascii_case(b"upgrade") {
            let at = part.as_ptr().addr() - start.addr();
            found.push(at..at + part.len());
        }
    };
    for header in headers {
        note(header.name.as_bytes());
        if header.name.eq_ignore_ascii_case("connection") {
            for option in header.value.split(|byte| *byte == b',') {
                note(option.trim_ascii());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
