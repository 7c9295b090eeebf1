//! `wattle breakdown`: which component of the engine uses the processor, as exclusive self time
//! ("Bottlenecks Uncovered", section 2.3, Table 2.1).
//!
//! | file | part |
//! |---|---|
//! | `sampler` | interrupts running threads by `SIGPROF` and stores where each of them is |
//! | `threads` | processor time and waiting of each thread, from `/proc` |
//! | `events` | instructions and cycles of each thread, where the processor counts them |
//! | `symbols` | the functions, inlined ones included, of an address |
//! | `component` | the rows of the table, and the source files that belong to each |
//! | `profile` | one profile of the measured part of a run: samples become rows |
//! | `scopes` | the second method: how long threads are in each part, waits included |
//! | `report` | the results of several runs as text, JSON and HTML |
//!
//! **Exclusive.** A sample counts for one row: that of the innermost function, inlined or not,
//! whose source file is in the table of `component`. A helper, such as the copy of bytes or an
//! allocation, counts for the function that called it.
//!
//! **Shares of processor time.** The kernel looks at a thread at each of its clock ticks. A thread
//! that mostly sleeps may run between two ticks. So samples only give the shares within a thread;
//! the processor time of the thread, which the kernel counts in nanoseconds, gives their weight.
//!
//! **Waiting.** Samples see no thread that waits. A binary built with `--features scopes` also has
//! counters in the engine, see `scopes`; its times are longer by the cost of the clock.

pub mod component;
pub mod events;
pub mod profile;
pub mod report;
pub mod sampler;
pub mod scopes;
pub mod symbols;
pub mod threads;
