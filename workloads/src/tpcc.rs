//! TPC-C, the order-entry benchmark: "TPC Benchmark C, Standard Specification", revision 5.11 (2010).
//! Clauses named in this module are its clauses.
//!
//! [`schema`] says which tables there are and how keys sort, [`rows`] what is in a row, [`random`] how
//! fields are drawn. [`load`] populates. [`request`] draws the input of a transaction, [`new_order`],
//! [`payment`], [`order_status`], [`delivery`] and [`stock_level`] are the five transactions, and
//! [`workload`] runs them. [`check`] proves that the result is consistent.

pub mod check;
pub mod conditions;
pub mod delivery;
pub mod hints;
pub mod load;
pub mod meta;
pub mod mix;
pub mod new_order;
pub mod order_status;
pub mod outcome;
pub mod payment;
pub mod populate;
pub mod random;
pub mod read_ahead;
pub mod request;
pub mod rows;
pub mod schema;
pub mod stock_level;
pub mod workload;
