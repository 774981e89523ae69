//! Where the body of a request ends. Its content is passed on as it is.

use super::Refusal;
use super::Refusal::Malformed;
use super::head::Framing;

/// Eight hexadecimal digits: far more than any body that is accepted, and no overflow.
const SIZE_DIGITS_MAX: u8 = 8;

/// A body that is being passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    Length(u64),
    Chunked(Chunk),
    End,
}

/// What the next byte of a chunked body belongs to (RFC 9112 §7.1). Extensions and trailers, which
/// nobody sends here, are refused: readers disagree about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    Size { size: u64, digits: u8 },
    SizeEnd { size: u64 },
    Data { left: u64 },
    DataCr,
    DataEnd,
    LastCr,
    LastEnd,
}

const NEXT_SIZE: Chunk = Chunk::Size { size: 0, digits: 0 };

impl Body {
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) => Self::End,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(NEXT_SIZE),
        }
    }

    /// How many of the bytes belong to the body.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        let mut taken = 0;
        while taken < bytes.len() {
            match self {
                Self::End => break,
                Self::Length(left) | Self::Chunked(Chunk::Data { left }) => {
                    let available = u64::try_from(bytes.len() - taken).unwrap_or(u64::MAX);
                    let part = available.min(*left);
                    *left -= part;
                    taken += usize::try_from(part).expect("invariant: no more than there are");
                }
                Self::Chunked(chunk) => {
                    match chunk.next(bytes[taken])? {
                        Some(next) => *chunk = next,
                        None => *self = Self::End,
                    }
                    taken += 1;
                }
            }
            match self {
                Self::Length(0) => *self = Self::End,
                Self::Chunked(chunk @ Chunk::Data { left: 0 }) => *chunk = Chunk::DataCr,
                _ => {}
            }
        }
        Ok(taken)
    }
}

impl Chunk {
    /// `None` after the last byte.
    fn next(self, byte: u8) -> Result<Option<Self>, Refusal> {
        Ok(Some(match (self, byte) {
            (Self::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == SIZE_DIGITS_MAX {
                    return Err(Malformed("a chunk is too large"));
                }
                let digit = char::from(byte).to_digit(16).expect("invariant: a hexadecimal digit");
                Self::Size { size: size * 16 + u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { size, digits: 1.. }, b'\r') => Self::SizeEnd { size },
            (Self::SizeEnd { size: 0 }, b'\n') => Self::LastCr,
            (Self::SizeEnd { size }, b'\n') => Self::Data { left: size },
            (Self::DataCr, b'\r') => Self::DataEnd,
            (Self::DataEnd, b'\n') => NEXT_SIZE,
            (Self::LastCr, b'\r') => Self::LastEnd,
            (Self::LastEnd, b'\n') => return Ok(None),
            _ => return Err(Malformed("a chunk is malformed")),
        }))
    }
}

#[cfg(test)]
mod tests;
