//! Merges: two neighbours become one node, or X neighbouring leaves become X - 1 (LeanStore's
//! X-merge, which raises the fill of leaves that are too full to merge in pairs).
//!
//! The left nodes survive: they keep their page ids, and the parent loses the separator and the
//! child right of the last survivor.

use super::{Full, Piece, build::NodeOutline, layout::*, view::NodeView};
use wattle_buffer::{PAGE_SIZE, PageImage};

/// Bytes that the merged node would use, by the headers alone. A merge of nodes whose sum is
/// clearly above the page size is not worth trying.
pub fn merged_size(left: NodeView<'_>, right: NodeView<'_>) -> usize {
    let fence = round8(right.lower().len());
    // The two fences between the nodes go; in an inner node they are replaced by one separator.
    let separator = if left.is_inner() { 8 + fence } else { 0 };
    left.used_bytes() + right.used_bytes() + separator - HEADS - 2 * fence
}

/// Builds the node with all entries of two neighbours and the page id of the left one. In inner
/// nodes `separator`, the one between them in the parent, becomes an entry.
pub fn merge_into(
    left: NodeView<'_>,
    right: NodeView<'_>,
    separator: &[u8],
    out: &mut PageImage,
) -> Result<(), Full> {
    assert!(left.level() == right.level() && left.is_inner() == right.is_inner());
    let inner = left.is_inner();
    let outline = NodeOutline { lower: left.lower(), upper: right.upper(), inner, pending: None };
    let pieces = [Piece::all(left), Piece::Key(separator), Piece::all(right)];
    let without = [pieces[0], pieces[2]];
    left.build(out, left.page_id(), outline, if inner { &pieces } else { &without })
}

/// Distributes the records of neighbouring leaves about equally over one leaf less. `outs[i]` gets
/// the page id of `nodes[i]`; the last node becomes unused. Gives the separators between the new
/// leaves, or `None` if the records do not fit.
pub fn redistribute(nodes: &[NodeView<'_>], outs: &mut [PageImage]) -> Option<Vec<Vec<u8>>> {
    assert!(nodes.len() >= 2 && outs.len() == nodes.len() - 1);
    assert!(nodes.iter().all(|node| !node.is_inner()));
    let records: Vec<(usize, usize)> = nodes
        .iter()
        .enumerate()
        .flat_map(|(node, view)| (0..view.count()).map(move |position| (node, position)))
        .collect();
    let equally = distribute(nodes, &records, outs, true);
    if equally.is_some() || outs.len() == 1 {
        return equally;
    }
    // If the longer fences of the equal distribution do not fit, filling the left leaves completely
    // may succeed.
    distribute(nodes, &records, outs, false)
}

fn distribute(
    nodes: &[NodeView<'_>],
    records: &[(usize, usize)],
    outs: &mut [PageImage],
    equally: bool,
) -> Option<Vec<Vec<u8>>> {
    let len = |(node, position): (usize, usize)| nodes[node].slot(position).heap_len() + LEAF_ENTRY;
    let mut remaining: usize = records.iter().map(|record| len(*record)).sum();
    let mut separators: Vec<Vec<u8>> = Vec::new();
    let mut from = 0;
    let out_count = outs.len();
    for (index, out) in outs.iter_mut().enumerate() {
        let lower = separators.last().cloned().unwrap_or_else(|| nodes[0].lower().to_vec());
        let build = |to: usize, upper: Option<&[u8]>, out: &mut PageImage| {
            let outline = NodeOutline { lower: &lower, upper, inner: false, pending: None };
            let pieces = pieces(nodes, &records[from..to]);
            nodes[0].build(out, nodes[index].page_id(), outline, &pieces)
        };
        if index + 1 == out_count {
            build(records.len(), nodes[nodes.len() - 1].upper(), out).ok()?;
            break;
        }
        let target = if equally { remaining / (out_count - index) } else { PAGE_SIZE };
        let (mut to, mut used) = (from, 0);
        while to < records.len() && used + len(records[to]) / 2 < target {
            used += len(records[to]);
            to += 1;
        }
        // Every leaf needs a record on both sides of its upper fence.
        to = to.max(from + 1).min(records.len().saturating_sub(1));
        let mut try_to = |to: usize| -> Option<Vec<u8>> {
            let separator = separator(nodes, records[to - 1], records[to]);
            build(to, Some(&separator), out).ok().map(|()| separator)
        };
        if to <= from {
            return None;
        }
        let mut separator = try_to(to);
        if separator.is_none() {
            // Find the most records that fit by bisection. Fewer records hardly ever take more
            // room, so little is missed.
            let (mut fits, mut full) = (from, to);
            while full - fits > 1 {
                let middle = fits.midpoint(full);
                match try_to(middle) {
                    Some(_) => fits = middle,
                    None => full = middle,
                }
            }
            if fits == from {
                return None;
            }
            to = fits;
            separator = try_to(to);
        }
        separators.push(separator?);
        remaining -= records[from..to].iter().map(|record| len(*record)).sum::<usize>();
        from = to;
    }
    Some(separators)
}

fn separator(nodes: &[NodeView<'_>], left: (usize, usize), right: (usize, usize)) -> Vec<u8> {
    let (mut low, mut high) = (Vec::new(), Vec::new());
    nodes[left.0].key_to(left.1, &mut low);
    nodes[right.0].key_to(right.1, &mut high);
    high.truncate(common_prefix(&low, &high) + 1);
    high
}

/// The ranges of entries that consecutive records come from.
fn pieces<'a>(nodes: &[NodeView<'a>], records: &[(usize, usize)]) -> Vec<Piece<'a>> {
    records
        .chunk_by(|a, b| a.0 == b.0)
        .map(|run| Piece::Range {
            view: nodes[run[0].0],
            from: run[0].1,
            to: run[run.len() - 1].1 + 1,
        })
        .collect()
}
