use super::*;

const MAX: usize = 16 * 1024;

fn whole(head: &str) -> Result<Option<Head>, Refusal> {
    check(&mut head.as_bytes().to_vec(), 0, MAX)
}

fn framing_of(head: &str) -> Option<Framing> {
    whole(head).ok().flatten().map(|head| head.framing)
}

#[test]
fn the_framing_of_a_well_formed_head_is_known() {
    for (head, framing) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Framing::Length(0)),
        ("GET http://a/b?c HTTP/1.1\r\nhost: a:80\r\n\r\n", Framing::Length(0)),
        ("GET HTTPS://a:/ HTTP/1.1\r\nhost: 127.0.0.1:\r\n\r\n", Framing::Length(0)),
        ("OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", Framing::Length(0)),
        ("POST / HTTP/1.1\r\nHOST:a\r\ncontent-LENGTH:  32 \r\n\r\n", Framing::Length(32)),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", Framing::Chunked),
        ("GET / HTTP/1.0\r\n\r\n", Framing::Length(0)),
        ("POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n", Framing::Length(2)),
    ] {
        assert_eq!(framing_of(head), Some(framing), "{head:?}");
    }
}

#[test]
fn a_head_that_arrives_byte_by_byte_is_found_at_its_last_one() {
    let head = "POST /charges HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    for end in 1..=head.len() {
        let found = check(&mut head.as_bytes()[..end].to_vec(), end - 1, MAX).expect(head);
        assert_eq!(found.map(|head| head.length), (end == head.len()).then_some(end));
    }
    let body_too = whole(&format!("{head}abc")).expect("well-formed").expect("whole");
    assert_eq!(body_too.length, head.len());
}

#[test]
fn what_two_readers_could_read_in_two_ways_is_refused() {
    let lines = [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3, 3",
        "Content-Length: +3",
        "Content-Length: -1",
        "Content-Length: 0x3",
        "Content-Length: 3 3",
        "Content-Length:",
        "Content-Length: 99999999999999999999",
        "Content-Length : 3",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\x0bchunked",
        "Host: b",
        "X: 1\nContent-Length: 3",
        "X: 1\r\n folded: 2",
        "X: a\0b",
        "X: a\rb",
        "X y: 1",
        ": 1",
    ];
    for line in lines {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
        assert!(matches!(whole(&head), Err(Malformed(_))), "{line:?}");
    }
}

#[test]
fn a_start_that_is_no_request_line_of_http_1_is_refused_before_the_head_ends() {
    for start in [
        "GET /\r\n",
        "GET / HTTP/1.2\r\n",
        "GET / HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01",
        "GET / HTTP/1.1\n",
        " GET / HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
    ] {
        assert!(matches!(whole(start), Err(Malformed(_))), "{start:?}");
    }
}

#[test]
fn a_target_or_a_host_that_is_none_is_refused() {
    for target in [
        "charges",
        "*",
        "/a#b",
        "/a\u{7f}b",
        "a:80",
        "ftp://a/b",
        "://a/b",
        "http:///b",
        "http://",
        "http://user@a/b",
        "http://user:word@a/b",
        "http://a:x/b",
        "http://a:99999/b",
        "file:///b",
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(matches!(whole(&head), Err(Malformed(_))), "{target:?}");
    }
    for host in [
        "",
        "a b",
        "a/b",
        "user@a",
        "a\tb",
        "a:x",
        "a:+1",
        "a:-1",
        "a:65536",
        "a:80:80",
        "[::1]x:80",
        "[::1",
        "::1",
        "http://a",
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert!(matches!(whole(&head), Err(Malformed(_))), "{host:?}");
    }
    assert!(matches!(whole("GET / HTTP/1.1\r\n\r\n"), Err(Malformed(_))));
}

#[test]
fn a_method_that_the_parser_behind_does_not_know_is_refused() {
    for method in ["#", "$", "%", "&", "'", "GET%", "G$T"] {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(matches!(whole(&head), Err(Malformed(_))), "{method:?}");
    }
}

#[test]
fn what_is_too_large_is_told_apart() {
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(MAX));
    assert_eq!(whole(&target), Err(Refusal::TargetTooLong));
    assert_eq!(whole(&target[..=MAX]), Err(Refusal::TargetTooLong));
    let header = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(MAX));
    assert_eq!(whole(&header), Err(Refusal::HeadTooLarge));
    let headers = |count| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(count));
    assert!(matches!(whole(&headers(95)), Ok(Some(_))));
    assert_eq!(whole(&headers(96)), Err(Refusal::HeadTooLarge));
}

#[test]
fn a_wish_for_another_protocol_is_made_unreadable() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
                Connection: keep-alive, Upgrade, HTTP2-Settings\r\nX: upgrade\r\n\r\n";
    let mut bytes = head.as_bytes().to_vec();
    assert!(check(&mut bytes, 0, MAX).expect("well-formed").is_some());
    let expected = head.replacen("Upgrade", "ignored", 2);
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}
