//! The names of the formats.

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `page,R` or `page,W` per line, perhaps with the place of the page: the format of the lab and
    /// of the engine.
    Pages,
    /// ARC (Megiddo and Modha, FAST 2003): `start count ignored request` for reads.
    Arc,
    /// libCacheSim, binary: time (u32), object (u64), size (u32), next access (i64).
    OracleGeneral,
    /// libCacheSim, text: `time,object,size`, or columns with the names of a header.
    Csv,
    /// MSR Cambridge: `timestamp,host,disk,Read|Write,offset,size,response`.
    Msr,
    /// SPC: `asu,lba,size,R|W,time`, with sectors of 512 bytes.
    Spc,
    /// fio iolog, version 2 or 3.
    Fio,
    /// The text of blkparse.
    Blkparse,
    /// One page number per line.
    Plain,
}

/// All formats with their names, in the order in which they are tried.
pub const ALL: [(&str, Format); 9] = [
    ("page", Format::Pages),
    ("arc", Format::Arc),
    ("oracleGeneral", Format::OracleGeneral),
    ("fio", Format::Fio),
    ("msr", Format::Msr),
    ("spc", Format::Spc),
    ("csv", Format::Csv),
    ("blkparse", Format::Blkparse),
    ("plain", Format::Plain),
];

impl Format {
    /// The format with `name`; `None` stands for `auto`. The error lists the names.
    pub fn parse(name: &str) -> Result<Option<Self>, String> {
        if name == "auto" {
            return Ok(None);
        }
        let found = ALL.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, format)| Some(*format))
            .ok_or_else(|| format!("unknown trace format {name:?}: known are auto, {}", names()))
    }
}

/// The names of all formats.
pub(super) fn names() -> String {
    ALL.map(|(name, _)| name).join(", ")
}
