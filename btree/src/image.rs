//! The payload of an op that has a whole page: all bytes but the gap between arrays and heap.
//!
//! Plain: head u16, tail u16, then the first `head` and the last `tail` bytes of the page.
//! Compressed: the same two lengths, then one LZ4 block (no frame, no dictionary) that decompresses
//! to exactly those bytes. The gap is zero after redo in both forms, so a page is the same
//! whichever was logged.
//!
//! Plain is the default: to compress a page takes 6 to 8 us of the thread that changes it, which is
//! more than most devices take to write the bytes that it saves.
//!
//! A writer compresses only where that saves an eighth. Random values do not, and an attempt takes
//! longer than the rest of a change: after failures in a tree a session tries again only after 1,
//! 3, 7 and at most [`MOST_PAUSE`] further images of that tree.
//!
//! Invariant: any payload decompresses to one page or to an error sentence, without memory other
//! than the page. Written by `journal`, read by `record`.

use crate::{code, node::NodeView};
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use wattle_buffer::{PAGE_SIZE, PageImage, TreeId, page::header};

/// Whether page images in the log are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageImages {
    /// As they are in the page, without its gap.
    #[default]
    Plain,
    /// As an LZ4 block, if that is shorter by an eighth.
    Compressed,
}

/// Most images of a tree that are logged plain before the next attempt to compress one.
const MOST_PAUSE: u8 = 63;
/// Trees whose attempts are counted apart.
const TREES: usize = 16;

/// Makes the payloads of one session.
pub(crate) struct ImageWriter {
    /// The copy of a page; the two parts lie side by side once it is compressed.
    page: Box<PageImage>,
    /// Made for the first image that is compressed.
    compressor: Option<Box<Compressor>>,
    images: PageImages,
}

struct Compressor {
    table: CompressTable,
    compressed: [u8; get_maximum_output_size(PAGE_SIZE)],
    attempts: [Attempts; TREES],
}

/// When the next image of some trees is compressed.
#[derive(Clone, Copy, Default)]
struct Attempts {
    /// Length of the pause after the next failure.
    pause: u8,
    /// Images until the next attempt.
    left: u8,
}

impl Attempts {
    /// Whether this image is to be compressed.
    fn is_due(&mut self) -> bool {
        let due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        due
    }

    fn note(&mut self, saved: bool) {
        self.left = if saved { 0 } else { self.pause };
        self.pause = if saved { 0 } else { (2 * self.pause + 1).min(MOST_PAUSE) };
    }
}

/// A payload: the two lengths, and after them two parts.
pub(crate) struct ImagePayload<'w> {
    /// Compressed or plain, of a page that joins a tree or not.
    pub code: u8,
    pub lengths: [u8; 4],
    pub parts: [&'w [u8]; 2],
}

impl ImagePayload<'_> {
    /// Bytes of the payload.
    pub fn len(&self) -> usize {
        self.lengths.len() + self.parts[0].len() + self.parts[1].len()
    }
}

impl ImageWriter {
    pub fn new(images: PageImages) -> ImageWriter {
        ImageWriter { page: PageImage::zeroed(), compressor: None, images }
    }

    /// The payload for a page of `tree` that `copy` copies. `joins`: the page joins the tree.
    pub fn write(
        &mut self,
        tree: TreeId,
        joins: bool,
        copy: impl FnOnce(&mut PageImage),
    ) -> ImagePayload<'_> {
        let ImageWriter { page, compressor, images } = self;
        copy(page);
        let (head, tail) = extent(&page.0);
        assert!(head + tail <= PAGE_SIZE, "a node overlaps itself: {head} + {tail} bytes");
        let mut lengths = [0; 4];
        lengths[..2].copy_from_slice(&(head as u16).to_le_bytes());
        lengths[2..].copy_from_slice(&(tail as u16).to_le_bytes());
        if *images == PageImages::Compressed {
            let Compressor { table, compressed, attempts } =
                &mut **compressor.get_or_insert_with(Compressor::new);
            let attempts = &mut attempts[tree.0 as usize % TREES];
            if attempts.is_due() {
                page.0.copy_within(PAGE_SIZE - tail.., head);
                let bytes = &page.0[..head + tail];
                // The buffer has room for any result, so this does not fail.
                let len = compress_into_with_table(bytes, compressed, table).unwrap_or(bytes.len());
                let saved = len <= bytes.len() - bytes.len() / 8;
                attempts.note(saved);
                return match saved {
                    true => ImagePayload {
                        code: if joins {
                            code::NEW_COMPRESSED_IMAGE
                        } else {
                            code::COMPRESSED_IMAGE
                        },
                        lengths,
                        parts: [&compressed[..len], &[]],
                    },
                    false => ImagePayload { code: plain(joins), lengths, parts: [bytes, &[]] },
                };
            }
        }
        let parts = [&page.0[..head], &page.0[PAGE_SIZE - tail..]];
        ImagePayload { code: plain(joins), lengths, parts }
    }
}

impl Compressor {
    fn new() -> Box<Compressor> {
        Box::new(Compressor {
            table: CompressTable::small(),
            compressed: [0; get_maximum_output_size(PAGE_SIZE)],
            attempts: Default::default(),
        })
    }
}

/// Lengths of head and tail of a page: all bytes but the gap between arrays and heap.
fn extent(image: &[u8; PAGE_SIZE]) -> (usize, usize) {
    let (head, top) = NodeView::from(image).extent();
    (head, PAGE_SIZE - top)
}

/// A little-endian u16 of an op.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Result<usize, String> {
    let field = bytes.get(at..at + 2).ok_or("an op of the log is cut short")?;
    Ok(usize::from(u16::from_le_bytes(field.try_into().expect("2 bytes"))))
}

fn plain(joins: bool) -> u8 {
    if joins { code::NEW_IMAGE } else { code::IMAGE }
}

/// Whether an op of this code has a whole page.
pub(crate) fn is_image(code: u8) -> bool {
    is_compressed(code) || matches!(code, code::IMAGE | code::NEW_IMAGE)
}

fn is_compressed(code: u8) -> bool {
    matches!(code, code::COMPRESSED_IMAGE | code::NEW_COMPRESSED_IMAGE)
}

/// The two lengths at the beginning of a payload, and the bytes after them.
fn lengths(code: u8, payload: &[u8]) -> Result<(usize, usize, &[u8]), String> {
    let (head, tail) = (u16_at(payload, 0)?, u16_at(payload, 2)?);
    let (bytes, all) = (&payload[4..], head + tail);
    let fits = if is_compressed(code) { bytes.len() < all } else { bytes.len() == all };
    if !fits || all > PAGE_SIZE || head < header::END {
        let len = bytes.len();
        return Err(format!("an image of {head} and {tail} bytes has {len} bytes"));
    }
    Ok((head, tail, bytes))
}

/// Lengths of head and tail of the image in a payload whose lengths make sense.
///
/// # Errors
/// A sentence: the payload is none of an image.
pub fn image_lengths(code: u8, payload: &[u8]) -> Result<(usize, usize), String> {
    debug_assert!(is_image(code), "op {code} has no image");
    lengths(code, payload).map(|(head, tail, _)| (head, tail))
}

/// Puts the page of a payload into `image`, whose bytes are undefined after an error.
pub(crate) fn read(image: &mut PageImage, code: u8, payload: &[u8]) -> Result<(), String> {
    let (head, tail, bytes) = lengths(code, payload)?;
    if is_compressed(code) {
        let all = head + tail;
        // The decoder checks each length before it uses it, and writes only to the slice.
        match decompress_into(bytes, &mut image.0[..all]) {
            Ok(len) if len == all => {}
            Ok(len) => return Err(format!("an image of {all} bytes decompresses to {len} bytes")),
            Err(error) => return Err(format!("an image does not decompress: {error}")),
        }
        image.0.copy_within(head..all, PAGE_SIZE - tail);
    } else {
        image.0[..head].copy_from_slice(&bytes[..head]);
        image.0[PAGE_SIZE - tail..].copy_from_slice(&bytes[head..]);
    }
    image.0[head..PAGE_SIZE - tail].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests;
