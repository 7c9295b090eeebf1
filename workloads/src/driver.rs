//! Runs workloads: threads and tasks, phases, samples, latencies. It knows neither YCSB nor the
//! engine; a workload is a [`measure::Workload`], and a store is a [`store::Store`].

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
