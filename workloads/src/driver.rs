//! Runs workloads: threads and tasks, phases, samples, latencies. It knows neither YCSB nor the
//! engine; a workload is a [`measure::Workload`], and a store is a [`store::Store`].

pub mod alarm;
pub mod control;
pub mod crew;
pub mod description;
pub mod failure;
pub mod measure;
pub mod recorder;
pub mod store;
