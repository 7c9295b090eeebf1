//! Runs workloads: threads and tasks, phases, samples, latencies. It knows no workload and no
//! engine: a workload is a [`measure::Workload`], an engine a [`backend::Backend`] that opens a
//! [`store::Store`].

pub mod alarm;
pub mod backend;
pub mod control;
pub mod counters;
pub mod crew;
pub mod description;
pub mod failure;
pub mod load;
pub mod measure;
pub mod options;
pub mod recorder;
pub mod store;
