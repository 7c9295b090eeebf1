//! YCSB: the core workloads A to F of Cooper et al., "Benchmarking cloud serving systems with YCSB"
//! (SoCC 2010), as the core package defines them.
//!
//! [`mix`] has the shares of operations, [`requests`] chooses records, [`growth`] tracks which
//! records exist while workers insert, [`record`] writes and checks values, [`load`] and
//! [`bulk`] load, and [`workload`] runs the operations.

mod bulk;
pub mod growth;
pub mod load;
pub mod load_plan;
pub mod meta;
pub mod mix;
pub mod record;
pub mod requests;
pub mod workload;
