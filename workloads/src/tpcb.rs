//! TPC-B (TPC Benchmark B, Standard Specification, revision 2.0): branches, tellers, accounts and a
//! history, and one transaction, which moves money into an account (clause 1.2).
//!
//! Sizes are those of clause 4.2: each branch (`--scale`) has 10 tellers and 100,000 accounts. Rows
//! have 100 bytes and history rows 50, with their keys, except that the specification has no key of
//! the history. After the load all balances are 0 and the history is empty, as with pgbench.
//!
//! The profile is clause 1.2 in its order: account, history, teller, branch, with the new balance
//! of the account as the answer. The teller is drawn from all tellers, and the branch is the one of
//! the teller. The account belongs to this branch in 85 of 100 transactions, otherwise to another
//! one if there is one (clause 5.3.5). The amount is between -999,999 and 999,999 (clause 5.3.6).
//! There is no terminal and no think time.

pub mod benchmark;
mod check;
pub mod input;
pub mod rows;
