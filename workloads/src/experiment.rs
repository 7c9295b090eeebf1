//! The experiments of the papers, live: `wattle experiment NAME`.
//!
//! An *experiment* is one file in [`all`]: its name, the figure of the paper, and a [`Design`] for
//! each [`Scale`]. A *cell* is one configuration, that is one command line of this binary. Every
//! cell runs several times; the repetitions alternate (A B A B), so that a slow minute of the
//! machine hits all cells alike. Each run is a process of its own, with its own peak memory.
//!
//! | file | part |
//! |---|---|
//! | `design` | cells, stores, measures, figures, and the paper's numbers |
//! | `all` | the list of experiments; one file for each |
//! | `plan` | which cells run, what they need, how long they take |
//! | `journal` | one line for each finished run, to go on after an interrupt |
//! | `child` | one run of this binary |
//! | `conduct` | loads the stores and runs the cells |
//! | `results` | medians, spread, ratios, and the paper's ratios beside them |
//! | `page` | the results as text, CSV and HTML |

pub mod all;
pub mod child;
pub mod conduct;
pub mod design;
pub mod journal;
pub mod page;
pub mod plan;
pub mod results;
