#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod adapter;
pub mod bench;
pub mod breakdown;
pub mod cli;
pub mod driver;
pub mod experiment;
pub mod histogram;
pub mod instructions;
pub mod key;
pub mod machine;
pub mod report;
pub mod rng;
pub mod simulate;
pub mod tatp;
pub mod tpcb;
pub mod tpcc;
pub mod ycsb;
pub mod zipf;
