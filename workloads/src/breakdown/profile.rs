//! One profile: the samples and thread times of the measured part of a run, as rows of a table.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::component::{Component, Owner, of_thread, owner};
use super::events::{EventCounters, EventCounts};
use super::sampler::{self, Place};
use super::scopes::{AllScopes, ScopeRow};
use super::symbols::{Frame, Symbols};
use super::threads::{AllTimes, Group};

/// Shares below this are in no list of hot functions, per cent.
const HOT: f64 = 0.5;

/// Profiles the measured part of a run, which begins and ends on the thread that supervises it.
#[derive(Debug, Default)]
pub struct Profiler {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    began: Option<Began>,
    taken: Option<Result<Taken, String>>,
}

/// The state at the begin of a profile.
#[derive(Debug)]
struct Began {
    at: Instant,
    times: AllTimes,
    scopes: AllScopes,
    events: EventCounters,
}

/// A profile whose samples are not looked up yet.
#[derive(Debug)]
struct Taken {
    seconds: f64,
    times: AllTimes,
    places: Vec<Place>,
    lost: usize,
    scopes: Vec<ScopeRow>,
    events: Result<HashMap<Group, EventCounts>, String>,
}

impl Profiler {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Begins.
    pub fn begin(&self) {
        let mut state = self.state();
        let times = AllTimes::now();
        let events =
            EventCounters::begin(times.iter().map(|(thread, times)| (thread, times.group())));
        state.began = Some(Began { at: Instant::now(), times, scopes: AllScopes::now(), events });
        if let Err(error) = sampler::start() {
            state.taken = Some(Err(format!("starting the timer of the profile: {error}")));
        }
    }

    /// Ends.
    pub fn end(&self) {
        let stopped = sampler::stop();
        let mut state = self.state();
        let Some(began) = state.began.take() else { return };
        if state.taken.is_some() {
            return;
        }
        let events = began.events.end();
        let scopes = AllScopes::now().since(&began.scopes);
        let seconds = began.at.elapsed().as_secs_f64();
        let times = AllTimes::now().since(&began.times);
        let taken = match stopped {
            Ok((places, lost)) => Ok(Taken { seconds, times, places, lost, scopes, events }),
            Err(error) => Err(format!("stopping the timer of the profile: {error}")),
        };
        state.taken = Some(taken);
    }

    /// The profile of the last run.
    ///
    /// # Errors
    /// A sentence, if there is none.
    pub fn take(&self, symbols: &mut Symbols, cost: Duration) -> Result<Profile, String> {
        let taken = self.state().taken.take();
        let taken = taken.unwrap_or_else(|| Err("the run ended before it was profiled".to_owned()));
        Ok(Profile::of(&taken?, symbols, cost))
    }
}

/// Processor time and waiting of a group of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupTimes {
    /// Threads.
    pub threads: usize,
    /// Processor time, seconds.
    pub cpu_seconds: f64,
    /// Of this, in the kernel, by clock ticks.
    pub kernel_seconds: f64,
    /// Time ready to run, without a processor.
    pub queued_seconds: f64,
    /// Time that they waited for something else: a page, a commit, a latch, work.
    pub waiting_seconds: f64,
    /// Instructions and cycles in user mode of the threads that existed when the profile began;
    /// `None` if the system does not count them.
    pub events: Option<EventCounts>,
}

/// A row of the table. Shares are per cent of the processor time of the group, or of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The component.
    pub component: Component,
    /// Share in the foreground.
    pub foreground_percent: f64,
    /// Share in the background.
    pub background_percent: f64,
    /// Share of both.
    pub percent: f64,
    /// Processor time of both, seconds.
    pub cpu_seconds: f64,
}

/// A function with a large share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotFunction {
    /// Its name: the innermost one at its samples, and the one that decided the component, if that
    /// is another.
    pub function: String,
    /// The component.
    pub component: Component,
    /// Share of the processor time of all threads, per cent.
    pub percent: f64,
}

/// A profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// Length, seconds.
    pub seconds: f64,
    /// Samples.
    pub samples: usize,
    /// Samples that did not fit into memory.
    pub lost_samples: usize,
    /// Processor time of a sample, measured, microseconds.
    pub sample_cost_us: f64,
    /// Processor time of all samples, per cent of that of all threads.
    pub sampling_percent: f64,
    /// Threads that run operations.
    pub foreground: GroupTimes,
    /// All other threads.
    pub background: GroupTimes,
    /// One for each component.
    pub rows: Vec<Row>,
    /// The functions with the largest shares.
    pub hot: Vec<HotFunction>,
    /// The time of all threads by part, waits included; empty in a build without scoped counters.
    pub scopes: Vec<ScopeRow>,
    /// Why instructions and cycles are not counted, in the words of the system.
    pub no_events: Option<String>,
}

/// The component of a sample and the function that decided it.
fn attribute(place: &Place, symbols: &mut Symbols) -> (Component, String) {
    let inner = symbols.frames(place.at);
    let mut name = inner.first().map_or_else(|| outside(place), |frame| frame.function.clone());
    let mut helper = None;
    let mut decide = |frames: &[Frame]| {
        for frame in frames {
            match owner(&frame.file, &frame.function) {
                Some(Owner::Is(component)) => return Some((component, frame.function.clone())),
                Some(Owner::Helper(component)) if helper.is_none() => {
                    helper = Some((component, frame.function.clone()));
                }
                _ => {}
            }
        }
        None
    };
    let mut found = decide(&inner);
    if found.is_none() {
        for caller in &place.callers {
            if symbols.is_after_call(*caller) {
                found = decide(&symbols.frames(*caller - 1));
                if found.is_some() {
                    break;
                }
            }
        }
    }
    match found.or(helper) {
        Some((component, decided)) => {
            if decided != name {
                name = format!("{name} in {decided}");
            }
            (component, name)
        }
        None => (Component::Unattributed, name),
    }
}

/// The name of a place outside of the program.
fn outside(_: &Place) -> String {
    "(a library of the system)".to_owned()
}

impl Profile {
    fn of(taken: &Taken, symbols: &mut Symbols, cost: Duration) -> Profile {
        let mut counts: HashMap<u32, u64> = HashMap::new();
        for place in &taken.places {
            *counts.entry(place.thread).or_default() += 1;
        }
        // Nanoseconds of each component, in the foreground and in the background.
        let mut spent: HashMap<Component, [f64; 2]> = HashMap::new();
        let mut functions: HashMap<(String, Component), f64> = HashMap::new();
        for place in &taken.places {
            // A thread that has ended is in no list; each of its samples is a clock tick.
            let Some(times) = taken.times.get(place.thread) else { continue };
            let weight = times.cpu_ns as f64 / counts[&place.thread] as f64;
            let (component, name) = attribute(place, symbols);
            spent.entry(component).or_default()[times.group() as usize] += weight;
            *functions.entry((name, component)).or_default() += weight;
        }
        for (thread, times) in taken.times.iter() {
            if !counts.contains_key(&thread) {
                let component = of_thread(&times.name);
                spent.entry(component).or_default()[times.group() as usize] += times.cpu_ns as f64;
            }
        }
        let groups = [Group::Foreground, Group::Background].map(|group| taken.group(group));
        let totals = groups.each_ref().map(|group| group.cpu_seconds * 1e9);
        let all: f64 = totals.iter().sum();
        let share = |part: f64, all: f64| if all > 0.0 { part * 100.0 / all } else { 0.0 };
        let rows = Component::ALL.map(|component| {
            let [foreground, background] = spent.get(&component).copied().unwrap_or_default();
            Row {
                component,
                foreground_percent: share(foreground, totals[0]),
                background_percent: share(background, totals[1]),
                percent: share(foreground + background, all),
                cpu_seconds: (foreground + background) / 1e9,
            }
        });
        let mut hot: Vec<_> = functions
            .into_iter()
            .map(|((function, component), time)| HotFunction {
                function,
                component,
                percent: share(time, all),
            })
            .filter(|hot| hot.percent >= HOT)
            .collect();
        hot.sort_by(|a, b| b.percent.total_cmp(&a.percent).then(a.function.cmp(&b.function)));
        let [foreground, background] = groups;
        Profile {
            seconds: taken.seconds,
            samples: taken.places.len(),
            lost_samples: taken.lost,
            sample_cost_us: cost.as_secs_f64() * 1e6,
            sampling_percent: share(taken.places.len() as f64 * cost.as_nanos() as f64, all),
            foreground,
            background,
            rows: rows.into(),
            hot,
            scopes: taken.scopes.clone(),
            no_events: taken.events.as_ref().err().cloned(),
        }
    }

    /// The share that no component has, per cent.
    pub fn unattributed_percent(&self) -> f64 {
        let row = self.rows.iter().find(|row| row.component == Component::Unattributed);
        row.map_or(0.0, |row| row.percent)
    }
}

impl Taken {
    fn group(&self, group: Group) -> GroupTimes {
        let events = self.events.as_ref().ok();
        let events = events.map(|counts| counts.get(&group).copied().unwrap_or_default());
        let mut sum = GroupTimes { events, ..GroupTimes::default() };
        for (_, times) in self.times.iter().filter(|(_, times)| times.group() == group) {
            let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
            let (cpu, queued) = (seconds(times.cpu_ns), seconds(times.queued_ns));
            sum.threads += 1;
            sum.cpu_seconds += cpu;
            sum.kernel_seconds += seconds(times.kernel_ns).min(cpu);
            sum.queued_seconds += queued;
            sum.waiting_seconds += (self.seconds - cpu - queued).max(0.0);
        }
        sum
    }
}
