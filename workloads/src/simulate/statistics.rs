//! Statistics of traces, with the lines of WATT's Table 2 and more.

use serde_json::{Value, json};

use super::trace::Trace;
use crate::report::figures;

/// The statistics of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Its name.
    pub trace: String,
    /// Accesses.
    pub accesses: u64,
    /// Different pages.
    pub pages: u64,
    /// Share of the accesses that write.
    pub write_share: f64,
    /// Pages that are written at least once.
    pub pages_written: u64,
    /// Pages with more than 2 % and with more than 1 % of the accesses. The paper says 2 %; its
    /// numbers for the Zipf traces are those of 1 %.
    pub hot_pages: [u64; 2],
    /// Share of the accesses to the ten pages with the most.
    pub top_ten: f64,
    /// Shares of the accesses to the hundredth and to the tenth of the pages with the most.
    pub hottest: [f64; 2],
    /// Requests of the file that were no whole pages, and were rounded outwards.
    pub uneven_requests: u64,
}

impl Statistics {
    /// Counts `trace`, which has an access.
    pub fn of(trace: &Trace) -> Self {
        let mut counts = vec![0u64; trace.pages()];
        let mut written = vec![false; trace.pages()];
        for access in trace.accesses() {
            counts[access.page.0 as usize] += 1;
            written[access.page.0 as usize] |= access.write;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let accesses = trace.len() as u64;
        let share = |pages: usize| {
            let of = &counts[..pages.min(counts.len())];
            of.iter().sum::<u64>() as f64 / accesses as f64
        };
        let above = |percent: u64| {
            counts.iter().take_while(|count| **count * 100 > accesses * percent).count() as u64
        };
        Self {
            trace: trace.name().to_owned(),
            accesses,
            pages: trace.pages() as u64,
            write_share: trace.writes() as f64 / accesses as f64,
            pages_written: written.iter().filter(|written| **written).count() as u64,
            hot_pages: [above(2), above(1)],
            top_ten: share(10),
            hottest: [share(counts.len().div_ceil(100)), share(counts.len().div_ceil(10))],
            uneven_requests: trace.uneven(),
        }
    }

    fn json(&self) -> Value {
        json!({
            "trace": self.trace,
            "accesses": self.accesses,
            "pages": self.pages,
            "write_share": self.write_share,
            "pages_written": self.pages_written,
            "pages_above_2_percent": self.hot_pages[0],
            "pages_above_1_percent": self.hot_pages[1],
            "top_ten_share": self.top_ten,
            "hottest_1_percent_share": self.hottest[0],
            "hottest_10_percent_share": self.hottest[1],
            "uneven_requests": self.uneven_requests,
        })
    }
}

/// All statistics as one JSON object.
pub fn json(all: &[Statistics]) -> Value {
    let traces: Vec<Value> = all.iter().map(Statistics::json).collect();
    json!({ "subcommand": "simulate", "traces": traces })
}

/// All statistics as CSV with a header.
pub fn csv(all: &[Statistics]) -> String {
    let mut text = String::new();
    for (index, one) in all.iter().enumerate() {
        let fields = one.json();
        let fields = fields.as_object().expect("it is made as an object");
        if index == 0 {
            text += &fields.keys().cloned().collect::<Vec<_>>().join(",");
            text.push('\n');
        }
        let cells = fields.values().map(|value| match value {
            Value::String(name) => figures::csv_field(name),
            Value::Number(number) if number.is_f64() => {
                format!("{:.6}", number.as_f64().unwrap_or(f64::NAN))
            }
            other => other.to_string(),
        });
        text += &cells.collect::<Vec<_>>().join(",");
        text.push('\n');
    }
    text
}

/// All statistics as a table, one column for each trace, like Table 2 of WATT.
pub fn text(all: &[Statistics]) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let line = |name: &str, cell: &dyn Fn(&Statistics) -> String| {
        std::iter::once(name.to_owned()).chain(all.iter().map(cell)).collect::<Vec<_>>()
    };
    let lines = [
        line("", &|one| one.trace.clone()),
        line("writes", &|one| percent(one.write_share)),
        line("accesses", &|one| figures::count(one.accesses)),
        line("pages", &|one| figures::count(one.pages)),
        line("pages written", &|one| figures::count(one.pages_written)),
        line("pages > 2 %", &|one| one.hot_pages[0].to_string()),
        line("pages > 1 %", &|one| one.hot_pages[1].to_string()),
        line("top ten", &|one| percent(one.top_ten)),
        line("hottest 1 %", &|one| percent(one.hottest[0])),
        line("hottest 10 %", &|one| percent(one.hottest[1])),
        line("uneven requests", &|one| figures::count(one.uneven_requests)),
    ];
    figures::table("", &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::generate::parse;

    /// WATT, Table 2: the generated traces have its statistics.
    #[test]
    fn zipf_has_the_numbers_of_table_2() {
        let found = Statistics::of(&parse("ZipfRO").unwrap());
        assert_eq!((found.accesses, found.pages, found.write_share), (1_000_000, 10_000, 0.0));
        assert_eq!(found.hot_pages[1], 7);
        assert!((found.top_ten - 0.205).abs() < 0.002, "{}", found.top_ten);
        let text = text(std::slice::from_ref(&found));
        assert!(text.contains("20.5 %") && text.contains("top ten"), "{text}");
        let csv = csv(&[found]);
        assert!(csv.starts_with("trace,accesses,pages,write_share,") && csv.contains("ZipfRO,"));
    }

    #[test]
    fn shares_of_a_small_trace_are_exact() {
        // Page 0 has 6 of 10 accesses, one of them writes; four others have one each.
        let pages = [0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        let accesses = pages.iter().enumerate().map(|(at, page)| (*page, at == 5 || at == 9));
        let found = Statistics::of(&Trace::of("t", accesses));
        assert_eq!((found.pages_written, found.write_share), (2, 0.2));
        assert_eq!((found.hot_pages, found.top_ten, found.hottest), ([5, 5], 1.0, [0.6, 0.6]));
    }
}
