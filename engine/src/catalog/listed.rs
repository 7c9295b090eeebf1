//! The list of large values to be cleared away: the records of the catalog that begin with `g`.

use super::record::{EMPTY_KEY, GARBAGE, visit};
use wattle_btree::{self as btree, Context, LargeValue};
use wattle_buffer::{Error, Result, TreeId};

/// A large value on the list: the tree of its chunks, and the key of a record that may refer to it.
pub(super) type Listed = (TreeId, LargeValue, Option<Vec<u8>>);

/// Length of a large value on the list, and the key of the record that may refer to it, of the
/// bytes of its entry.
pub(super) fn listed_value(entry: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    let (len, owner) = entry.split_first_chunk()?;
    let len = u64::from_le_bytes(*len);
    let has_owner = len & EMPTY_KEY != 0 || !owner.is_empty();
    Some((len & !EMPTY_KEY, has_owner.then_some(owner)))
}

/// The list, or the part of it for one tree of chunks.
pub(super) fn listed(
    cx: &Context,
    catalog: &btree::Tree,
    chunks: Option<TreeId>,
) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    let root = catalog.root_page();
    let mut prefix = vec![GARBAGE];
    prefix.extend(chunks.iter().flat_map(|chunks| chunks.0.to_be_bytes()));
    visit(cx, catalog, &prefix, &mut |key, value| {
        let wrong = || Error::corruption(root, "an entry of the catalog has a wrong size");
        let chunks = key.get(1..5).ok_or_else(wrong)?.try_into().map_err(|_| wrong())?;
        let id = key.get(5..13).ok_or_else(wrong)?.try_into().map_err(|_| wrong())?;
        let (len, owner) = listed_value(value).ok_or_else(wrong)?;
        let large = LargeValue { id: u64::from_be_bytes(id), len };
        listed.push((TreeId(u32::from_be_bytes(chunks)), large, owner.map(<[u8]>::to_vec)));
        Ok(())
    })?;
    Ok(listed)
}
