//! TATP, the telecommunication application transaction processing benchmark (Neuvonen, Wolski, Manner and
//! Raatikka, "Telecom Application Transaction Processing Benchmark", 2009): the home location register of a
//! mobile network, four tables and seven short transactions.
//!
//! Subscribers are drawn non-uniformly (section "Key value generation"): with the parameter A of the
//! specification for the number P of subscribers, `(rand(0, A) | rand(1, P)) % P + 1`.
//!
//! Some transactions look for what need not be there, or insert what may be there: they end
//! *unsuccessfully*, which is no failure. Such transactions are complete operations, with latencies of
//! their own: each kind that may end so is reported twice.
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
//! Those of the last two are what the specification gives; they depend on how insertions and deletions
//! balance.

pub mod benchmark;
mod check;
pub mod population;
pub mod random;
pub mod rows;
mod table;
mod transactions;
