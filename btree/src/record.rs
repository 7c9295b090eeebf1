//! The page ops of log records: one [`Op`] for each page that a record changes, and its redo.
//!
//! Redo is physiological: an op names its page, and describes the change inside it logically.
//! Applied to the old bytes of the page, it gives the same node as the change did, because it runs
//! the same code. An op is applied only to pages with a number (GSN) below that of the record, so
//! applying a log twice changes nothing. Numbers are little-endian, lengths in bytes.
//!
//! | code | op | payload |
//! |--:|---|---|
//! | 1 | `Image` | head u16, tail u16, then the first `head` and the last `tail` bytes of the page |
//! | 2 | `NewImage` | the same; the page joins a tree |
//! | 3 | `Insert` | key length u16, special u8, key, value |
//! | 4 | `Replace` | the same; the new value of a record |
//! | 5 | `Patch` | key length u16, offset in the value u16, key, bytes |
//! | 6 | `Remove` | key |
//! | 7 | `Truncate` | position u16, separator: the left half of a split |
//! | 8 | `InsertChild` | position u16, child u64, separator |
//! | 9 | `RemoveChild` | position u16: the separator and the child right of it |
//! | 10 | `Free` | pages u64 each; they leave their tree. The op does not change its own page |
//! | 11 | `Adopt` | pairs of u64, first page and count: pages that are on storage already join a tree. The op does not change its own page |
//! | 12 | `CompressedImage` | head u16, tail u16, then an LZ4 block of the first `head` and the last `tail` bytes |
//! | 13 | `NewCompressedImage` | the same; the page joins a tree |
//! | 14 | `KeepRight` | position u16, separator: the leaf keeps the right part of a cut |
//! | 15 | `Take` | end u8 (1: right), fence length u16, fence, records (`node/shift.rs`) |
//! | 16 | `Separator` | position u16, separator: a separator is replaced, the children stay |

pub use crate::{code, image::image_lengths};

use crate::{
    image::{self, is_image, u16_at},
    node::{NodeMut, NodeRef, NodeView, check, take},
};
use wattle_buffer::{PAGE_SIZE, PageId, PageImage, PageMut, PageRef, Swip, page::header};

/// A change of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// The whole page; the page itself gives the bytes when it is logged.
    Image,
    /// As `Image`, for a page that joins a tree.
    NewImage,
    /// A new record.
    Insert {
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// The value is a descriptor or a ghost.
        special: bool,
    },
    /// The new value of a record.
    Replace {
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// The value is a descriptor or a ghost.
        special: bool,
    },
    /// Some new bytes of the value of a record.
    Patch {
        /// Its key.
        key: &'a [u8],
        /// Offset in the value.
        offset: usize,
        /// The new bytes.
        bytes: &'a [u8],
    },
    /// The record is removed.
    Remove {
        /// Its key.
        key: &'a [u8],
    },
    /// The node keeps the left half of a split.
    Truncate {
        /// See [`Split`].
        position: usize,
        /// See [`Split`].
        separator: &'a [u8],
    },
    /// A separator and the child right of it.
    InsertChild {
        /// Position of the separator.
        position: usize,
        /// The separator.
        separator: &'a [u8],
        /// Page of the child.
        child: PageId,
    },
    /// A separator and the child right of it are removed.
    RemoveChild {
        /// Position of the separator.
        position: usize,
    },
    /// Pages that leave their tree.
    Free {
        /// The pages.
        pages: &'a [PageId],
    },
    /// The leaf keeps the part right of a cut; the other part moves to its left neighbour.
    KeepRight {
        /// See [`Split`].
        position: usize,
        /// See [`Split`].
        separator: &'a [u8],
    },
    /// The leaf takes records of a neighbour.
    Take {
        /// It takes them at its right end, from its right neighbour.
        at_right: bool,
        /// The new fence at that end.
        fence: &'a [u8],
        /// See `node/shift.rs`.
        records: &'a [u8],
    },
    /// A separator is replaced.
    Separator {
        /// Its position.
        position: usize,
        /// The new one.
        separator: &'a [u8],
    },
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, String> {
    let field = bytes.get(at..at + 8).ok_or("an op of the log is cut short")?;
    Ok(u64::from_le_bytes(field.try_into().expect("8 bytes")))
}

/// Splits a payload that begins with a key length and `between` further bytes, into the key and the
/// bytes after it.
fn keyed(payload: &[u8], between: usize) -> Result<(&[u8], &[u8]), String> {
    let len = u16_at(payload, 0)?;
    let rest = payload.get(2 + between..).ok_or("an op of the log is cut short")?;
    rest.split_at_checked(len).ok_or_else(|| "a key in the log is cut short".to_string())
}

/// Calls `change` for each page that an op puts into a tree (true) or takes out of one (false).
///
/// # Errors
/// A sentence: the payload does not fit the code.
pub fn page_changes(
    page: PageId,
    code: u8,
    payload: &[u8],
    change: &mut dyn FnMut(PageId, bool),
) -> Result<(), String> {
    match code {
        code::NEW_IMAGE | code::NEW_COMPRESSED_IMAGE => change(page, true),
        code::FREE => {
            for at in (0..payload.len()).step_by(8) {
                change(PageId(u64_at(payload, at)?), false);
            }
        }
        code::ADOPT => {
            for at in (0..payload.len()).step_by(16) {
                let (first, count) = (u64_at(payload, at)?, u64_at(payload, at + 8)?);
                let end = first.checked_add(count).filter(|end| *end <= PageId::MAX.0);
                let end = end.ok_or("a range of pages in the log is too long")?;
                (first..end).for_each(|page| change(PageId(page), true));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether an op changes the bytes of its page, and whether that depends on the old bytes.
pub fn needs_page(code: u8) -> (bool, bool) {
    match code {
        _ if is_image(code) => (true, false),
        code::FREE | code::ADOPT => (false, false),
        _ => (true, true),
    }
}

/// Applies an op to the image of its page in the form of storage: swips name page ids.
///
/// # Errors
/// A sentence: the op does not fit the page, whose bytes are undefined then.
pub fn redo(image: &mut PageImage, page: PageId, code: u8, payload: &[u8]) -> Result<(), String> {
    if is_image(code) {
        return redo_image(image, page, code, payload);
    }
    let view = NodeView::from(&*image);
    let is_inner = view.is_inner();
    let wants_inner = matches!(code, code::INSERT_CHILD | code::REMOVE_CHILD | code::SEPARATOR);
    if code != code::TRUNCATE && is_inner != wants_inner {
        return Err(format!("op {code} of the log does not fit the kind of the node"));
    }
    match code {
        code::INSERT | code::REPLACE | code::PATCH | code::REMOVE => {
            redo_record(image, code, payload)
        }
        code::TRUNCATE => {
            let position = u16_at(payload, 0)?;
            let split = view
                .split_at(position, &payload[2..])
                .ok_or_else(|| "a split of the log does not fit the node".to_string())?;
            let mut left = PageImage::zeroed();
            view.half_into(&split, false, &mut left, page);
            *image = *left;
            Ok(())
        }
        code::INSERT_CHILD => {
            let position = u16_at(payload, 0)?;
            let child = PageId(u64_at(payload, 2)?);
            let separator = &payload[10..];
            if position > view.count() || child > PageId::MAX || separator.len() > crate::MAX_KEY {
                return Err("a child of the log does not fit the node".to_string());
            }
            let mut bytes = PageMut::of_image(image);
            let raw = Swip::evicted(child).0;
            NodeMut::new(&mut bytes)
                .insert_child(position, separator, raw)
                .map_err(|_| "a separator of the log finds no room".to_string())
        }
        code::REMOVE_CHILD => {
            let position = u16_at(payload, 0)?;
            if position >= view.count() {
                return Err("a child that the log removes is not there".to_string());
            }
            let mut bytes = PageMut::of_image(image);
            NodeMut::new(&mut bytes).remove_child(position);
            Ok(())
        }
        code::KEEP_RIGHT => {
            let part = view.right_part(u16_at(payload, 0)?, &payload[2..]);
            *image = *part.ok_or_else(|| "a cut of the log does not fit the node".to_string())?;
            Ok(())
        }
        code::TAKE => {
            let (fence, records) = keyed(payload.get(1..).unwrap_or(&[]), 0)?;
            let mut taker = PageImage::zeroed();
            take(view, payload[0] == 1, fence, records, &mut taker)?;
            *image = *taker;
            Ok(())
        }
        code::SEPARATOR => {
            let (position, separator) = (u16_at(payload, 0)?, &payload[2..]);
            if position >= view.count() || separator.len() > crate::MAX_KEY {
                return Err("a separator of the log does not fit the node".to_string());
            }
            NodeMut::new(&mut PageMut::of_image(image))
                .replace_separator(position, separator)
                .map_err(|_| "a separator of the log finds no room".to_string())
        }
        _ => Err(format!("the log has an op of the unknown kind {code}")),
    }
}

/// Applies an op that changes one record of a leaf.
fn redo_record(image: &mut PageImage, code: u8, payload: &[u8]) -> Result<(), String> {
    match code {
        code::INSERT | code::REPLACE => {
            let (key, value) = keyed(payload, 1)?;
            let special = payload[2] != 0;
            let (position, found) = place(image, key)?;
            if found != (code == code::REPLACE) || !crate::node::fits_inline(key.len(), value.len())
            {
                return Err("a record that the log changes is not as the log says".to_string());
            }
            let mut bytes = PageMut::of_image(image);
            let mut node = NodeMut::new(&mut bytes);
            let done = match found {
                false => node.insert_leaf(position, key, value, special),
                true => node.replace_value(position, value, special),
            };
            done.map_err(|_| "a record of the log finds no room".to_string())
        }
        code::PATCH => {
            let (key, new) = keyed(payload, 2)?;
            let offset = u16_at(payload, 2)?;
            let (position, found) = place(image, key)?;
            let len = if found { NodeView::from(&*image).value(position).0.len() } else { 0 };
            if !found || offset + new.len() > len {
                return Err("a value that the log patches is not as the log says".to_string());
            }
            let mut bytes = PageMut::of_image(image);
            NodeMut::new(&mut bytes).write_value(position, offset, new);
            Ok(())
        }
        _ => {
            debug_assert_eq!(code, code::REMOVE);
            let (position, found) = place(image, payload)?;
            if !found {
                return Err("a record that the log removes is not there".to_string());
            }
            let mut bytes = PageMut::of_image(image);
            NodeMut::new(&mut bytes).remove_leaf(position);
            Ok(())
        }
    }
}

fn redo_image(image: &mut PageImage, page: PageId, code: u8, payload: &[u8]) -> Result<(), String> {
    image::read(image, code, payload)?;
    if image.u64_at(header::PAGE_ID) != page.0 {
        return Err("an image in the log belongs to another page".to_string());
    }
    check(&image.0, PageId::MAX)
}

/// Prefetches the first lines of a page, which any op on it reads.
#[inline]
pub fn prefetch_page(image: &PageImage) {
    NodeRef::from(PageRef::of_image(image)).prefetch_lines();
}

/// Prefetches the record that [`redo`] of an op will change, in a page whose first lines have
/// arrived. The frame may hold another page by then.
#[inline]
pub fn prefetch_record(image: &PageImage, code: u8, payload: &[u8]) {
    let node = NodeRef::from(PageRef::of_image(image));
    if let Ok(Some(key)) = key_of(code, payload)
        && node.is_leaf()
    {
        node.prefetch_fences();
        node.prefetch_record(key);
    }
}

/// The key of the record that an op changes, if it changes a record.
///
/// # Errors
/// A sentence: the payload does not fit the code.
pub(crate) fn key_of(code: u8, payload: &[u8]) -> Result<Option<&[u8]>, String> {
    Ok(Some(match code {
        code::INSERT | code::REPLACE => keyed(payload, 1)?.0,
        code::PATCH => keyed(payload, 2)?.0,
        code::REMOVE => payload,
        _ => return Ok(None),
    }))
}

/// Position of a key in a leaf, and whether the leaf has it.
fn place(image: &PageImage, key: &[u8]) -> Result<(usize, bool), String> {
    let view = NodeView::from(image);
    let outside = key < view.lower() || view.upper().is_some_and(|upper| key >= upper);
    if outside || key.len() > crate::MAX_KEY {
        return Err("a key of the log lies outside of the fences of the node".to_string());
    }
    let search = NodeRef::from(PageRef::of_image(image)).search(key);
    let search = search.map_err(|_| "a node leads outside of its page".to_string())?;
    Ok((search.position, search.found))
}

/// The fixed-size fields at the beginning of a payload.
#[derive(Default)]
pub(crate) struct Front {
    bytes: [u8; 16],
    len: usize,
}

impl Front {
    #[inline(always)]
    fn with(mut self, bytes: &[u8]) -> Front {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<'a> Op<'a> {
    /// The key of the record that the op changes, if it changes a record.
    #[inline(always)]
    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Op::Insert { key, .. }
            | Op::Replace { key, .. }
            | Op::Patch { key, .. }
            | Op::Remove { key } => Some(key),
            _ => None,
        }
    }

    /// True if the op changes the bytes of the page that it names.
    pub(crate) fn changes_page(&self) -> bool {
        !matches!(self, Op::Free { .. })
    }

    /// Code, fixed-size front and further parts of the payload. The journal encodes images and
    /// lists of pages itself.
    ///
    /// Inlined, so that the kind of the op is known. A front returned in memory would be copied in
    /// larger pieces than it was written in; such a load waits for all stores before it, those to
    /// pages included.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (u8, Front, [&[u8]; 2]) {
        let front = Front::default();
        let u16 = |value: usize| {
            debug_assert!(value <= PAGE_SIZE, "{value} is no length or position in a page");
            (value as u16).to_le_bytes()
        };
        match *self {
            Op::Image => (code::IMAGE, front, [&[], &[]]),
            Op::NewImage => (code::NEW_IMAGE, front, [&[], &[]]),
            Op::Insert { key, value, special } | Op::Replace { key, value, special } => {
                let front = front.with(&u16(key.len())).with(&[u8::from(special)]);
                let is_insert = matches!(self, Op::Insert { .. });
                let code = if is_insert { code::INSERT } else { code::REPLACE };
                (code, front, [key, value])
            }
            Op::Patch { key, offset, bytes } => {
                (code::PATCH, front.with(&u16(key.len())).with(&u16(offset)), [key, bytes])
            }
            Op::Remove { key } => (code::REMOVE, front, [key, &[]]),
            Op::Truncate { position, separator } => {
                (code::TRUNCATE, front.with(&u16(position)), [separator, &[]])
            }
            Op::InsertChild { position, separator, child } => {
                let front = front.with(&u16(position)).with(&child.0.to_le_bytes());
                (code::INSERT_CHILD, front, [separator, &[]])
            }
            Op::RemoveChild { position } => {
                (code::REMOVE_CHILD, front.with(&u16(position)), [&[], &[]])
            }
            Op::Free { .. } => (code::FREE, front, [&[], &[]]),
            Op::KeepRight { position, separator } => {
                (code::KEEP_RIGHT, front.with(&u16(position)), [separator, &[]])
            }
            Op::Take { at_right, fence, records } => {
                let front = front.with(&[u8::from(at_right)]).with(&u16(fence.len()));
                (code::TAKE, front, [fence, records])
            }
            Op::Separator { position, separator } => {
                (code::SEPARATOR, front.with(&u16(position)), [separator, &[]])
            }
        }
    }
}
