//! `wattle verify` and `wattle stat`: looking over a store.

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::common::{Format, StoreFlags};
use super::exit::{Exit, failed};
use crate::driver::backend::{Backend, StoreStat, VerifyReport};
use crate::driver::store::Store;
use crate::machine;
use crate::report::figures::{bytes, count, table};

/// Flags of `verify`.
#[derive(Args, Debug)]
pub struct VerifyFlags {
    /// The store.
    #[command(flatten)]
    pub store: StoreFlags,

    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Flags of `stat`.
#[derive(Args, Debug)]
pub struct StatFlags {
    /// The store.
    #[command(flatten)]
    pub store: StoreFlags,

    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Checks a store.
pub fn verify<B: Backend>(flags: &VerifyFlags) -> Result<(), Exit> {
    flags.store.must_exist()?;
    let store = B::open(&flags.store.path, &flags.store.options())
        .map_err(|error| Exit::Usage(error.to_string()))?;
    let style = ProgressStyle::with_template("checking {bar:40} {human_pos} of {human_len} pages")
        .expect("the template is a constant that indicatif accepts");
    let bar = ProgressBar::new(0).with_style(style);
    let report = B::verify(&store, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.map_err(failed("checking the store"))?;
    match flags.format {
        Format::Text => print!("{}", verify_text(&report)),
        Format::Json => println!("{}", json(&Verdict { passed: passed(&report), report: &report })),
    }
    let closed = store.close().map_err(failed("closing the store"));
    if passed(&report) { closed } else { Err(Exit::Reported) }
}

/// Shows the sizes of a store.
pub fn stat<B: Backend>(flags: &StatFlags) -> Result<(), Exit> {
    flags.store.must_exist()?;
    let path = &flags.store.path;
    let store =
        B::open(path, &flags.store.options()).map_err(|error| Exit::Usage(error.to_string()))?;
    let stat = B::stat(&store).map_err(failed("measuring the store"))?;
    let file_bytes = machine::disk_bytes(path).map_err(failed("sizing the store"))?;
    match flags.format {
        Format::Text => print!("{}", stat_text(&stat, file_bytes)),
        Format::Json => println!("{}", json(&Sizes { file_bytes, stat: &stat })),
    }
    store.close().map_err(failed("closing the store"))
}

#[derive(Serialize)]
struct Verdict<'a> {
    passed: bool,
    #[serde(flatten)]
    report: &'a VerifyReport,
}

#[derive(Serialize)]
struct Sizes<'a> {
    file_bytes: u64,
    #[serde(flatten)]
    stat: &'a StoreStat,
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("the value consists of plain values")
}

fn passed(report: &VerifyReport) -> bool {
    report.problems.is_empty()
}

fn verify_text(report: &VerifyReport) -> String {
    let seen = format!(
        "{} pages, {} trees and {} records checked",
        count(report.pages),
        count(report.trees),
        count(report.records)
    );
    if passed(report) {
        return format!("{seen}: nothing is wrong\n");
    }
    let problems: String = report.problems.iter().map(|problem| format!("  {problem}\n")).collect();
    format!("{seen}: {} things are wrong\n{problems}", count(report.problems.len() as u64))
}

fn stat_text(stat: &StoreStat, file_bytes: u64) -> String {
    let mut text = format!(
        "on disk  {}\npages    {} of {}, {} of them free\n\n",
        bytes(file_bytes),
        count(stat.pages),
        bytes(stat.page_bytes),
        count(stat.free_pages)
    );
    let header =
        ["tree", "records", "depth", "inner pages", "leaf pages", "value pages", "leaf fill"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for tree in &stat.trees {
        rows.push(vec![
            tree.name.clone(),
            count(tree.records),
            count(tree.depth),
            count(tree.inner_pages),
            count(tree.leaf_pages),
            count(tree.value_pages),
            format!("{:.0} %", tree.leaf_fill * 100.0),
        ]);
    }
    text.push_str(&table("", &rows));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::backend::TreeStat;

    #[test]
    fn a_clean_store_takes_one_line_and_a_damaged_one_a_list() {
        let clean = VerifyReport { pages: 1200, trees: 2, records: 9, problems: Vec::new() };
        assert_eq!(
            verify_text(&clean),
            "1,200 pages, 2 trees and 9 records checked: nothing is wrong\n"
        );
        let damaged = VerifyReport { problems: vec!["page 7 is torn".to_owned()], ..clean };
        assert!(verify_text(&damaged).ends_with(": 1 things are wrong\n  page 7 is torn\n"));
        let verdict = json(&Verdict { passed: passed(&damaged), report: &damaged });
        let verdict: serde_json::Value = serde_json::from_str(&verdict).unwrap();
        assert_eq!(verdict["passed"], false);
        assert_eq!(verdict["problems"][0], "page 7 is torn");
    }

    #[test]
    fn sizes_are_shown_per_tree() {
        let trees = vec![TreeStat {
            name: "orders".to_owned(),
            records: 12_345,
            depth: 3,
            leaf_fill: 0.705,
            ..TreeStat::default()
        }];
        let stat = StoreStat { page_bytes: 4096, pages: 100, free_pages: 3, trees };
        let text = stat_text(&stat, 1 << 20);
        assert!(text.starts_with("on disk  1 MiB\npages    100 of 4 KiB, 3 of them free\n"));
        assert!(text.contains("orders   12,345      3") && text.contains("70 %"), "{text}");
    }
}
