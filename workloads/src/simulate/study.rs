//! Parameter studies of WATT, and the scan test of FBARC.

use super::generate::with_parasite;
use super::policy::Access;
use super::registry::Spec;
use super::replay::Device;
use super::table::Resistance;
use super::trace::Trace;

/// Accesses of a trace that the parasite test replays.
const LOAD: usize = 200_000;

/// The parameters that the figures of the WATT paper vary, one at a time: sample size (Figure 3),
/// length of the access log (4), epochs per replacement (5), dampening (6), length of the write log
/// (7) and write weight (8).
const STUDIES: &[(&str, &[&str])] = &[
    ("sample", &["1", "2", "4", "16", "32", "64"]),
    ("accesses", &["1", "2", "4", "16"]),
    ("epochs", &["1", "2", "8", "16", "64"]),
    ("dampening", &["0", "0.05", "0.25", "0.5", "1"]),
    ("writes", &["0", "1", "2", "8"]),
    ("write_weight", &["0", "1", "2", "8", "16"]),
];

/// The policies of the parameter studies.
pub fn studied() -> Vec<String> {
    let forms = |(name, values): &(&str, &'static [&str])| {
        let name = (*name).to_owned();
        values.iter().map(move |value| format!("watt:{name}={value}"))
    };
    STUDIES.iter().flat_map(forms).collect()
}

/// Measures the parasite test of FBARC (section 5.4) on the beginning of a trace; `None` if it is
/// too short.
pub fn resistance(
    trace: &Trace,
    cache_pages: usize,
    spec: &Spec,
    device: Device,
    seed: u64,
) -> Option<Resistance> {
    let before =
        trace.len().min(LOAD).checked_sub(cache_pages).filter(|before| *before > cache_pages)?;
    let rate = |parasite| {
        let load = with_parasite(trace, before, cache_pages, parasite);
        let mut policy = spec.build(&load, cache_pages, seed, device);
        let mut replay = spec.replay(&load, cache_pages, seed, device, &mut *policy);
        let accesses: Vec<Access> = load.accesses().collect();
        let (first, last) = accesses.split_at(load.len() - cache_pages);
        first.iter().for_each(|access| replay.access(*access));
        let misses = replay.counts.misses;
        last.iter().for_each(|access| replay.access(*access));
        100.0 * (1.0 - (replay.counts.misses - misses) as f64 / cache_pages as f64)
    };
    let without = rate(None);
    Some(Resistance {
        rate: without,
        lost: [Some(false), Some(true)].map(|parasite| without - rate(parasite)),
    })
}

/// Name, parameter and value of a policy with one parameter that is a number and not below 0.
pub fn one_parameter(policy: &str) -> Option<(&str, &str, f64)> {
    let (name, parameter) = policy.split_once(':')?;
    let (parameter, value) = parameter.split_once('=')?;
    value.parse().ok().filter(|value| *value >= 0.0).map(|value| (name, parameter, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_studies_are_forms_that_watt_takes() {
        assert!(studied().len() > 20);
        for text in studied() {
            assert!(Spec::parse(&text).is_ok() && one_parameter(&text).is_some(), "{text}");
        }
    }
}
