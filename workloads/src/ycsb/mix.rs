//! The operations of workloads: the core workloads A to F, and the synthetic workloads of Papon and
//! Athanassoulis, "ACEing the Bufferpool Management Paradigm for Modern Storage Devices" (ICDE
//! 2023), Table II.

use clap::ValueEnum;
use serde::Serialize;

use super::requests::Distribution;
use crate::rng::Rng;

/// The core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CoreWorkload {
    /// Update heavy: half reads, half updates.
    A,
    /// Read mostly: 95 % reads, 5 % updates.
    B,
    /// Read only.
    C,
    /// Read latest: 95 % reads of recently inserted records, 5 % inserts.
    D,
    /// Short ranges: 95 % scans of 1 to 100 records, 5 % inserts.
    E,
    /// Read-modify-write: half reads, half reads followed by an update of the same record.
    F,
    /// ACE, mixed skewed: half reads, half updates, locality 90/10.
    Ms,
    /// ACE, write-intensive skewed: 10 % reads, 90 % updates, locality 90/10.
    Wis,
    /// ACE, read-intensive skewed: 90 % reads, 10 % updates, locality 90/10.
    Ris,
    /// ACE, mixed uniform: half reads, half updates, locality 50/50.
    Mu,
}

impl CoreWorkload {
    /// Its operations.
    pub fn mix(self) -> Mix {
        let shares = match self {
            CoreWorkload::A => [0.5, 0.5, 0.0, 0.0, 0.0],
            CoreWorkload::B => [0.95, 0.05, 0.0, 0.0, 0.0],
            CoreWorkload::C => [1.0, 0.0, 0.0, 0.0, 0.0],
            CoreWorkload::D => [0.95, 0.0, 0.05, 0.0, 0.0],
            CoreWorkload::E => [0.0, 0.0, 0.05, 0.95, 0.0],
            CoreWorkload::F => [0.5, 0.0, 0.0, 0.0, 0.5],
            CoreWorkload::Ms | CoreWorkload::Mu => [0.5, 0.5, 0.0, 0.0, 0.0],
            CoreWorkload::Wis => [0.1, 0.9, 0.0, 0.0, 0.0],
            CoreWorkload::Ris => [0.9, 0.1, 0.0, 0.0, 0.0],
        };
        Mix { shares }
    }

    /// The distribution of its requests.
    pub fn distribution(self) -> Distribution {
        match self {
            CoreWorkload::D => Distribution::Latest,
            CoreWorkload::Ms | CoreWorkload::Wis | CoreWorkload::Ris => Distribution::Hotspot,
            CoreWorkload::Mu => Distribution::Uniform,
            _ => Distribution::Zipfian,
        }
    }
}

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads all fields of a record.
    Read,
    /// Writes one field of a record.
    Update,
    /// Adds a record.
    Insert,
    /// Reads 1 to 100 records in key order.
    Scan,
    /// Reads a record, then updates it.
    ReadModifyWrite,
}

impl Kind {
    /// All kinds, in the order in which a mix lists their shares.
    pub const ALL: [Kind; 5] =
        [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

    /// Its name in reports and flags.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "rmw",
        }
    }
}

/// The share of each kind of operation; they add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    shares: [f64; 5],
}

impl Mix {
    /// The mix with the proportions `weights`, in the order of [`Kind::ALL`]; they need not add up
    /// to 1, but at least one must be above 0.
    pub fn new(weights: [f64; 5]) -> Result<Self, String> {
        for (weight, kind) in weights.iter().zip(Kind::ALL) {
            if !weight.is_finite() || *weight < 0.0 {
                return Err(format!(
                    "the proportion --{} must be a number that is not negative, not {weight}",
                    kind.name()
                ));
            }
        }
        let sum: f64 = weights.iter().sum();
        if sum <= 0.0 || !sum.is_finite() {
            return Err("the proportions --read, --update, --insert, --scan and --rmw add up to \
                        0; at least one must be above 0"
                .to_owned());
        }
        Ok(Self { shares: weights.map(|weight| weight / sum) })
    }

    /// The share of `kind`, from 0 to 1.
    pub fn share(&self, kind: Kind) -> f64 {
        self.shares[kind as usize]
    }

    /// The kinds that occur.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| self.share(*kind) > 0.0)
    }

    /// A chooser of operations. It returns positions in [`Mix::kinds`], too.
    pub fn chooser(&self) -> KindChooser {
        let mut sum = 0.0;
        let mut steps = Vec::new();
        for kind in self.kinds() {
            sum += self.share(kind);
            steps.push((sum, kind));
        }
        // The last step ends at 1, whatever the rounding of the sum.
        if let Some(last) = steps.last_mut() {
            last.0 = 1.0;
        }
        KindChooser { steps }
    }
}

/// Draws kinds of operations with the shares of a mix.
#[derive(Clone, Debug)]
pub struct KindChooser {
    /// Upper ends of the kinds' parts of the unit interval.
    steps: Vec<(f64, Kind)>,
}

impl KindChooser {
    /// The next operation and its position among the kinds of the mix.
    #[inline]
    pub fn next(&self, rng: &mut Rng) -> (usize, Kind) {
        let unit = if self.steps.len() == 1 { 0.0 } else { rng.unit() };
        let position = self.steps.iter().position(|(end, _)| unit < *end);
        let position = position.expect("the last step ends at 1, above every draw");
        (position, self.steps[position].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_workloads_have_their_published_proportions() {
        let draws = 200_000;
        for (workload, expected) in [
            (CoreWorkload::A, vec![("read", 0.5), ("update", 0.5)]),
            (CoreWorkload::B, vec![("read", 0.95), ("update", 0.05)]),
            (CoreWorkload::C, vec![("read", 1.0)]),
            (CoreWorkload::D, vec![("read", 0.95), ("insert", 0.05)]),
            (CoreWorkload::E, vec![("insert", 0.05), ("scan", 0.95)]),
            (CoreWorkload::F, vec![("read", 0.5), ("rmw", 0.5)]),
            (CoreWorkload::Ms, vec![("read", 0.5), ("update", 0.5)]),
            (CoreWorkload::Wis, vec![("read", 0.1), ("update", 0.9)]),
            (CoreWorkload::Ris, vec![("read", 0.9), ("update", 0.1)]),
            (CoreWorkload::Mu, vec![("read", 0.5), ("update", 0.5)]),
        ] {
            let (chooser, mut rng) = (workload.mix().chooser(), Rng::new(1, 2));
            let mut counts = vec![0u32; expected.len()];
            for _ in 0..draws {
                let (position, kind) = chooser.next(&mut rng);
                assert_eq!(kind.name(), expected[position].0, "{workload:?}");
                counts[position] += 1;
            }
            for (count, (name, share)) in counts.iter().zip(&expected) {
                let measured = f64::from(*count) / f64::from(draws);
                assert!((measured - share).abs() < 0.005, "{workload:?} {name}: {measured}");
            }
        }
        assert_eq!(CoreWorkload::D.distribution(), Distribution::Latest);
        assert_eq!(CoreWorkload::E.distribution(), Distribution::Zipfian);
        assert_eq!(CoreWorkload::Mu.distribution(), Distribution::Uniform);
        for skewed in [CoreWorkload::Ms, CoreWorkload::Wis, CoreWorkload::Ris] {
            assert_eq!(skewed.distribution(), Distribution::Hotspot);
        }
    }

    #[test]
    fn proportions_of_any_scale_are_accepted_and_nonsense_is_not() {
        let mix = Mix::new([90.0, 10.0, 0.0, 0.0, 0.0]).unwrap();
        assert_eq!((mix.share(Kind::Read), mix.share(Kind::Update)), (0.9, 0.1));
        assert!(Mix::new([0.0; 5]).unwrap_err().contains("add up to 0"));
        assert!(Mix::new([1.0, -0.5, 0.0, 0.0, 0.0]).unwrap_err().contains("--update"));
        assert!(Mix::new([f64::NAN, 0.0, 0.0, 0.0, 0.0]).unwrap_err().contains("--read"));
    }
}
