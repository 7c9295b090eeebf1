//! TPC-B (TPC Benchmark B, Standard Specification, revision 2.0): branches, tellers, accounts and a
//! history, and one transaction, which moves money into an account (clause 1.2).
//!
//! Sizes are those of clause 4.2: for each branch (`--scale`) 10 tellers and 100,000 accounts, rows of
//! 100 bytes, history rows of 50, keys included, but for the key of the history, which the specification
//! does not have. All balances are 0 after the load and the history is empty, as with pgbench.
//!
//! The profile is clause 1.2 in its order: account, history, teller, branch, with the new balance of the
//! account as the answer. The teller is drawn from all, the branch is that of the teller, the account is
//! one of this branch in 85 of 100 transactions and else one of another (clause 5.3.5), unless there is
//! only one. The amount is between -999,999 and 999,999 (clause 5.3.6). There is no terminal and no
//! think time.

pub mod benchmark;
mod check;
pub mod input;
pub mod rows;
