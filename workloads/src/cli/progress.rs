//! How far a long computation is and how long it still takes, on the standard error: a bar on a
//! terminal, else a line now and then.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::figures::count;

/// Time from one line to the next.
const INTERVAL: Duration = Duration::from_secs(15);

/// The progress of a computation of known length.
pub struct Progress {
    what: &'static str,
    all: u64,
    done: AtomicU64,
    started: Instant,
    /// Milliseconds from the start to the last line.
    said: AtomicU64,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins; `all` are steps of about the same length.
    pub fn new(what: &'static str, all: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{prefix}: {wide_bar} {percent} %, {per_sec}, {eta} left",
            )
            .expect("the template is a constant that indicatif accepts");
            ProgressBar::new(all).with_style(style).with_prefix(what)
        });
        let (done, said) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { what, all, done, started: Instant::now(), said, bar }
    }

    /// Some steps are done.
    pub fn advance(&self, steps: u64) {
        if let Some(bar) = &self.bar {
            return bar.inc(steps);
        }
        let done = self.done.fetch_add(steps, Ordering::Relaxed) + steps;
        let elapsed = self.started.elapsed();
        let (now, said) = (elapsed.as_millis() as u64, self.said.load(Ordering::Relaxed));
        let due = now >= said + INTERVAL.as_millis() as u64;
        // Of several threads one says it.
        if due
            && self.said.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // The computation goes on without the line if it cannot be written.
            let _ = writeln!(std::io::stderr(), "{}", line(self.what, done, self.all, elapsed));
        }
    }

    /// Ends, and removes the bar.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How far it is after `elapsed`, and how long the rest takes at that rate.
fn line(what: &str, done: u64, all: u64, elapsed: Duration) -> String {
    let (done_share, seconds) = (done as f64 / all.max(1) as f64, elapsed.as_secs_f64());
    let left = match done {
        0 => "unknown time".to_owned(),
        _ => time(seconds / done_share * (1.0 - done_share).max(0.0)),
    };
    let rate = count((done as f64 / seconds.max(1e-9)) as u64);
    format!("{what}: {:.1} %, {rate} per s, {left} left", 100.0 * done_share)
}

fn time(seconds: f64) -> String {
    match seconds.round() as u64 {
        whole @ 0..120 => format!("{whole} s"),
        whole @ 120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        whole => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_long_the_rest_takes() {
        let line = |done, all, seconds| line("replaying", done, all, Duration::from_secs(seconds));
        assert_eq!(line(1_000_000, 4_000_000, 20), "replaying: 25.0 %, 50,000 per s, 60 s left");
        assert_eq!(line(1, 11, 60), "replaying: 9.1 %, 0 per s, 10 min 0 s left");
        assert_eq!(line(1, 1001, 60), "replaying: 0.1 %, 0 per s, 16 h 40 min left");
        assert_eq!(line(0, 10, 20), "replaying: 0.0 %, 0 per s, unknown time left");
        assert_eq!(line(10, 10, 20), "replaying: 100.0 %, 0 per s, 0 s left");
        assert!(line(0, 0, 0).contains("unknown"));
    }
}
