//! YCSB: the core workloads A to F of Cooper et al., "Benchmarking cloud serving systems with YCSB"
//! (SoCC 2010), as the core package defines them.
//!
//! [`mix`] says which operations, [`requests`] on which records, [`growth`] which records there are
//! while some are inserted, [`record`] what is in them and whether it is right, [`load`] puts them
//! there and [`workload`] runs.

pub mod growth;
pub mod load;
pub mod meta;
pub mod mix;
pub mod record;
pub mod requests;
pub mod workload;
