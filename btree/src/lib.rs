//! B+-trees.
