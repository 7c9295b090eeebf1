//! Workload drivers.
