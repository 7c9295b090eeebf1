//! Parses the payload of an op without applying it. Called by the check of a log and by its dump.
//!
//! Invariant: parsing any bytes ends with a shape or an error sentence.

use std::fmt;
use wattle_btree::record::{code, image_lengths};

/// An op, without its page and tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shape<'a> {
    /// An image of so many bytes, compressed into fewer or not.
    Image { new: bool, bytes: usize, compressed: Option<usize> },
    /// A record gets a value of that many bytes.
    Set { replace: bool, key: &'a [u8], value: usize, special: bool },
    /// Bytes inside of a value.
    Patch { key: &'a [u8], offset: usize, bytes: usize },
    /// A record goes.
    Remove { key: &'a [u8] },
    /// The left half of a split.
    Truncate { position: usize, separator: &'a [u8] },
    /// A separator and the child right of it.
    InsertChild { position: usize, child: u64, separator: &'a [u8] },
    /// A separator and the child right of it go.
    RemoveChild { position: usize },
    /// Pages, u64 each.
    Free { pages: &'a [u8] },
    /// Ranges of pages, a pair of u64 each.
    Adopt { ranges: &'a [u8] },
    /// The right part of a cut.
    KeepRight { position: usize, separator: &'a [u8] },
    /// Records of a neighbour, so many bytes, and the fence between the leaves.
    Take { at_right: bool, fence: &'a [u8], records: usize },
    /// A separator is replaced.
    Separator { position: usize, separator: &'a [u8] },
}

impl<'a> Shape<'a> {
    /// Reads a payload. The error is a sentence.
    pub fn parse(code: u8, payload: &'a [u8]) -> Result<Shape<'a>, String> {
        let mut rest = payload;
        let shape = match code {
            code::IMAGE | code::NEW_IMAGE => {
                let (head, tail) = image_lengths(code, payload)?;
                Shape::Image { new: code == code::NEW_IMAGE, bytes: head + tail, compressed: None }
            }
            code::COMPRESSED_IMAGE | code::NEW_COMPRESSED_IMAGE => {
                let (head, tail) = image_lengths(code, payload)?;
                let compressed = Some(payload.len() - 4);
                let new = code == code::NEW_COMPRESSED_IMAGE;
                Shape::Image { new, bytes: head + tail, compressed }
            }
            code::INSERT | code::REPLACE => {
                let len = take_u16(&mut rest)?;
                let special = take::<1>(&mut rest)?[0];
                if special > 1 {
                    return Err(format!("the kind of a value is {special}"));
                }
                let key = take_key(&mut rest, len)?;
                let (replace, value) = (code == code::REPLACE, rest.len());
                Shape::Set { replace, key, value, special: special == 1 }
            }
            code::PATCH => {
                let (len, offset) = (take_u16(&mut rest)?, take_u16(&mut rest)?);
                Shape::Patch { key: take_key(&mut rest, len)?, offset, bytes: rest.len() }
            }
            code::REMOVE => Shape::Remove { key: take_key(&mut rest, payload.len())? },
            code::TRUNCATE | code::KEEP_RIGHT | code::SEPARATOR => {
                let position = take_u16(&mut rest)?;
                let len = rest.len();
                let separator = take_key(&mut rest, len)?;
                match code {
                    code::TRUNCATE => Shape::Truncate { position, separator },
                    code::KEEP_RIGHT => Shape::KeepRight { position, separator },
                    _ => Shape::Separator { position, separator },
                }
            }
            code::TAKE => {
                let end = take::<1>(&mut rest)?[0];
                if end > 1 {
                    return Err(format!("an end of a leaf is {end}"));
                }
                let len = take_u16(&mut rest)?;
                let fence = take_key(&mut rest, len)?;
                Shape::Take { at_right: end == 1, fence, records: rest.len() }
            }
            code::INSERT_CHILD => {
                let position = take_u16(&mut rest)?;
                let child = u64::from_le_bytes(take(&mut rest)?);
                let len = rest.len();
                Shape::InsertChild { position, child, separator: take_key(&mut rest, len)? }
            }
            code::REMOVE_CHILD if payload.len() == 2 => {
                Shape::RemoveChild { position: take_u16(&mut rest)? }
            }
            code::FREE if payload.len().is_multiple_of(8) => Shape::Free { pages: payload },
            code::ADOPT if payload.len().is_multiple_of(16) => Shape::Adopt { ranges: payload },
            code::REMOVE_CHILD | code::FREE | code::ADOPT => {
                return Err(format!("op {code} has {} bytes", payload.len()));
            }
            _ => return Err(format!("there is no op {code}")),
        };
        Ok(shape)
    }
}

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let special = |special: bool| if special { " special" } else { "" };
        match *self {
            Shape::Image { new, bytes, compressed } => {
                let name = if new { "new-image" } else { "image" };
                write!(f, "{name} of {}", Bytes(bytes))?;
                compressed.map_or(Ok(()), |compressed| write!(f, " compressed into {compressed}"))
            }
            Shape::Set { replace, key, value, special: is_special } => {
                let name = if replace { "replace" } else { "insert" };
                write!(f, "{name} {} with{} {}", Escaped(key), special(is_special), Bytes(value))
            }
            Shape::Patch { key, offset, bytes } => {
                write!(f, "patch {} at {offset} with {}", Escaped(key), Bytes(bytes))
            }
            Shape::Remove { key } => write!(f, "remove {}", Escaped(key)),
            Shape::Truncate { position, separator } => {
                write!(f, "truncate at {position}, below {}", Escaped(separator))
            }
            Shape::InsertChild { position, child, separator } => {
                write!(f, "insert-child {child} at {position}, from {}", Escaped(separator))
            }
            Shape::RemoveChild { position } => write!(f, "remove-child at {position}"),
            Shape::Free { pages } => write!(f, "free{}", Numbers(pages, 1)),
            Shape::Adopt { ranges } => write!(f, "adopt{}", Numbers(ranges, 2)),
            Shape::KeepRight { position, separator } => {
                write!(f, "keep-right at {position}, from {}", Escaped(separator))
            }
            Shape::Take { at_right, fence, records } => {
                let side = if at_right { "below" } else { "from" };
                write!(f, "take {}, {side} {}", Bytes(records), Escaped(fence))
            }
            Shape::Separator { position, separator } => {
                write!(f, "separator {} at {position}", Escaped(separator))
            }
        }
    }
}

/// A key in quotes, readable where it is text.
pub(crate) struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A number of bytes, with the noun.
pub(crate) struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// A list of u64, `.1` of them joined by `+`.
struct Numbers<'a>(&'a [u8], usize);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, number) in self.0.chunks_exact(8).enumerate() {
            let number = u64::from_le_bytes(number.try_into().expect("8 bytes"));
            let between = if index.is_multiple_of(self.1) { ' ' } else { '+' };
            write!(f, "{between}{number}")?;
        }
        Ok(())
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (taken, left) = rest.split_first_chunk().ok_or("an op is cut short")?;
    *rest = left;
    Ok(*taken)
}

fn take_u16(rest: &mut &[u8]) -> Result<usize, String> {
    take(rest).map(|bytes| usize::from(u16::from_le_bytes(bytes)))
}

fn take_key<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], String> {
    if len > wattle_btree::MAX_KEY {
        return Err(format!("a key has {len} bytes"));
    }
    let (key, left) = rest.split_at_checked(len).ok_or("a key is cut short")?;
    *rest = left;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_that_is_cut_short_or_too_long_is_refused_or_another_op() {
        let mut image = vec![0; 4 + 100 + 60];
        (image[0], image[2]) = (100, 60);
        let compressed = image[..4 + 50].to_vec();
        let ops: [(u8, Vec<u8>, &str); 14] = [
            (code::NEW_COMPRESSED_IMAGE, compressed, "new-image of 160 bytes compressed into 50"),
            (code::IMAGE, image, "image of 160 bytes"),
            (code::INSERT, b"\x02\0\x01k\"value".to_vec(), r#"insert "k\"" with special 5 bytes"#),
            (code::PATCH, b"\x01\0\x07\0kxyz".to_vec(), r#"patch "k" at 7 with 3 bytes"#),
            (code::PATCH, b"\x01\0\x07\0kx".to_vec(), r#"patch "k" at 7 with 1 byte"#),
            (code::REMOVE, b"\0\xff".to_vec(), r#"remove "\x00\xff""#),
            (code::TRUNCATE, b"\x03\0sep".to_vec(), r#"truncate at 3, below "sep""#),
            (
                code::INSERT_CHILD,
                b"\x03\0\x09\0\0\0\0\0\0\0sep".to_vec(),
                r#"insert-child 9 at 3, from "sep""#,
            ),
            (code::REMOVE_CHILD, b"\x03\0".to_vec(), "remove-child at 3"),
            (code::FREE, [7u64, 8].map(u64::to_le_bytes).concat(), "free 7 8"),
            (code::ADOPT, [7u64, 8].map(u64::to_le_bytes).concat(), "adopt 7+8"),
            (code::KEEP_RIGHT, b"\x03\0sep".to_vec(), r#"keep-right at 3, from "sep""#),
            (code::TAKE, b"\x01\x03\0sepmoved".to_vec(), r#"take 5 bytes, below "sep""#),
            (code::SEPARATOR, b"\x03\0sep".to_vec(), r#"separator "sep" at 3"#),
        ];
        for (code, payload, text) in ops {
            assert_eq!(Shape::parse(code, &payload).expect(text).to_string(), text);
            for len in 0..payload.len() {
                if let Ok(shape) = Shape::parse(code, &payload[..len]) {
                    assert_ne!(shape.to_string(), text, "{len} bytes");
                }
            }
        }
        assert!(Shape::parse(0, b"").is_err() && Shape::parse(17, b"").is_err());
        assert!(Shape::parse(code::REMOVE, &[0; wattle_btree::MAX_KEY + 1]).is_err());
    }
}
