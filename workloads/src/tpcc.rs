//! TPC-C, the order-entry benchmark: "TPC Benchmark C, Standard Specification", revision 5.11
//! (2010). Clauses named in this module are its clauses.
//!
//! [`schema`] has the tables and their keys, [`rows`] the layout of rows, [`random`] the random
//! fields. [`load`] loads the population. [`request`] draws the input of a transaction;
//! [`new_order`], [`payment`], [`order_status`], [`delivery`] and [`stock_level`] are the five
//! transactions, and [`workload`] runs them. [`check`] checks the consistency conditions.

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
