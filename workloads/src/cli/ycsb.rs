//! Flags of `wattle ycsb`.

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::common::{RunFlags, RunSettings};
use super::exit::Exit;
use super::units;
use crate::key::{KeyFormat, MAX_RECORDS, MIN_DECIMAL_BYTES};
use crate::ycsb::load_plan::LoadMethod;
use crate::ycsb::mix::{CoreWorkload, Kind, Mix};
use crate::ycsb::record::RecordShape;
use crate::ycsb::requests::Distribution;

const MAX_VALUE_BYTES: u64 = 1 << 30;
const DEFAULT_FIELDS: u64 = 10;
const DEFAULT_FIELD_BYTES: u64 = 100;
const DEFAULT_THETA: f64 = 0.99;

/// Flags of `ycsb`.
#[derive(Args, Clone, Debug)]
pub struct YcsbFlags {
    /// Core workload: a 50 % read 50 % update; b 95 % read 5 % update; c read only; d 95 % read
    /// latest 5 % insert; e 95 % scan 5 % insert; f 50 % read 50 % read-modify-write. Of the ACE
    /// paper: ms 50 % read 50 % update, wis 10 % read 90 % update, ris 90 % read 10 % update, each
    /// with 90 % of operations in 10 % of the key space; mu 50 % read 50 % update, uniform.
    #[arg(long, value_enum, default_value_t = CoreWorkload::A, hide_possible_values = true)]
    pub workload: CoreWorkload,

    /// Share of reads. If any of the five shares is given, they replace those of the workload, and
    /// those not given are 0. They need not add up to 1.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub read: Option<f64>,

    /// Share of updates of one field, or of the value if it is opaque.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub update: Option<f64>,

    /// Share of inserts of new records.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub insert: Option<f64>,

    /// Share of scans of 1 to 100 records.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub scan: Option<f64>,

    /// Share of reads followed by an update of the same record.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub rmw: Option<f64>,

    /// Records to load, 1 to 4294967296.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = units::count(1..=MAX_RECORDS))]
    pub records: u64,

    /// Fields of a record. Default: 10.
    #[arg(long, value_name = "N", value_parser = units::count(1..=65536))]
    pub fields: Option<u64>,

    /// Size of a field, in bytes or with KiB, MiB or GiB. Default: 100.
    #[arg(long, value_name = "SIZE", value_parser = units::some_size)]
    pub field_size: Option<u64>,

    /// Size of an opaque value instead of fields; an update replaces the whole value.
    #[arg(long, value_name = "SIZE", value_parser = units::some_size,
        conflicts_with_all = ["fields", "field_size"])]
    pub value_size: Option<u64>,

    /// Size of a key in bytes: 8 for a big-endian number, or 24 to 1024 for "user" and zero-padded
    /// digits.
    #[arg(long, value_name = "BYTES", default_value_t = MIN_DECIMAL_BYTES)]
    pub key_size: usize,

    /// How records are chosen; hotspot: 90 % of operations in 10 % of the key space. Default:
    /// latest for workload d, hotspot for ms, wis and ris, uniform for mu, else zipfian.
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,

    /// Skew of zipfian and latest, above 0. Default: 0.99.
    #[arg(long, value_name = "THETA", allow_negative_numbers = true)]
    pub theta: Option<f64>,

    /// How records are loaded: bulk, in the order of their keys, into full pages; insert, in random
    /// order by all threads. The pages of inserts are 57 % full, so that fewer records fit into the
    /// pool.
    #[arg(long, value_enum, default_value_t = LoadMethod::Bulk, hide_possible_values = true)]
    pub load: LoadMethod,

    /// Flags that all workloads share.
    #[command(flatten)]
    pub run: RunFlags,
}

/// The workload that the flags ask for.
#[derive(Clone, Debug)]
pub struct YcsbSpec {
    /// Shares of operations.
    pub mix: Mix,
    /// Records to load.
    pub records: u64,
    /// Encoding of keys.
    pub keys: KeyFormat,
    /// Sizes of values.
    pub shape: RecordShape,
    /// How records are loaded.
    pub load: LoadMethod,
    /// How records are chosen.
    pub distribution: Distribution,
    /// Skew of the choice.
    pub theta: f64,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl YcsbFlags {
    /// The workload that the flags ask for.
    ///
    /// # Errors
    /// [`Exit::Usage`] if they do not go together.
    pub fn spec(&self) -> Result<YcsbSpec, Exit> {
        self.run.check()?;
        let distribution = self.distribution.unwrap_or(self.workload.distribution());
        Ok(YcsbSpec {
            mix: self.mix()?,
            records: self.records,
            keys: KeyFormat::new(self.key_size)
                .map_err(|sentence| Exit::Usage(format!("--key-size: {sentence}")))?,
            shape: self.shape()?,
            load: self.load,
            distribution,
            theta: self.skew(distribution)?,
            seed: self.run.seed,
        })
    }

    fn mix(&self) -> Result<Mix, Exit> {
        let shares = [self.read, self.update, self.insert, self.scan, self.rmw];
        if shares.iter().all(Option::is_none) {
            return Ok(self.workload.mix());
        }
        Mix::new(shares.map(|share| share.unwrap_or(0.0))).map_err(Exit::Usage)
    }

    fn shape(&self) -> Result<RecordShape, Exit> {
        let fields = self.value_size.map_or(self.fields.unwrap_or(DEFAULT_FIELDS), |_| 1);
        let field_bytes = self.value_size.unwrap_or(self.field_size.unwrap_or(DEFAULT_FIELD_BYTES));
        let bytes = fields.saturating_mul(field_bytes);
        if bytes > MAX_VALUE_BYTES {
            return Err(Exit::Usage(format!(
                "a value of {bytes} bytes is too large; at most {MAX_VALUE_BYTES} bytes (1 GiB) \
                 are accepted"
            )));
        }
        Ok(RecordShape::new(fields as usize, field_bytes as usize))
    }

    fn skew(&self, distribution: Distribution) -> Result<f64, Exit> {
        match self.theta {
            Some(theta) if !distribution.has_theta() => Err(Exit::Usage(format!(
                "--theta {theta} has no meaning with uniform or hotspot requests; it goes with \
                 --distribution zipfian or latest"
            ))),
            Some(theta) if !(theta > 0.0 && theta.is_finite()) => Err(Exit::Usage(format!(
                "--theta {theta} is out of range; a number above 0 is accepted, as 0.99"
            ))),
            theta => Ok(theta.unwrap_or(DEFAULT_THETA)),
        }
    }

    /// The values of all flags.
    pub fn settings(&self, spec: &YcsbSpec) -> Map<String, Value> {
        let opaque = self.value_size.is_some();
        let skewed = spec.distribution.has_theta();
        let settings = YcsbSettings {
            workload: self.workload,
            read: spec.mix.share(Kind::Read),
            update: spec.mix.share(Kind::Update),
            insert: spec.mix.share(Kind::Insert),
            scan: spec.mix.share(Kind::Scan),
            rmw: spec.mix.share(Kind::ReadModifyWrite),
            records: spec.records,
            fields: (!opaque).then_some(spec.shape.fields()),
            field_size: (!opaque).then_some(spec.shape.field_bytes()),
            value_size: opaque.then_some(spec.shape.value_bytes()),
            key_size: spec.keys.bytes(),
            load: spec.load,
            distribution: spec.distribution,
            theta: skewed.then_some(spec.theta),
            run: self.run.settings(false),
        };
        match serde_json::to_value(settings) {
            Ok(Value::Object(settings)) => settings,
            other => unreachable!("settings are an object of plain values, not {other:?}"),
        }
    }
}

impl YcsbSpec {
    /// Bytes of the keys and values of `records` records.
    pub fn data_bytes(&self, records: u64) -> u64 {
        records * (self.keys.bytes() + self.shape.value_bytes()) as u64
    }
}

#[derive(Serialize)]
struct YcsbSettings {
    workload: CoreWorkload,
    read: f64,
    update: f64,
    insert: f64,
    scan: f64,
    rmw: f64,
    records: u64,
    fields: Option<usize>,
    field_size: Option<usize>,
    value_size: Option<usize>,
    key_size: usize,
    load: LoadMethod,
    distribution: Distribution,
    theta: Option<f64>,
    #[serde(flatten)]
    run: RunSettings,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, WorkloadCommand};
    use clap::Parser;

    fn flags(arguments: &str) -> YcsbFlags {
        let words = ["wattle", "ycsb"].into_iter().chain(arguments.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Some(Command::Workload(WorkloadCommand::Ycsb(flags))) => *flags,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_the_published_ones() {
        let flags = flags("--threads 3");
        let spec = flags.spec().unwrap();
        let settings = flags.settings(&spec);
        let expected = serde_json::json!({
            "workload": "a", "read": 0.5, "update": 0.5, "insert": 0.0, "scan": 0.0, "rmw": 0.0,
            "records": 1000000, "fields": 10, "field_size": 100, "value_size": null,
            "key_size": 24, "load": "bulk", "distribution": "zipfian", "theta": 0.99, "db": null,
            "pool": 268435456, "threads": 3, "tasks": 0, "pin": false,
            "duration": 10.0, "operations": null,
            "warmup": 2.0, "durability": "group", "reads": "newest", "log": "on",
            "log_limit": 1 << 30, "page_images": "plain", "policy": "watt", "swizzling": "on",
            "redistribution": "on", "warm_start": "on",
            "evictors": (crate::machine::cores() / 8).max(1), "io": "uring",
            "ace": "off", "write_concurrency": null, "write_order": "value", "seed": 1,
            "format": "text", "samples": null, "report": null, "record_trace": null,
        });
        assert_eq!(Value::Object(settings), expected);
    }

    #[test]
    fn shares_replace_the_mix_and_the_workload_keeps_its_distribution() {
        let spec = flags("--workload d --read 3 --scan 1").spec().unwrap();
        assert_eq!((spec.mix.share(Kind::Read), spec.mix.share(Kind::Scan)), (0.75, 0.25));
        assert_eq!(spec.mix.share(Kind::Insert), 0.0);
        assert_eq!(spec.distribution, Distribution::Latest);
    }

    #[test]
    fn an_opaque_value_is_one_field() {
        let flags = flags("--value-size 120 --key-size 8 --distribution uniform");
        let spec = flags.spec().unwrap();
        assert_eq!((spec.shape.fields(), spec.shape.value_bytes()), (1, 120));
        assert_eq!(spec.data_bytes(10), 1280);
        let settings = flags.settings(&spec);
        assert_eq!(settings["value_size"], 120);
        assert!(settings["fields"].is_null() && settings["theta"].is_null());
    }
}
