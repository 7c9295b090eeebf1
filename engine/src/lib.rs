//! Wattle.
