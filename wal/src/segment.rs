//! The segments of a log: the list of them, those that are made ahead, and how a segment is made.
//!
//! Making a segment means writing all of it, unless it is made of a file that this process wrote as
//! an earlier segment and retired (see [`crate::block`]). Commits must not wait for that, so a
//! helper thread makes the next segment ahead ([`maker`]). If the device has no room for another
//! segment the log is *full* ([`crate::room`]): new changes wait, and are refused after the room
//! timeout. At that time the current segment still has space, which rollbacks need.
//!
//! That space can be too small for the buffers, and a checkpoint, which makes room, begins with a
//! flush. So some segments are made beyond the next one and kept in [`reserve`]; the flusher takes
//! them only while the log is full.
//!
//! A segment can also fail for other reasons than room: the process has no file descriptor left, or
//! another file has its name. Then the log is not full as long as the reserve is whole and the
//! flusher does not need the segment; the helper tries again meanwhile, and changes go on in the
//! current segment.
//!
//! A segment can fail after its file was made, because the directory could not be synced. The log
//! must not use this file, because a power cut might lose it; so the helper removes the file before
//! it tries again.
//!
//! Where the device has little room, segments are smaller ([`prepare`]). Each head says how long
//! its segment is.
//!
//! Invariants: the segments that are ready follow the current one without gaps; unless the log is
//! full, the flusher leaves the reserve; the [`table`] has exactly the segments whose head is
//! durable, ascending; the log never removes the last of them.

pub(crate) mod files;
pub(crate) mod maker;
pub(crate) mod prepare;
pub(crate) mod reserve;
pub(crate) mod segments;
pub(crate) mod table;
