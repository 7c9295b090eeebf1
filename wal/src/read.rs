//! Reading the log back.

pub(crate) mod ahead;
pub(crate) mod flush;
pub(crate) mod heads;
pub(crate) mod owner;
pub(crate) mod reader;
pub(crate) mod window;
