//! Patches: the old bytes of a value that a change altered, as a sequence of pieces.

/// Length of the header of a piece: its offset in the value, and its length.
const PIECE_HEAD: usize = 4;

/// The pieces of a patch: offset in the value, and bytes of each.
pub(super) fn pieces(mut patch: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = patch.split_first_chunk::<PIECE_HEAD>()?;
        let [at, len] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_le_bytes);
        let (bytes, rest) = rest.split_at_checked(len.into())?;
        patch = rest;
        Some((at.into(), bytes))
    })
}

/// The header of a piece.
pub(super) fn piece_head(at: usize, len: usize) -> [u8; PIECE_HEAD] {
    let short =
        |number| u16::try_from(number).expect("values with versions are shorter than 64 KiB");
    let [[a, b], [c, d]] = [at, len].map(|number| short(number).to_le_bytes());
    [a, b, c, d]
}

/// Applies a patch. False: it does not fit the value.
pub(super) fn apply(patch: &[u8], value: &mut [u8]) -> bool {
    pieces(patch).all(|(at, bytes)| match value.get_mut(at..at + bytes.len()) {
        Some(place) => {
            place.copy_from_slice(bytes);
            true
        }
        None => false,
    })
}

/// Combines two patches: the bytes of the older one, and those bytes of the newer one that it
/// lacks.
#[cold]
pub(super) fn join_patches(newer: &[u8], older: &[u8]) -> Vec<u8> {
    let mut all: Vec<Option<u8>> = Vec::new();
    for (at, bytes) in pieces(newer).chain(pieces(older)) {
        all.resize(all.len().max(at + bytes.len()), None);
        all[at..at + bytes.len()].iter_mut().zip(bytes).for_each(|(to, byte)| *to = Some(*byte));
    }
    let (mut joined, mut at) = (Vec::new(), 0);
    for run in all.chunk_by(|a, b| a.is_some() == b.is_some()) {
        if run[0].is_some() {
            joined.extend(piece_head(at, run.len()));
            joined.extend(run.iter().flatten());
        }
        at += run.len();
    }
    joined
}
