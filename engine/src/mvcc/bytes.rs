//! The bytes of a version: key, and value before the change or patch; in the version itself if they are few.

/// Bytes of a version that need no buffer: a short key of a record that was absent before, or of which a few
/// bytes were changed. As many as fit a chain of one cache line.
pub(super) const INLINE: usize = 29;
/// What the record was before the change.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Absent,
    Plain,
    Special,
    /// A plain value which was the one after the change but for some bytes.
    Patch,
}

/// The key, then the value before the change or the pieces of a patch.
#[derive(Debug)]
pub(super) enum Bytes {
    Few { kind: Kind, len: u8, bytes: [u8; INLINE] },
    Many { kind: Kind, buffer: Vec<u8> },
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Few { kind: Kind::Absent, len: 0, bytes: [0; INLINE] }
    }
}

impl Bytes {
    #[inline]
    pub fn kind(&self) -> Kind {
        match self {
            Bytes::Few { kind, .. } | Bytes::Many { kind, .. } => *kind,
        }
    }

    /// Memory besides the version itself.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Bytes::Few { .. } => 0,
            Bytes::Many { buffer, .. } => buffer.capacity(),
        }
    }

    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Few { len, bytes, .. } => &bytes[..usize::from(*len)],
            Bytes::Many { buffer, .. } => buffer,
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Bytes::Few { len, bytes, .. } => &mut bytes[..usize::from(*len)],
            Bytes::Many { buffer, .. } => buffer,
        }
    }
}
