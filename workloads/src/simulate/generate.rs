//! Synthetic traces like those of the papers, from a seed.
//!
//! On the command line `gen:NAME`, or `gen:NAME:key=value,..` with `seed`, `accesses`, `pages` and
//! `writes` (share of accesses) to change the values of the paper. Each kind names its source. If a
//! paper gives only statistics, the model is the one of `generate_synthetic.py` of the shared
//! traces (Zipf by rank, scan, swaps of ranks), with other random numbers.

use super::trace::{Builder, Trace};
use crate::rng::Rng;

/// A kind of synthetic trace with its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name after `gen:`.
    pub name: &'static str,
    /// Its source.
    pub source: &'static str,
    pages: u64,
    accesses: u64,
    /// Share of accesses that write.
    writes: f64,
    model: Model,
}

#[derive(Clone, Copy, Debug)]
enum Model {
    /// Zipf by rank; a share of the reads is a scan; two ranks swap pages after some accesses.
    Zipf { alpha: f64, scan: f64, swap_after: u64 },
    /// A share of the accesses goes to a share of the pages.
    Skewed { accesses: f64, pages: f64 },
    /// Short update transactions on branches, tellers and accounts, and an append to a history.
    Banking,
}

const fn skewed(
    name: &'static str,
    source: &'static str,
    writes: f64,
    accesses: f64,
    pages: f64,
) -> Kind {
    let model = Model::Skewed { accesses, pages };
    Kind { name, source, pages: 100_000, accesses: 1_000_000, writes, model }
}

/// All kinds.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "ZipfRO",
        source: "WATT, Table 2",
        pages: 10_000,
        accesses: 1_000_000,
        writes: 0.0,
        model: Model::Zipf { alpha: 0.9, scan: 0.0, swap_after: 0 },
    },
    Kind {
        name: "dynZipfRO",
        source: "WATT, Table 2",
        pages: 20_000,
        accesses: 2_000_000,
        writes: 0.0,
        model: Model::Zipf { alpha: 0.9, scan: 0.1, swap_after: 12 },
    },
    Kind {
        name: "dynZipfRW",
        source: "WATT, Table 2",
        pages: 20_000,
        accesses: 1_200_000,
        writes: 1.0 / 6.0,
        model: Model::Zipf { alpha: 0.9, scan: 0.1, swap_after: 2 },
    },
    Kind { pages: 300_000, ..skewed("80-20", "FOR, section 5.1", 0.2, 0.8, 0.2) },
    skewed("MS", "ACE, Table II: mixed skewed", 0.5, 0.9, 0.1),
    skewed("WIS", "ACE, Table II: write-intensive skewed", 0.9, 0.9, 0.1),
    skewed("RIS", "ACE, Table II: read-intensive skewed", 0.1, 0.9, 0.1),
    skewed("MU", "ACE, Table II: mixed uniform", 0.5, 0.5, 0.5),
    Kind {
        name: "TPC-B",
        source: "FOR, Table 4; FBARC, section 4.2.2: banking transactions",
        pages: 50_000,
        accesses: 1_000_000,
        writes: 0.3,
        model: Model::Banking,
    },
];

/// The trace that `text` names: a kind, and changes of its numbers. The error lists the known
/// names.
pub fn parse(text: &str) -> Result<Trace, String> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let names = || KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(" ");
    let mut kind = *KINDS
        .iter()
        .find(|kind| kind.name == name)
        .ok_or_else(|| format!("unknown synthetic trace {name:?}: known are {}", names()))?;
    let mut seed = 1;
    for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let whole = |least: u64, most: u64| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| {
                format!("gen:{name}: {key} takes a number from {least} to {most}, not {value:?}")
            })
        };
        match key {
            "seed" => seed = whole(1, u64::MAX)?,
            "accesses" => kind.accesses = whole(1, 1 << 30)?,
            "pages" => kind.pages = whole(100, 1 << 28)?,
            "writes" => {
                let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                kind.writes = share.ok_or_else(|| {
                    format!("gen:{name}: writes takes a share from 0 to 1, not {value:?}")
                })?;
            }
            _ => {
                return Err(format!(
                    "gen:{name} has no parameter {key:?}: known are seed, accesses, pages, writes"
                ));
            }
        }
    }
    let mut trace = generate(&kind, seed);
    trace.rename(text.to_owned());
    Ok(trace)
}

/// A trace of `kind`.
pub fn generate(kind: &Kind, seed: u64) -> Trace {
    let (mut builder, mut rng) = (Builder::new(kind.name), Rng::new(seed, 0));
    match kind.model {
        Model::Zipf { alpha, scan, swap_after } => {
            zipf(kind, alpha, scan, swap_after, &mut rng, &mut builder);
        }
        Model::Skewed { accesses, pages } => {
            let hot = ((kind.pages as f64 * pages) as u64).max(1);
            // Hot pages lie between cold ones: a prime that does not divide their number.
            let spread = if kind.pages.is_multiple_of(7_919) { 7_907 } else { 7_919 };
            for _ in 0..kind.accesses {
                let page = match rng.unit() < accesses {
                    true => rng.below(hot),
                    false => hot + rng.below((kind.pages - hot).max(1)),
                };
                builder.push(page * spread % kind.pages, rng.unit() < kind.writes);
            }
        }
        Model::Banking => banking(kind, &mut rng, &mut builder),
    }
    builder.finish()
}

fn zipf(kind: &Kind, alpha: f64, scan: f64, swap_after: u64, rng: &mut Rng, builder: &mut Builder) {
    let mut sum = 0.0;
    let weights = (1..=kind.pages).map(|rank| (rank as f64).powf(-alpha));
    let sums: Vec<f64> = weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    let mut page_of: Vec<u64> = (0..kind.pages).collect();
    for last in (1..kind.pages as usize).rev() {
        page_of.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mut cursor = 0;
    for access in 1..=kind.accesses {
        let write = rng.unit() < kind.writes;
        if !write && rng.unit() < scan {
            builder.push(cursor, false);
            cursor = (cursor + 1) % kind.pages;
        } else {
            let drawn = rng.unit() * sum;
            builder.push(
                page_of[sums.partition_point(|below| *below < drawn).min(sums.len() - 1)],
                write,
            );
        }
        if swap_after > 0 && access % swap_after == 0 {
            page_of.swap(rng.below(kind.pages) as usize, rng.below(kind.pages) as usize);
        }
    }
}

/// A transaction reads the way to an account (root and inner page of its index), updates the
/// account, its teller and its branch, and appends to the history.
fn banking(kind: &Kind, rng: &mut Rng, builder: &mut Builder) {
    let branches = (kind.pages / 1000).max(1);
    let inner = (kind.pages / 100).max(1);
    let accounts = kind.pages - branches - inner - 1;
    let (first_inner, first_account) = (1 + branches, 1 + branches + inner);
    // Half of the accesses of a transaction write; those beyond the wanted share read instead.
    let update = (2.0 * kind.writes).min(1.0);
    let (mut done, mut history) = (0, 0u64);
    while done < kind.accesses {
        let account = (accounts as f64 * rng.unit().powi(3)) as u64;
        let branch = rng.below(branches);
        let mut transaction = vec![
            (0, false),
            (first_inner + account * inner / accounts, false),
            (first_account + account, false),
            (first_account + account, true),
            (1 + branch, true),
        ];
        // A page of the history has room for a hundred transactions.
        transaction.push((kind.pages + history / 100, true));
        history += 1;
        for (page, writes) in transaction {
            builder.push(page, writes && rng.unit() < update);
            done += 1;
        }
    }
}

/// `load`, then a scan of `pages` pages that no other access uses, then as many more accesses of
/// the load: the parasite of FBARC, section 5.4. Without `parasite` there is no scan. Tests compare
/// the hit rates of the last part.
pub fn with_parasite(load: &Trace, before: usize, pages: usize, parasite: Option<bool>) -> Trace {
    let mut builder = Builder::new(load.name());
    let mut accesses = load.accesses();
    for access in accesses.by_ref().take(before) {
        builder.push(load.id(access.page), access.write);
    }
    for page in 0..if parasite.is_some() { pages as u64 } else { 0 } {
        builder.push((1 << 40) + page, parasite == Some(true));
    }
    for access in accesses.take(pages) {
        builder.push(load.id(access.page), access.write);
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages with more than a hundredth of the accesses, and the share of the ten hottest.
    fn hottest(trace: &Trace) -> (usize, f64) {
        let mut counts = vec![0u64; trace.pages()];
        trace.accesses().for_each(|access| counts[access.page.0 as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let all = trace.len() as f64;
        let hot = counts.iter().filter(|count| **count as f64 > all / 100.0).count();
        (hot, counts[..10].iter().sum::<u64>() as f64 / all)
    }

    #[test]
    fn zipf_traces_have_the_statistics_of_the_paper() {
        for (name, hot, top, writes) in [
            ("ZipfRO", 7, 0.205, 0.0),
            ("dynZipfRO", 1, 0.045, 0.0),
            ("dynZipfRW", 0, 0.025, 1.0 / 6.0),
        ] {
            let trace = parse(name).unwrap();
            let (found, share) = hottest(&trace);
            assert!(found.abs_diff(hot) <= 1, "{name}: {found}");
            assert!((share - top).abs() < 0.01, "{name}: {share}");
            assert!((trace.writes() as f64 / trace.len() as f64 - writes).abs() < 0.01, "{name}");
        }
    }

    #[test]
    fn skewed_traces_have_their_shares() {
        for (name, writes, hot_accesses, hot_pages) in [
            ("80-20", 0.2, 0.8, 0.2),
            ("MS", 0.5, 0.9, 0.1),
            ("WIS", 0.9, 0.9, 0.1),
            ("RIS", 0.1, 0.9, 0.1),
        ] {
            let trace = parse(&format!("{name}:pages=1000,accesses=200000")).unwrap();
            let mut counts = vec![0u64; trace.pages()];
            trace.accesses().for_each(|access| counts[access.page.0 as usize] += 1);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let hot: u64 = counts[..(1000.0 * hot_pages) as usize].iter().sum();
            assert!((hot as f64 / 200_000.0 - hot_accesses).abs() < 0.02, "{name}");
            assert!((trace.writes() as f64 / 200_000.0 - writes).abs() < 0.01, "{name}");
        }
    }

    #[test]
    fn seeds_repeat_and_bad_parameters_are_refused() {
        let pages = |text: &str| -> Vec<_> { parse(text).unwrap().accesses().collect() };
        assert_eq!(parse("MS:pages=7919,accesses=99").unwrap().name(), "MS:pages=7919,accesses=99");
        assert!(parse("MS:pages=7919,accesses=9999").unwrap().pages() > 1000);
        let text = "TPC-B:accesses=5000,pages=2000";
        assert_eq!(pages(text), pages(text));
        assert_ne!(pages(text), pages("TPC-B:accesses=5000,pages=2000,seed=2"));
        for (text, part) in [
            ("x", "ZipfRO"),
            ("MS:x=1", "seed"),
            ("MS:pages=99", "from 100"),
            ("MS:writes=2", "0 to 1"),
        ] {
            assert!(parse(text).unwrap_err().contains(part), "{text}");
        }
    }
}
