//! Codes of the ops of log records; the disk format. [`crate::record`] has the table.

/// See [`crate::record`].
pub const IMAGE: u8 = 1;
/// See [`crate::record`].
pub const NEW_IMAGE: u8 = 2;
/// See [`crate::record`].
pub const INSERT: u8 = 3;
/// See [`crate::record`].
pub const REPLACE: u8 = 4;
/// See [`crate::record`].
pub const PATCH: u8 = 5;
/// See [`crate::record`].
pub const REMOVE: u8 = 6;
/// See [`crate::record`].
pub const TRUNCATE: u8 = 7;
/// See [`crate::record`].
pub const INSERT_CHILD: u8 = 8;
/// See [`crate::record`].
pub const REMOVE_CHILD: u8 = 9;
/// See [`crate::record`].
pub const FREE: u8 = 10;
/// See [`crate::record`].
pub const ADOPT: u8 = 11;
/// See [`crate::record`].
pub const COMPRESSED_IMAGE: u8 = 12;
/// See [`crate::record`].
pub const NEW_COMPRESSED_IMAGE: u8 = 13;
/// See [`crate::record`].
pub const KEEP_RIGHT: u8 = 14;
/// See [`crate::record`].
pub const TAKE: u8 = 15;
/// See [`crate::record`].
pub const SEPARATOR: u8 = 16;
