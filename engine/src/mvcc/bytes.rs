//! The bytes of a version: key, then the value before the change or a patch. Few bytes are stored
//! inline.

/// Most bytes of a version that need no buffer: a short key of a record that was absent before, or
/// a patch of a few bytes. As many as fit into a chain of one cache line.
pub(super) const INLINE: usize = 29;
/// The state of the record before the change.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum BeforeKind {
    #[default]
    Absent,
    Plain,
    Special,
    /// A plain value that differs from the one after the change in a few bytes.
    Patch,
}

/// The key, then the value before the change, or the pieces of a patch.
#[derive(Debug)]
pub(super) enum Bytes {
    Few { kind: BeforeKind, len: u8, bytes: [u8; INLINE] },
    Many { kind: BeforeKind, buffer: Vec<u8> },
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Few { kind: BeforeKind::Absent, len: 0, bytes: [0; INLINE] }
    }
}

impl Bytes {
    #[inline]
    pub fn kind(&self) -> BeforeKind {
        match self {
            Bytes::Few { kind, .. } | Bytes::Many { kind, .. } => *kind,
        }
    }

    /// Memory outside of the version.
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
