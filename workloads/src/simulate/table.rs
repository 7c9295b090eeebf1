//! Results of replays as CSV, JSON and text.
//!
//! The first columns of the CSV are part of the interface of the program; new ones are added at the
//! end.

use serde_json::{Map, Value, json};

use super::bound::Bound;
use super::repeat::Spread;
use super::replay::{Counts, Device};
use crate::report::figures;

/// Hit rate of the last accesses in percent without a parasite, and the points lost to a parasite
/// that reads and to one that writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resistance {
    /// Hit rate in percent.
    pub rate: f64,
    /// Points lost.
    pub lost: [f64; 2],
}

/// The result of one replay.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the trace.
    pub trace: String,
    /// Number of different pages of the trace.
    pub pages: usize,
    /// Number of frames.
    pub cache_pages: usize,
    /// The policy as it was given.
    pub policy: String,
    /// The counts of the replay.
    pub counts: Counts,
    /// Misses relative to the policy that was asked for.
    pub relative: Option<f64>,
    /// Time complexity of an access.
    pub complexity: String,
    /// Bounds of the least cost of the trace with this cache, if they were asked for.
    pub bound: Option<Bound>,
    /// Its resistance to a scan, if that was asked for and the trace is long enough.
    pub resistance: Option<Resistance>,
    /// Whether it only belongs to a parameter study.
    pub studied: bool,
    /// How far the means of several replays may be off, if there were several.
    pub spread: Option<Spread>,
}

impl Row {
    /// Whether both are of one trace and cache.
    pub fn is_of_same_task(&self, other: &Row) -> bool {
        self.trace == other.trace && self.cache_pages == other.cache_pages
    }
}

const HEADER: &str = "trace,cache_pages,policy,accesses,misses,reads,writes,writes_at_end,cost,\
                      device_seconds,cpu_ns_per_access,hit_ratio,metadata_bytes_per_page";

/// Fills in the misses of all rows relative to those of `policy` with the same trace and cache.
pub fn normalise(rows: &mut [Row], policy: &str) {
    let base: Vec<(String, usize, u64)> = rows
        .iter()
        .filter(|row| row.policy == policy)
        .map(|row| (row.trace.clone(), row.cache_pages, row.counts.misses))
        .collect();
    for row in rows {
        let same = base.iter().find(|base| base.0 == row.trace && base.1 == row.cache_pages);
        row.relative = same.map(|base| row.counts.misses as f64 / base.2 as f64);
    }
}

/// All rows as CSV, with a header; the last columns are present if results were normalised, bounds
/// were asked for, or scans were tested.
pub fn csv(rows: &[Row], device: &Device, normalised: bool) -> String {
    let bounded = rows.iter().any(|row| row.bound.is_some());
    let scanned = rows.iter().any(|row| row.resistance.is_some());
    let mut text = HEADER.to_owned();
    text += if normalised { ",relative_misses" } else { "" };
    text += if bounded { ",least_cost,plan_cost" } else { "" };
    text += if scanned { ",scan_hit_percent,lost_to_reads,lost_to_writes" } else { "" };
    text += ",cost_per_access,write_runs,combined_seconds";
    let repeated = rows.iter().any(|row| row.spread.is_some());
    text += if repeated { ",replays,misses_95,writes_95,cost_95,cpu_ns_95" } else { "" };
    text.push('\n');
    for row in rows {
        let counts = &row.counts;
        text += &format!(
            "{},{},{},{},{},{},{},{},{:.1},{:.6},{:.1},{:.6},{}",
            figures::csv_field(&row.trace),
            row.cache_pages,
            figures::csv_field(&row.policy),
            counts.accesses,
            counts.misses,
            counts.reads,
            counts.all_writes(),
            counts.writes_at_end,
            counts.cost(device),
            counts.device_seconds(device),
            counts.cpu_ns_per_access(),
            counts.hit_ratio(),
            (counts.bytes_per_page * 10.0).round() / 10.0,
        );
        if normalised {
            text += &row.relative.map_or(",".to_owned(), |relative| format!(",{relative:.4}"));
        }
        if bounded {
            text += &row.bound.map_or(",,".to_owned(), |bound| {
                let plan = bound.feasible.map_or(String::new(), |plan| format!("{plan:.1}"));
                format!(",{:.1},{plan}", bound.lower)
            });
        }
        if scanned {
            text += &row.resistance.map_or(",,,".to_owned(), |Resistance { rate, lost }| {
                format!(",{rate:.2},{:.2},{:.2}", lost[0], lost[1])
            });
        }
        text += &format!(
            ",{:.4},{},{:.6}",
            counts.cost(device) / counts.accesses as f64,
            counts.write_runs,
            counts.combined_seconds(device)
        );
        if repeated {
            text += &row.spread.map_or(",,,,,".to_owned(), |spread| {
                let Spread { replays, misses, writes, cost, cpu_ns_per_access, .. } = spread;
                format!(",{replays},{misses:.1},{writes:.1},{cost:.1},{cpu_ns_per_access:.1}")
            });
        }
        text.push('\n');
    }
    text
}

/// All rows as one JSON object with the settings.
pub fn json(
    rows: &[Row],
    device: &Device,
    settings: Map<String, Value>,
    interrupted: bool,
) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let counts = &row.counts;
            let mut object = json!({
                "trace": row.trace,
                "distinct_pages": row.pages,
                "cache_pages": row.cache_pages,
                "policy": row.policy,
                "accesses": counts.accesses,
                "misses": counts.misses,
                "hit_ratio": counts.hit_ratio(),
                "reads": counts.reads,
                "writes": counts.all_writes(),
                "writes_at_end": counts.writes_at_end,
                "cost": counts.cost(device),
                "cost_per_access": counts.cost(device) / counts.accesses as f64,
                "write_runs": counts.write_runs,
                "combined_seconds": counts.combined_seconds(device),
                "device_seconds": counts.device_seconds(device),
                "cpu_ns_per_access": counts.cpu_ns_per_access(),
                "metadata_bytes_per_page": counts.bytes_per_page,
                "complexity": row.complexity,
            });
            if let Some(relative) = row.relative {
                object["relative_misses"] = json!(relative);
            }
            if let Some(bound) = row.bound {
                object["least_cost"] = json!(bound.lower);
                object["plan_cost"] = json!(bound.feasible);
            }
            if let Some(spread) = row.spread {
                object["replays"] = json!(spread.replays);
                object["misses_95"] = json!(spread.misses);
                object["writes_95"] = json!(spread.writes);
                object["cost_95"] = json!(spread.cost);
                object["cpu_ns_95"] = json!(spread.cpu_ns_per_access);
            }
            if let Some(Resistance { rate, lost }) = row.resistance {
                object["scan_hit_percent"] = json!(rate);
                object["lost_to_reads"] = json!(lost[0]);
                object["lost_to_writes"] = json!(lost[1]);
            }
            object
        })
        .collect();
    json!({
        "subcommand": "simulate",
        "settings": settings,
        "interrupted": interrupted,
        "rows": rows,
    })
}

/// All rows as text: one table for each trace and cache.
pub fn text(rows: &[Row], device: &Device, normalised: Option<&str>) -> String {
    let mut text = String::new();
    for group in rows.chunk_by(Row::is_of_same_task) {
        let first = &group[0];
        text += &format!(
            "{}: {}, {}, cache of {} ({:.1} %)\n",
            first.trace,
            figures::plural(first.counts.accesses, "access"),
            figures::plural(first.pages as u64, "page"),
            figures::plural(first.cache_pages as u64, "page"),
            100.0 * first.cache_pages as f64 / first.pages as f64,
        );
        let header = [
            "policy",
            "misses",
            "hit ratio",
            "reads",
            "writes",
            "at end",
            "cost s",
            "us/access",
            "device s",
            "ns/access",
            "B/page",
        ];
        let mut header = header.map(str::to_owned).to_vec();
        header.extend(normalised.map(|policy| format!("misses / {policy}")));
        let scanned = group.iter().any(|row| row.resistance.is_some());
        if scanned {
            header.extend(["hit % at end", "- reads", "- writes"].map(str::to_owned));
        }
        let mut table = vec![header];
        table.extend(group.iter().map(|row| cells(row, device, normalised.is_some(), scanned)));
        text += &figures::table("  ", &table);
        if scanned {
            text += &format!(
                "  hit % at end: of the last {} before which a scan as long comes or does not; - \
                 reads, - writes: points lost to one that reads or writes\n",
                figures::plural(first.cache_pages as u64, "access")
            );
        }
        for row in group.iter().filter(|row| looks_at_all(&row.complexity)) {
            text += &format!("  {}: {}\n", row.policy, row.complexity);
        }
        if let Some(bound) = first.bound {
            let seconds = |cost: f64| figures::significant(cost / 1e6);
            text += &format!("  no policy costs less than {} s", seconds(bound.lower));
            text += &bound.feasible.map_or("\n".to_owned(), |plan| {
                format!("; one that knows the future costs {} s\n", seconds(plan))
            });
        }
        if let Some(spread) = first.spread {
            text += &format!(
                "  means of {} replays with different seeds; after +- half of the 95 % confidence \
                 interval\n",
                spread.replays
            );
        }
        text.push('\n');
    }
    text
}

/// Whether a policy of this complexity scans all cached pages, or ACE gains little with it.
fn looks_at_all(complexity: &str) -> bool {
    complexity.starts_with("O(cache") || complexity.contains("ACE writes few")
}

fn cells(row: &Row, device: &Device, normalised: bool, scanned: bool) -> Vec<String> {
    let counts = &row.counts;
    let within = |mean: String, half: &dyn Fn(&Spread) -> String| match &row.spread {
        Some(spread) => format!("{mean} +- {}", half(spread)),
        None => mean,
    };
    let mut cells = vec![
        row.policy.clone(),
        within(figures::count(counts.misses), &|spread| format!("{:.0}", spread.misses)),
        format!("{:.4}", counts.hit_ratio()),
        figures::count(counts.reads),
        within(figures::count(counts.all_writes()), &|spread| format!("{:.0}", spread.writes)),
        figures::count(counts.writes_at_end),
        figures::significant(counts.cost(device) / 1e6),
        format!("{:.2}", counts.cost(device) / counts.accesses as f64),
        figures::significant(counts.device_seconds(device)),
        format!("{:.0}", counts.cpu_ns_per_access()),
        format!("{:.1}", counts.bytes_per_page),
    ];
    if normalised {
        cells.push(row.relative.map_or("-".to_owned(), |relative| format!("{relative:.4}")));
    }
    if scanned {
        let points =
            row.resistance.map(|Resistance { rate, lost: [reads, writes] }| [rate, reads, writes]);
        cells.extend(match points {
            Some(points) => points.map(|points| format!("{points:.2}")),
            None => [(); 3].map(|()| "-".to_owned()),
        });
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rows() -> Vec<Row> {
        let counts = Counts {
            accesses: 100,
            misses: 40,
            reads: 40,
            writes: 5,
            writes_at_end: 3,
            read_requests: 40,
            write_requests: 8,
            write_runs: 5,
            cpu: Duration::from_nanos(2500),
            bytes_per_page: 24.0,
        };
        let row = |policy: &str, misses| Row {
            trace: "t".to_owned(),
            pages: 50,
            cache_pages: 10,
            policy: policy.to_owned(),
            counts: Counts { misses, ..counts },
            relative: None,
            complexity: "O(cache) per miss, as published".to_owned(),
            bound: Some(Bound { lower: 900.0, feasible: None }),
            resistance: (misses == 30).then_some(Resistance { rate: 60.0, lost: [0.0, 12.5] }),
            studied: false,
            spread: None,
        };
        let mut rows = vec![row("lru", 40), row("watt:epochs=4,sample=8", 30)];
        normalise(&mut rows, "lru");
        rows
    }

    #[test]
    fn the_first_columns_of_the_csv_are_stable() {
        let text = csv(&rows(), &Device::default(), false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with(
            "trace,cache_pages,policy,accesses,misses,reads,writes,writes_at_end,cost,\
             device_seconds,cpu_ns_per_access"
        ));
        // 40 reads of 100 us and 8 writes of 800 us.
        assert_eq!(
            lines[1],
            "t,10,lru,100,40,40,8,3,10400.0,0.010400,25.0,0.600000,24,900.0,,,,,104.0000,5,0.010403"
        );
        assert!(lines[2].starts_with("t,10,\"watt:epochs=4,sample=8\",100,30,"));
        let normalised = csv(&rows(), &Device::default(), true);
        assert!(
            normalised
                .lines()
                .nth(2)
                .unwrap()
                .ends_with(",0.7500,900.0,,60.00,0.00,12.50,104.0000,5,0.010403")
        );
        let spread = Spread {
            replays: 3,
            misses: 1.5,
            reads: 1.5,
            writes: 0.0,
            cost: 9.0,
            cpu_ns_per_access: 2.0,
        };
        let mut repeated = rows();
        repeated[1].spread = Some(spread);
        let text = csv(&repeated, &Device::default(), false);
        assert!(text.lines().next().unwrap().ends_with(",misses_95,writes_95,cost_95,cpu_ns_95"));
        assert!(text.lines().nth(1).unwrap().ends_with(",104.0000,5,0.010403,,,,,"), "{text}");
        assert!(text.lines().nth(2).unwrap().ends_with(",3,1.5,0.0,9.0,2.0"), "{text}");
        assert_eq!(figures::csv_field("a\n\"b\""), "\"a\n\"\"b\"\"\"");
    }

    #[test]
    fn text_and_json_have_every_row() {
        let device = Device::default();
        let text = text(&rows(), &device, Some("lru"));
        assert!(text.contains("100 accesses, 50 pages, cache of 10 pages (20.0 %)"), "{text}");
        assert!(text.contains("misses / lru") && text.contains("0.7500"), "{text}");
        assert!(text.contains("lru: O(cache) per miss") && text.contains("less than"), "{text}");
        let json = json(&rows(), &device, Map::new(), false);
        assert_eq!(json["rows"][1]["relative_misses"], 0.75);
        assert_eq!(json["rows"][0]["writes"], 8);
        assert_eq!(json["rows"][0]["least_cost"], 900.0);
        assert!(text.contains("- writes") && text.contains("12.50"), "{text}");
        assert_eq!(json["rows"][1]["lost_to_writes"], 12.5);
    }
}
