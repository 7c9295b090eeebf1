//! The results of several profiled runs, as text, JSON and HTML.

use serde::Serialize;

use super::component::Component;
use super::events::EventCounts;
use super::profile::{GroupTimes, Profile};
use crate::machine::Machine;
use crate::report::figures::{plural, rate, significant, table};
use crate::report::html::Page;
use crate::report::stacked_bars::StackedBars;

/// The result of a breakdown.
#[derive(Debug, Serialize)]
pub struct Breakdown {
    /// The subcommand.
    pub subcommand: &'static str,
    /// The command line.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// How the samples were taken.
    pub method: &'static str,
    /// Profiled runs.
    pub runs: Vec<ProfiledRun>,
    /// Mechanisms switched off, one at a time.
    pub ablation: Vec<Ablation>,
    /// Runs with and without sampling.
    pub overhead: Vec<Overhead>,
}

/// A run and its profile.
#[derive(Debug, Serialize)]
pub struct ProfiledRun {
    /// The workload.
    pub workload: &'static str,
    /// Worker threads.
    pub threads: usize,
    /// Length of the measured part, seconds.
    pub seconds: f64,
    /// Operations of the measured part.
    pub operations: u64,
    /// Operations per second.
    pub throughput: f64,
    /// Where the processor time went.
    pub profile: Profile,
}

impl ProfiledRun {
    /// Processor time for each operation, microseconds.
    fn cpu_us(&self, cpu_seconds: f64) -> f64 {
        if self.operations > 0 { cpu_seconds * 1e6 / self.operations as f64 } else { 0.0 }
    }
}

/// A mechanism that is switched off, on a workload, in pairs of runs with and without it.
#[derive(Debug, Serialize)]
pub struct Ablation {
    /// The mechanism.
    pub without: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// Worker threads.
    pub threads: usize,
    /// Processor time for each operation with the mechanism, microseconds, median of the pairs.
    pub cpu_us_with: Option<f64>,
    /// The same without.
    pub cpu_us_without: Option<f64>,
    /// Throughput without, divided by that with it, median of the pairs.
    pub throughput_ratio: Option<f64>,
    /// Share of the processor time in the rows of the mechanism, per cent: what it may save at
    /// most, where there is no switch.
    pub rows_percent: f64,
    /// Why there is no switch.
    pub why_not: Option<&'static str>,
}

/// Pairs of runs with and without sampling.
#[derive(Debug, Serialize)]
pub struct Overhead {
    /// The workload.
    pub workload: &'static str,
    /// Worker threads.
    pub threads: usize,
    /// Processor time for each operation, microseconds, with and without sampling.
    pub cpu_us: Vec<(f64, f64)>,
    /// Median of the additional processor time, per cent.
    pub median_percent: f64,
}

/// The middle of some numbers.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => 0.0,
        len if len % 2 == 1 => numbers[len / 2],
        len => (numbers[len / 2 - 1] + numbers[len / 2]) / 2.0,
    }
}

fn percent(value: f64) -> String {
    if value == 0.0 { "-".to_owned() } else { format!("{value:.2}") }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), significant)
}

impl Breakdown {
    /// As JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values") + "\n"
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.method);
        for run in &self.runs {
            text += &run.text();
        }
        if !self.ablation.is_empty() {
            text += "\nWithout a mechanism, by pairs of runs\n";
            text += &table("  ", &self.ablation_rows());
            for (without, why) in self.reasons() {
                text += &format!("  {without} has no switch: {why}\n");
            }
        }
        for overhead in &self.overhead {
            let each = |(with, without): &(f64, f64)| format!("{:+.2}", excess(*with, *without));
            text += &format!(
                "\nsampling {}, {}: {:+.2} % processor time per operation, median of {} ({})\n",
                overhead.workload,
                plural(overhead.threads as u64, "thread"),
                overhead.median_percent,
                plural(overhead.cpu_us.len() as u64, "pair"),
                overhead.cpu_us.iter().map(each).collect::<Vec<_>>().join(", ")
            );
        }
        text
    }

    /// As an HTML page that loads nothing.
    pub fn html(&self) -> String {
        let mut page = Page::new("wattle breakdown");
        let memory = crate::report::figures::bytes(self.machine.memory_bytes);
        page.facts(&[
            ("command", self.command.clone()),
            ("method", self.method.to_owned()),
            ("processor", format!("{}, {} cores", self.machine.cpu, self.machine.cores)),
            ("memory", memory),
            ("kernel", self.machine.kernel.clone()),
        ]);
        let parts: Vec<_> = Component::ALL.iter().map(|component| component.title()).collect();
        type Share = fn(&super::profile::Row) -> f64;
        let all: [(&str, Share); 3] = [
            ("Processor time of all threads", |row| row.percent),
            ("Processor time of the threads that run operations", |row| row.foreground_percent),
            ("Processor time of the other threads", |row| row.background_percent),
        ];
        for (heading, share) in all {
            let bar = |run: &ProfiledRun| {
                (run.title(), run.profile.rows.iter().map(share).collect::<Vec<_>>())
            };
            let bars = self.runs.iter().map(bar).collect();
            page.stacked_bars(heading, &StackedBars { parts: parts.clone(), bars });
        }
        let mut tabulate = |heading: &str, rows: Vec<Vec<String>>| {
            let columns: Vec<&str> = rows[0].iter().map(String::as_str).collect();
            page.table(heading, &columns, &rows[1..]);
        };
        for run in &self.runs {
            let heading = format!("{}: {} operations/s", run.title(), rate(run.throughput));
            tabulate(&heading, run.rows());
            tabulate("Threads", run.group_rows());
            if run.profile.no_events.is_none() {
                tabulate("Instructions and cycles in user mode", run.event_rows());
            }
            tabulate("Functions", run.hot_rows());
            if !run.profile.scopes.is_empty() {
                tabulate("Time of threads by part, waits included", run.scope_rows());
            }
        }
        if !self.ablation.is_empty() {
            tabulate("Without a mechanism, by pairs of runs", self.ablation_rows());
            let reasons = self.reasons().into_iter();
            let reasons: Vec<_> = reasons.map(|(what, why)| (what, why.to_owned())).collect();
            page.facts(&reasons);
        }
        page.finish()
    }

    /// Head and rows of the table of mechanisms.
    pub fn ablation_rows(&self) -> Vec<Vec<String>> {
        let head = ["without", "workload", "threads", "us/op with", "us/op without", "throughput"];
        let mut rows = vec![head.iter().chain(&["rows %"]).map(ToString::to_string).collect()];
        rows.extend(self.ablation.iter().map(|one| {
            vec![
                one.without.to_owned(),
                one.workload.to_owned(),
                one.threads.to_string(),
                number(one.cpu_us_with),
                number(one.cpu_us_without),
                one.throughput_ratio
                    .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3} x")),
                percent(one.rows_percent),
            ]
        }));
        rows
    }

    /// Why mechanisms have no switch, each once.
    pub fn reasons(&self) -> Vec<(&'static str, &'static str)> {
        let mut reasons: Vec<_> =
            self.ablation.iter().filter_map(|one| Some((one.without, one.why_not?))).collect();
        reasons.dedup();
        reasons.sort_unstable();
        reasons.dedup();
        reasons
    }
}

/// How much more `with` is than `without`, per cent.
pub fn excess(with: f64, without: f64) -> f64 {
    if without > 0.0 { (with / without - 1.0) * 100.0 } else { 0.0 }
}

impl ProfiledRun {
    /// Its heading.
    pub fn title(&self) -> String {
        format!("{}, {}", self.workload, plural(self.threads as u64, "thread"))
    }

    /// Head and rows of its table; components without time are left out.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let head = ["component", "all %", "foreground %", "background %", "us/op"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let shown = |row: &&super::profile::Row| {
            row.percent > 0.0 || row.component == Component::Unattributed
        };
        rows.extend(self.profile.rows.iter().filter(shown).map(|row| {
            vec![
                row.component.title().to_owned(),
                percent(row.percent),
                percent(row.foreground_percent),
                percent(row.background_percent),
                format!("{:.3}", self.cpu_us(row.cpu_seconds)),
            ]
        }));
        let sum = |value: fn(&super::profile::Row) -> f64| {
            format!("{:.2}", self.profile.rows.iter().map(value).sum::<f64>())
        };
        rows.push(vec![
            "sum".to_owned(),
            sum(|row| row.percent),
            sum(|row| row.foreground_percent),
            sum(|row| row.background_percent),
            format!(
                "{:.3}",
                self.cpu_us(self.profile.rows.iter().map(|row| row.cpu_seconds).sum())
            ),
        ]);
        rows
    }

    /// Head and rows of the table of functions.
    fn hot_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![["function", "component", "%"].map(str::to_owned).to_vec()];
        rows.extend(self.profile.hot.iter().map(|hot| {
            vec![hot.function.clone(), hot.component.title().to_owned(), percent(hot.percent)]
        }));
        rows
    }

    /// Head and rows of the table of threads.
    pub fn group_rows(&self) -> Vec<Vec<String>> {
        let head = ["threads", "number", "CPU s", "of it kernel", "queued s", "waiting s"];
        let group = |name: &str, times: &GroupTimes| {
            vec![
                name.to_owned(),
                times.threads.to_string(),
                format!("{:.3}", times.cpu_seconds),
                format!("{:.3}", times.kernel_seconds),
                format!("{:.3}", times.queued_seconds),
                format!("{:.3}", times.waiting_seconds),
            ]
        };
        vec![
            head.map(str::to_owned).to_vec(),
            group("foreground", &self.profile.foreground),
            group("background", &self.profile.background),
        ]
    }

    /// Head and rows of the table of instructions and cycles; only the head if there are none.
    pub fn event_rows(&self) -> Vec<Vec<String>> {
        let head = ["threads", "instructions/op", "cycles/op", "instructions/cycle"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let each = |count: f64| match self.operations {
            0 => "-".to_owned(),
            operations => significant(count / operations as f64),
        };
        let groups =
            [("foreground", &self.profile.foreground), ("background", &self.profile.background)];
        rows.extend(groups.iter().filter_map(|(name, group)| {
            let EventCounts { instructions, cycles } = group.events?;
            let ratio = (cycles > 0.0).then(|| instructions / cycles);
            Some(vec![(*name).to_owned(), each(instructions), each(cycles), number(ratio)])
        }));
        rows
    }

    /// Head and rows of the table of scoped counters.
    fn scope_rows(&self) -> Vec<Vec<String>> {
        let head = ["part", "foreground s", "%", "background s", "%", "entries", "us/entry"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.profile.scopes.iter().map(|row| {
            let seconds = row.foreground_seconds + row.background_seconds;
            let each = match row.entries {
                0 => "-".to_owned(),
                entries => format!("{:.3}", seconds * 1e6 / entries as f64),
            };
            vec![
                row.part.to_owned(),
                format!("{:.3}", row.foreground_seconds),
                percent(row.foreground_percent),
                format!("{:.3}", row.background_seconds),
                percent(row.background_percent),
                row.entries.to_string(),
                each,
            ]
        }));
        rows
    }

    fn text(&self) -> String {
        let profile = &self.profile;
        let mut text = format!(
            "\n{}: {} operations/s, {} in {:.2} s, {} each\n",
            self.title(),
            rate(self.throughput),
            plural(profile.samples as u64, "sample"),
            self.seconds,
            format_args!("{:.2} us", profile.sample_cost_us),
        );
        text += &table("  ", &self.rows());
        text += &table("  ", &self.group_rows());
        match &profile.no_events {
            None => text += &table("  ", &self.event_rows()),
            Some(why) => {
                text += &format!("  instructions and cycles are not counted here: {why}\n");
            }
        }
        if !profile.scopes.is_empty() {
            text += "  time of threads by part, waits included\n";
            text += &table("  ", &self.scope_rows());
        }
        text +=
            &format!("  sampling took {:.3} % of the processor time\n", profile.sampling_percent);
        if profile.lost_samples > 0 {
            let lost = plural(profile.lost_samples as u64, "sample");
            text += &format!("  {lost} did not fit into memory\n");
        }
        let missing =
            profile.hot.iter().filter(|hot| hot.component == Component::Unattributed).take(5);
        for hot in missing {
            text += &format!("  unattributed: {:.2} % in {}\n", hot.percent, hot.function);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_cycles_are_for_each_operation() {
        let counted = |instructions, cycles| GroupTimes {
            events: Some(EventCounts { instructions, cycles }),
            ..GroupTimes::default()
        };
        let profile = Profile {
            foreground: counted(90_000.0, 45_000.0),
            background: counted(0.0, 0.0),
            ..Profile::default()
        };
        let run = ProfiledRun {
            workload: "tpcc",
            threads: 1,
            seconds: 1.0,
            operations: 100,
            throughput: 100.0,
            profile,
        };
        assert_eq!(run.event_rows()[1], ["foreground", "900", "450", "2.00"]);
        assert_eq!(run.event_rows()[2], ["background", "0", "0", "-"]);
        assert!(run.text().contains("instructions/cycle"), "{}", run.text());
        let none = Profile { no_events: Some("no such device".into()), ..Profile::default() };
        let run = ProfiledRun { profile: none, ..run };
        assert!(run.text().contains("not counted here: no such device"), "{}", run.text());
    }

    #[test]
    fn a_median_is_the_middle_or_the_mean_of_both() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
