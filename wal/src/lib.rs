//! Write-ahead log: empty so far, the log comes next. Its seams exist in `wattle-buffer`:
//! `LogBarrier` (no page image goes to storage before its changes are durable), and in each frame
//! header the change number, the number of the first change since the page was clean, and a hint
//! of the newest version.
#![forbid(unsafe_code)]
