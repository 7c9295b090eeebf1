//! TATP, the telecommunication application transaction processing benchmark (Neuvonen, Wolski,
//! Manner and Raatikka, "Telecom Application Transaction Processing Benchmark", 2009): the home
//! location register of a mobile network, four tables and seven short transactions.
//!
//! Subscribers are drawn non-uniformly (section "Key value generation"): with the parameter A of
//! the specification for the number P of subscribers, `(rand(0, A) | rand(1, P)) % P + 1`.
//!
//! Some transactions read rows that may be absent, or insert rows that may exist. They then end
//! *unsuccessfully*, which is no failure. They count as operations; each kind that may end so has
//! two entries in a report.
//!
//! | transaction | share | successful |
//! |---|---|---|
//! | GET_SUBSCRIBER_DATA | 35 % | all |
//! | GET_NEW_DESTINATION | 10 % | 23.9 % (14.8 % by the rules of the population) |
//! | GET_ACCESS_DATA | 35 % | 62.5 % |
//! | UPDATE_SUBSCRIBER_DATA | 2 % | 62.5 % |
//! | UPDATE_LOCATION | 14 % | all |
//! | INSERT_CALL_FORWARDING | 2 % | 31.25 % |
//! | DELETE_CALL_FORWARDING | 2 % | 31.25 % |
//!
//! The shares of the last two are those of the specification; they depend on the balance of
//! insertions and deletions.

pub mod benchmark;
mod check;
pub mod population;
pub mod random;
pub mod rows;
mod table;
mod transactions;
