//! The storage back end of a run: `--io
//! uring|threads|buffered|memory|sim[:key=value,..]`.

use std::fmt;

use serde::{Serialize, Serializer};
use wattle::IoKind;
use wattle::io::DeviceModel;

/// Storage back ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoBackend {
    /// io_uring with direct I/O.
    Uring,
    /// Blocking reads and writes, for systems without io_uring.
    Threads,
    /// As uring, but pages go through the page cache of the system.
    Buffered,
    /// Pages only in memory; nothing is stored.
    Memory,
    /// As memory, with the service times of a device.
    Sim(DeviceModel),
}

impl IoBackend {
    /// Parses the value of `--io`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "uring" if parameters.is_empty() => Ok(Self::Uring),
            "threads" if parameters.is_empty() => Ok(Self::Threads),
            "buffered" if parameters.is_empty() => Ok(Self::Buffered),
            "memory" if parameters.is_empty() => Ok(Self::Memory),
            "sim" => DeviceModel::parse(parameters).map(Self::Sim).map_err(|e| e.to_string()),
            "uring" | "threads" | "buffered" | "memory" => {
                Err(format!("{name} takes no parameters"))
            }
            _ => Err("known are uring, threads, buffered, memory and \
                      sim:read_us=100,asymmetry=2.8,kr=80,kw=8"
                .to_owned()),
        }
    }

    /// Whether the store is only in memory.
    pub fn is_volatile(self) -> bool {
        IoKind::from(self).is_volatile()
    }
}

impl fmt::Display for IoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring => f.write_str("uring"),
            Self::Threads => f.write_str("threads"),
            Self::Buffered => f.write_str("buffered"),
            Self::Memory => f.write_str("memory"),
            Self::Sim(model) => write!(f, "sim:{model}"),
        }
    }
}

impl Serialize for IoBackend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<IoBackend> for IoKind {
    fn from(backend: IoBackend) -> Self {
        match backend {
            IoBackend::Uring => IoKind::Uring,
            IoBackend::Threads => IoKind::Threads,
            IoBackend::Buffered => IoKind::Buffered,
            IoBackend::Memory => IoKind::Memory,
            IoBackend::Sim(model) => IoKind::Sim(model),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_ends_are_chosen_by_name_and_unknown_ones_are_named() {
        for text in
            ["uring", "threads", "buffered", "memory", "sim:read_us=50,asymmetry=2,kr=4,kw=2"]
        {
            assert_eq!(IoBackend::parse(text).unwrap().to_string(), text);
        }
        assert!(IoBackend::parse("sim").unwrap().is_volatile());
        for (bad, part) in [("disk", "threads"), ("uring:kw=1", "parameters"), ("sim:kw=0", "kw")] {
            assert!(IoBackend::parse(bad).unwrap_err().contains(part), "{bad}");
        }
    }
}
