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
    /// The first `pages * x` pages get the share `x^(ln accesses / ln pages)` of the accesses: also
    /// within the hot pages, 80 % of accesses go to 20 % of the pages.
    SelfSimilar { accesses: f64, pages: f64 },
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
    Kind {
        name: "80-20",
        source: "FOR, section 5.1 and Table 4; distribution of 2Q, VLDB 1994, which it cites",
        pages: 300_000,
        accesses: 1_000_000,
        writes: 0.2,
        model: Model::SelfSimilar { accesses: 0.8, pages: 0.2 },
    },
    skewed("two-level-80-20", "80 % of accesses to 20 % of pages, uniform in both", 0.2, 0.8, 0.2),
    skewed("MS", "ACE, Table II: mixed skewed", 0.5, 0.9, 0.1),
    skewed("WIS", "ACE, Table II: write-intensive skewed", 0.9, 0.9, 0.1),
    skewed("RIS", "ACE, Table II: read-intensive skewed", 0.1, 0.9, 0.1),
    skewed("MU", "ACE, Table II: mixed uniform", 0.5, 0.5, 0.5),
    Kind {
        name: "TPC-B",
        source: "FOR, Table 4 (3.3 % writes); FBARC, section 4.2.2 (uniform in each table)",
        pages: 50_000,
        accesses: 2_000_000,
        writes: 0.033,
        model: Model::Banking,
    },
];

/// The trace that `text` names: a kind, and changes of its numbers. The error lists the known
/// names.
pub fn parse(text: &str) -> Result<Trace, String> {
    parse_seeded(text, 1)
}

/// The same, from `seed` if `text` gives none.
pub fn parse_seeded(text: &str, mut seed: u64) -> Result<Trace, String> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let names = || KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(" ");
    let mut kind = *KINDS
        .iter()
        .find(|kind| kind.name == name)
        .ok_or_else(|| format!("unknown synthetic trace {name:?}: known are {}", names()))?;
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
                let (least, most) = match kind.model {
                    Model::Banking => (0.001, MOST_BANKING_WRITES),
                    _ => (0.0, 1.0),
                };
                let share = value.parse().ok().filter(|share| (least..=most).contains(share));
                kind.writes = share.ok_or_else(|| {
                    format!(
                        "gen:{name}: writes takes a share from {least} to {most}, not {value:?}"
                    )
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
        Model::SelfSimilar { accesses, pages } => {
            let exponent = pages.ln() / accesses.ln();
            let spread = spread(kind);
            for _ in 0..kind.accesses {
                let rank = (kind.pages as f64 * rng.unit().powf(exponent)) as u64;
                builder.push(rank * spread % kind.pages, rng.unit() < kind.writes);
            }
        }
        Model::Skewed { accesses, pages } => {
            let hot = ((kind.pages as f64 * pages) as u64).max(1);
            let spread = spread(kind);
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

/// Hot pages lie between cold ones: a prime that does not divide their number.
fn spread(kind: &Kind) -> u64 {
    if kind.pages.is_multiple_of(7_919) { 7_907 } else { 7_919 }
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

/// Most writes of banking transactions: 4 of 10 accesses.
const MOST_BANKING_WRITES: f64 = 0.4;

/// Transactions of pgbench: each reads its way through the index of accounts (root, inner page,
/// leaf), updates an account, a teller and a branch, and appends to the history, four writes in
/// all. Everything is drawn uniformly. The rest of the accesses, up to the share of writes, are
/// visits of the small tables and of their indexes, as PostgreSQL makes them for old versions.
fn banking(kind: &Kind, rng: &mut Rng, builder: &mut Builder) {
    /// Rows of pgbench in pages of 8 KiB: an account page and its leaf have 61 and 366 entries, an
    /// inner page 285; a branch has 100,000 accounts, ten tellers and two pages for all of its
    /// versions.
    const LEAVES: u64 = 6;
    const INNER: u64 = 285;
    const BRANCH: u64 = 1640;
    const ROWS_OF_HISTORY: u64 = 120;
    let branches = (kind.pages / BRANCH).max(1);
    let tellers = 2 * branches;
    let small = branches + tellers;
    let accounts = (kind.pages - small) * LEAVES / (LEAVES + 1);
    let leaves = accounts.div_ceil(LEAVES);
    let (leaf, inner) = (small + accounts, small + accounts + leaves);
    let root = inner + leaves.div_ceil(INNER);
    let wanted = (4.0 / kind.writes).max(10.0);
    let (mut done, mut history, mut owed) = (0, 0u64, 0.0);
    while done < kind.accesses {
        let account = rng.below(accounts);
        let (branch, teller) = (rng.below(branches), branches + rng.below(tellers));
        let mut transaction = vec![
            (root, false),
            (inner + account / LEAVES / INNER, false),
            (leaf + account / LEAVES, false),
            (small + account, false),
            (small + account, true),
            (teller, false),
            (teller, true),
            (branch, false),
            (branch, true),
        ];
        owed += wanted - 10.0;
        while owed >= 1.0 {
            owed -= 1.0;
            transaction.push((rng.below(small), false));
        }
        transaction.push((root + 1 + history / ROWS_OF_HISTORY, true));
        history += 1;
        for (page, write) in transaction {
            builder.push(page, write);
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
        builder.push_at(load.id(access.page), access.write, load.place(access.page));
    }
    for page in 0..if parasite.is_some() { pages as u64 } else { 0 } {
        builder.push((1 << 40) + page, parasite == Some(true));
    }
    for access in accesses.take(pages) {
        builder.push_at(load.id(access.page), access.write, load.place(access.page));
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
            ("two-level-80-20", 0.2, 0.8, 0.2),
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

    /// FOR, Table 4, and FBARC, Figure 5: the shares of writes, and plateaus of uniform accesses.
    #[test]
    fn banking_transactions_write_3_3_percent_and_draw_accounts_uniformly() {
        let trace = parse("TPC-B").unwrap();
        let share = trace.writes() as f64 / trace.len() as f64;
        assert!((share - 0.033).abs() < 0.001, "{share}");
        // The most written account page of 40,000 has a few of 16,500 updates.
        let mut writes = std::collections::HashMap::new();
        for access in trace.accesses().filter(|access| access.write) {
            *writes.entry(trace.id(access.page)).or_insert(0u64) += 1;
        }
        let accounts = writes.iter().filter(|(page, _)| (100..40_000).contains(*page));
        assert!(accounts.clone().count() > 10_000 && accounts.clone().all(|(_, n)| *n < 10));
        let writes = parse("TPC-B:writes=0.4,accesses=10000").unwrap().writes();
        assert_eq!(writes, 4000);
    }

    /// 2Q, section 4: within the hot fifth, again four of five accesses go to a fifth.
    #[test]
    fn the_80_20_trace_is_skewed_at_every_scale() {
        let trace = parse("80-20:pages=25000").unwrap();
        let mut counts = vec![0u64; trace.pages()];
        trace.accesses().for_each(|access| counts[access.page.0 as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |pages: usize| counts[..pages].iter().sum::<u64>() as f64 / 1e6;
        for (pages, expected) in [(5000, 0.8), (1000, 0.64), (200, 0.512)] {
            assert!((share(pages) - expected).abs() < 0.01, "{pages}: {}", share(pages));
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
        let seeded: Vec<_> = parse_seeded(text, 2).unwrap().accesses().collect();
        assert_eq!(seeded, pages("TPC-B:accesses=5000,pages=2000,seed=2"));
        for (text, part) in [
            ("x", "ZipfRO"),
            ("MS:x=1", "seed"),
            ("MS:pages=99", "from 100"),
            ("MS:writes=2", "0 to 1"),
            ("TPC-B:writes=0.5", "0.001 to 0.4"),
        ] {
            assert!(parse(text).unwrap_err().contains(part), "{text}");
        }
    }
}
