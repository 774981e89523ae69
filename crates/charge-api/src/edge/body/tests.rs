use super::*;

fn taken(framing: Framing, bytes: &[u8]) -> Result<(usize, bool), Refusal> {
    let mut body = Body::new(framing);
    let taken = body.take(bytes)?;
    // However it is cut, it ends at the same byte.
    let mut piecewise = Body::new(framing);
    let mut pieces = 0;
    for byte in bytes {
        pieces += piecewise.take(&[*byte])?;
    }
    assert_eq!((pieces, piecewise), (taken, body));
    Ok((taken, body == Body::End))
}

#[test]
fn a_body_with_a_length_ends_there() {
    assert_eq!(taken(Framing::Length(0), b"GET"), Ok((0, true)));
    assert_eq!(taken(Framing::Length(3), b"ab"), Ok((2, false)));
    assert_eq!(taken(Framing::Length(3), b"abcGET"), Ok((3, true)));
}

#[test]
fn a_chunked_body_ends_after_its_last_chunk() {
    let body = b"4\r\n{\"am\r\nA\r\nountCents\"\r\n0\r\n\r\n";
    assert_eq!(taken(Framing::Chunked, body), Ok((body.len(), true)));
    assert_eq!(taken(Framing::Chunked, &[body, &b"GET"[..]].concat()), Ok((body.len(), true)));
    assert_eq!(taken(Framing::Chunked, &body[..body.len() - 1]), Ok((body.len() - 1, false)));
}

#[test]
fn a_chunk_that_two_readers_could_read_in_two_ways_is_refused() {
    for body in [
        &b"\r\n"[..],
        b"g\r\n",
        b"-1\r\n",
        b"0x4\r\n",
        b" 4\r\n",
        b"4 \r\n",
        b"4;a=1\r\n",
        b"4;\r\n",
        b"4\n",
        b"4\r4",
        b"100000000\r\n",
        b"fffffffffffffffff\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\n",
        b"0\r\nTrailer: 1\r\n\r\n",
        b"0\r\n\n",
    ] {
        assert!(matches!(taken(Framing::Chunked, body), Err(Malformed(_))), "{body:?}");
    }
}
