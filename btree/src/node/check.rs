//! Structural checks of a node.
//!
//! [`check`] is cheap enough for every page that is read. After it, code under the exclusive latch
//! may use every offset and length of the node unchecked. A checksum does not give that: it only
//! proves that the bytes are those that were written. [`check_full`] adds the properties that
//! searches rely on, and serves verification and tests.

use super::{layout::*, view::NodeView};
use wattle_buffer::{PAGE_SIZE, PageId, PageKind, page::header};

macro_rules! require {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(format!($($message)*));
        }
    };
}

/// Checks the structure that edits and views rely on, and that all swips name pages up to
/// `max_page`, as on storage. The error is a clause that describes the first violation.
pub fn check(bytes: &[u8; PAGE_SIZE], max_page: PageId) -> Result<(), String> {
    check_structure(bytes)?;
    let view = NodeView::from(bytes);
    if view.is_inner() {
        for position in 0..=view.count() {
            let raw = view.swip(position);
            let page = raw & PageId::MAX.0;
            require!(
                raw == SWIP_EVICTED | page && page != 0 && page <= max_page.0,
                "child {position} has the swip {raw:016x}, the last page is {max_page}"
            );
        }
    }
    Ok(())
}

pub(super) fn check_structure(bytes: &[u8; PAGE_SIZE]) -> Result<(), String> {
    let view = NodeView::from(bytes);
    let (kind, level) = (bytes[header::KIND], view.level());
    let inner = kind == PageKind::Inner as u8;
    require!(inner || kind == PageKind::Leaf as u8, "its kind {kind} is no node");
    require!(inner == (level > 0), "its level {level} does not go with its kind {kind}");
    let (count, capacity) = (view.count(), view.capacity());
    require!(count <= capacity, "it has {count} entries and a capacity of {capacity}");
    let (top, garbage) = (view.heap_top(), view.garbage());
    let end = arrays_end(capacity, inner);
    require!(
        end <= top && top <= PAGE_SIZE && top.is_multiple_of(8),
        "its arrays end at {end} and its heap starts at {top}"
    );

    let mut live = 0;
    let mut piece = |name: &str, offset: usize, len: usize| {
        require!((offset == 0) == (len == 0), "its {name} has {len} bytes at {offset}");
        require!(
            len == 0 || offset.is_multiple_of(8) && offset >= top && offset + len <= PAGE_SIZE,
            "its {name} of {len} bytes at {offset} leaves the heap, which starts at {top}"
        );
        live += round8(len);
        Ok(())
    };
    let (lower, upper, prefix) =
        (view.range(LOWER_OFF), view.range(UPPER_OFF), view.range(PREFIX_OFF));
    piece("lower fence", lower.0, lower.1)?;
    piece("upper fence", upper.0, upper.1)?;
    let owner = [lower, upper].into_iter().find(|fence| prefix.0 != 0 && fence.0 == prefix.0);
    match owner {
        None => piece("prefix", prefix.0, prefix.1)?,
        Some((_, len)) => require!(
            0 < prefix.1 && prefix.1 <= len,
            "its prefix takes {} of {len} bytes of a fence",
            prefix.1
        ),
    }
    for (name, len) in [("lower fence", lower.1), ("upper fence", upper.1)] {
        require!(len <= MAX_KEY, "its {name} has {len} bytes");
    }
    for position in 0..count {
        let slot = view.slot(position);
        let len = slot.value_len() + slot.tail_len();
        piece("record", slot.offset(), len)
            .map_err(|error| format!("{error} (position {position})"))?;
        let key_len = prefix.1 + slot.suffix_len();
        require!(
            if inner {
                key_len <= MAX_KEY && slot.value_len() == 0 && !slot.special()
            } else {
                fits_inline(key_len, slot.value_len())
            },
            "record {position} has a key of {key_len} and a value of {} bytes",
            slot.value_len()
        );
    }
    require!(
        live + garbage == PAGE_SIZE - top,
        "its heap has {} bytes, of which {live} are in use and {garbage} are not",
        PAGE_SIZE - top
    );
    Ok(())
}

/// Checks everything about a node but its swips: also that keys ascend between the fences, that
/// heads and hints match the keys, and that pieces of the heap do not overlap.
pub fn check_full(bytes: &[u8; PAGE_SIZE]) -> Result<(), String> {
    check_structure(bytes)?;
    let view = NodeView::from(bytes);
    let (count, prefix) = (view.count(), view.prefix());
    let (lower, upper) = (view.lower(), view.upper());
    require!(upper.is_none_or(|upper| lower < upper), "its fences are out of order");
    let checked = view.flags() & CHECK_PREFIX != 0;
    require!(view.flags() & !CHECK_PREFIX == 0, "it has the flags {:02x}", view.flags());
    let implied = upper.map_or(0, |upper| common_prefix(lower, upper));
    require!(
        checked || prefix.len() <= implied && lower.starts_with(prefix),
        "its prefix of {} bytes is unchecked, the fences share {implied}",
        prefix.len()
    );
    require!(bytes[RESERVED..HINTS].iter().all(|byte| *byte == 0), "a reserved byte is not 0");

    let mut granules = [false; PAGE_SIZE / 8];
    let own = if view.owns_prefix() { view.range(PREFIX_OFF) } else { (0, 0) };
    let records = (0..count).map(|position| {
        let slot = view.slot(position);
        (slot.offset(), slot.value_len() + slot.tail_len())
    });
    for (at, len) in records.chain([view.range(LOWER_OFF), view.range(UPPER_OFF), own]) {
        for granule in &mut granules[at / 8..(at + round8(len)) / 8] {
            require!(!*granule, "two pieces of its heap overlap, one at {at}");
            *granule = true;
        }
    }

    let (mut last, mut key) = (lower.to_vec(), Vec::new());
    for position in 0..count {
        key.clear();
        view.key_to(position, &mut key);
        let order_holds = if position == 0 { last <= key } else { last < key };
        require!(order_holds, "key {position} is not above its predecessor");
        require!(
            view.head(position) == head_of(&key[prefix.len()..]),
            "head {position} is not zero padded"
        );
        std::mem::swap(&mut last, &mut key);
    }
    require!(
        count == 0 || upper.is_none_or(|upper| &last[..] < upper),
        "its last key is not below its upper fence"
    );
    let distance = count / (HINT_COUNT + 1);
    for index in 0..if distance > 0 { HINT_COUNT } else { 0 } {
        require!(
            view.hint(index) == view.head((index + 1) * distance),
            "hint {index} is out of date"
        );
    }
    Ok(())
}
