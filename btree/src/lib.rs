//! B+-trees.
#![forbid(unsafe_code)]

pub mod node;
