//! Write-aware timestamp tracking (Vöhringer and Leis, "Write-Aware Timestamp Tracking", PVLDB
//! 16(11), 2023): the tracker of section 5.1, Listing 1, and the page value of section 5.2,
//! Listing 3. One of the files meant for `unsafe` (SIMD).
//!
//! A page remembers the epochs of its last 8 accesses and last 4 writes in two cyclic logs. Its
//! value is the largest subfrequency i / (now - t_i), the newest damped to a tenth (equations 1
//! and 2), plus the write weight times the same over the writes (equation 3).
//!
//! | part of the tracker | contents |
//! |---|---|
//! | words 0 to 7 | the access log |
//! | words 8 to 11 | the write log |
//! | bytes 0 and 1 | positions of the newest entries |
//!
//! There is no read-modify-write, and nothing is stored twice in an epoch, so the tracker of a hot
//! page stays clean in every cache. A race loses at most one stamp (section 5.3).

use super::{
    parameters::{Parameter, Range, Setup},
    policy::{Replacement, Visit},
    tracker::{Tracker, WORDS},
};
use crate::{
    error::Result,
    ids::PageId,
    sync::{AtomicU8, AtomicU32, Ordering},
};

/// Entries of the access log (Figure 4).
pub const ACCESSES: usize = 8;
/// Entries of the write log (Figure 7).
pub const WRITES: usize = 4;
/// Damping of the newest entry (Figure 6).
const DAMPING: f32 = 0.1;

/// Weights of the log entries for every position of the head: row `head` is a window over the
/// doubled cycle. The newest entry, at the head, has the damped weight 1; the entry before it has
/// 2.
const fn quotients<const N: usize, const DOUBLE: usize>() -> [f32; DOUBLE] {
    let mut table = [0.0; DOUBLE];
    let mut i = 0;
    while i < DOUBLE {
        // The window for head h starts at N - 1 - h, so table[N - 1] lands on the head.
        let order = (2 * N - 1 - i) % N + 1;
        table[i] = if order == 1 { DAMPING } else { order as f32 };
        i += 1;
    }
    table
}
static ACCESS_QUOTIENTS: [f32; 15] = quotients::<ACCESSES, 15>();
static WRITE_QUOTIENTS: [f32; 7] = quotients::<WRITES, 7>();

/// Inserts `epoch` unless it is the newest entry already (Listing 1, lines 18-24).
#[inline(always)]
fn insert<const N: usize>(log: &[AtomicU32; N], head: &AtomicU8, epoch: u32) {
    let old = usize::from(head.load(Ordering::Relaxed)) % N;
    if log[old].load(Ordering::Relaxed) != epoch {
        let position = (old + 1) % N;
        log[position].store(epoch, Ordering::Release);
        head.store(position as u8, Ordering::Release);
    }
}

fn scalar_value<const N: usize>(
    log: &[AtomicU32; N],
    head: &AtomicU8,
    quotients: &[f32],
    epoch: u32,
) -> f32 {
    let head = usize::from(head.load(Ordering::Relaxed)) % N;
    let mut value = 0.0f32;
    for (i, stamp) in log.iter().enumerate() {
        let age = epoch.wrapping_sub(stamp.load(Ordering::Relaxed)) as i32 as f32;
        let subfrequency = quotients[N - 1 - head + i] / age;
        if subfrequency > value {
            value = subfrequency;
        }
    }
    value
}

const _: () = assert!(ACCESSES + WRITES == WORDS);

/// The access log and the position of its newest entry.
#[inline(always)]
fn accesses(tracker: &Tracker) -> (&[AtomicU32; ACCESSES], &AtomicU8) {
    (tracker.words.first_chunk().expect("8 of 12 words"), &tracker.bytes[0])
}

/// The write log and the position of its newest entry.
#[inline(always)]
fn writes(tracker: &Tracker) -> (&[AtomicU32; WRITES], &AtomicU8) {
    (tracker.words.last_chunk().expect("4 of 12 words"), &tracker.bytes[1])
}

impl Watt {
    /// Records an access in `epoch` (Listing 1).
    #[inline(always)]
    pub fn track(tracker: &Tracker, epoch: u32) {
        let (log, head) = accesses(tracker);
        insert(log, head, epoch);
    }

    /// Records a write in `epoch`.
    #[inline(always)]
    pub fn track_write(tracker: &Tracker, epoch: u32) {
        let (log, head) = writes(tracker);
        insert(log, head, epoch);
    }

    /// Values of the access log and of the write log, computed entry by entry.
    pub fn values_scalar(tracker: &Tracker, epoch: u32) -> (f32, f32) {
        let ((reads, read_head), (changes, change_head)) = (accesses(tracker), writes(tracker));
        (
            scalar_value(reads, read_head, &ACCESS_QUOTIENTS, epoch),
            scalar_value(changes, change_head, &WRITE_QUOTIENTS, epoch),
        )
    }

    /// Values of the access log and of the write log, computed with AVX2 (Listing 3). Bit for bit
    /// the same as [`Watt::values_scalar`]: both divide and compare in single precision.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[cfg(all(target_arch = "x86_64", not(shuttle)))]
    #[target_feature(enable = "avx2")]
    pub unsafe fn values_avx2(tracker: &Tracker, epoch: u32) -> (f32, f32) {
        use std::arch::{asm, x86_64::*};
        let ((access_log, access_head), (write_log, write_head)) =
            (accesses(tracker), writes(tracker));
        let access_head = usize::from(access_head.load(Ordering::Relaxed)) % ACCESSES;
        let write_head = usize::from(write_head.load(Ordering::Relaxed)) % WRITES;
        let (accesses, writes): (__m256i, __m128i);
        // SAFETY: both logs are whole and inside `tracker`; the assembly only loads, and a racing
        // store tears no single stamp because each is aligned.
        unsafe {
            asm!(
                "vmovdqu {accesses}, [{access_log}]",
                "vmovdqu {writes}, [{write_log}]",
                accesses = out(ymm_reg) accesses, writes = out(xmm_reg) writes,
                access_log = in(reg) access_log.as_ptr(),
                write_log = in(reg) write_log.as_ptr(),
                options(readonly, nostack, preserves_flags)
            );
        }
        let ages = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_set1_epi32(epoch as i32), accesses));
        let window = &ACCESS_QUOTIENTS[ACCESSES - 1 - access_head..][..ACCESSES];
        // SAFETY: the window has 8 floats.
        let orders = unsafe { _mm256_loadu_ps(window.as_ptr()) };
        let subfrequencies = _mm256_div_ps(orders, ages);
        let four = _mm_max_ps(
            _mm256_castps256_ps128(subfrequencies),
            _mm256_extractf128_ps::<1>(subfrequencies),
        );
        let access = max_of_4(four);

        let ages = _mm_cvtepi32_ps(_mm_sub_epi32(_mm_set1_epi32(epoch as i32), writes));
        let window = &WRITE_QUOTIENTS[WRITES - 1 - write_head..][..WRITES];
        // SAFETY: the window has 4 floats.
        let orders = unsafe { _mm_loadu_ps(window.as_ptr()) };
        (access, max_of_4(_mm_div_ps(orders, ages)))
    }
}

#[cfg(all(target_arch = "x86_64", not(shuttle)))]
#[target_feature(enable = "avx2")]
fn max_of_4(four: std::arch::x86_64::__m128) -> f32 {
    use std::arch::x86_64::*;
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    let one = _mm_max_ss(two, _mm_shuffle_ps::<1>(two, two));
    _mm_cvtss_f32(one).max(0.0)
}

/// WATT and its parameters.
#[derive(Debug)]
pub struct Watt {
    /// Weight of a write relative to a read (Figure 8).
    pub write_weight: f32,
}

impl Default for Watt {
    fn default() -> Self {
        Watt { write_weight: 4.0 }
    }
}

impl Replacement for Watt {
    const NAME: &'static str = "watt";
    const SUMMARY: &'static str =
        "lowest frequency of accesses and writes of a sample, by time stamps";
    const SOURCE: &'static str = "Vöhringer, Leis, PVLDB 16(11), 2023";
    const PARAMETERS: &'static [Parameter] = &[
        // WATT has 4 epochs in its table and 64 in its Listing 2; the README of the crate has the
        // measurements.
        Parameter::epochs(16.0),
        Parameter {
            name: "write_weight",
            default: 4.0,
            range: Range::Number(0.0, 1e9),
            about: "weight of a write relative to a read",
        },
    ];

    fn new(setup: &Setup) -> Result<Watt> {
        Ok(Watt { write_weight: setup.number("write_weight") as f32 })
    }

    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        visit.tracker.reset();
        Watt::track(visit.tracker, visit.epoch);
    }

    #[inline(always)]
    fn on_access(&self, visit: Visit<'_>) {
        Watt::track(visit.tracker, visit.epoch);
    }

    #[inline(always)]
    fn on_write(&self, visit: Visit<'_>) {
        Watt::track(visit.tracker, visit.epoch);
        Watt::track_write(visit.tracker, visit.epoch);
    }

    #[inline(always)]
    fn value(&self, tracker: &Tracker, epoch: u32) -> f32 {
        #[cfg(all(target_arch = "x86_64", not(shuttle)))]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was detected.
            let (access, write) = unsafe { Watt::values_avx2(tracker, epoch) };
            return combine(access, write, self.write_weight);
        }
        let (access, write) = Watt::values_scalar(tracker, epoch);
        combine(access, write, self.write_weight)
    }
}

/// Equation 3. A page without writes has no write term, whatever the weight, because 0 times an
/// infinite value is not a number.
#[inline(always)]
fn combine(access: f32, write: f32, weight: f32) -> f32 {
    if weight == 0.0 { access } else { access + weight * write }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::replacement::FIRST_EPOCH;
    use proptest::prelude::*;

    /// The definition over an explicit history: equations 1 and 2 with damping.
    fn model(history: &[u32], now: u32, entries: usize) -> f32 {
        history
            .iter()
            .rev()
            .take(entries)
            .enumerate()
            .map(|(i, t)| if i == 0 { DAMPING } else { (i + 1) as f32 } / (now - t) as f32)
            .fold(0.0, f32::max)
    }

    #[test]
    fn the_quotient_table_gives_a_tenth_to_the_head_and_rising_orders_before_it() {
        for head in 0..ACCESSES {
            let window = &ACCESS_QUOTIENTS[ACCESSES - 1 - head..][..ACCESSES];
            for back in 0..ACCESSES {
                let expected = if back == 0 { 0.1 } else { (back + 1) as f32 };
                assert_eq!(window[(head + ACCESSES - back) % ACCESSES], expected);
            }
        }
    }

    proptest! {
        #[test]
        fn value_follows_the_definition_and_both_forms_agree(
            gaps in prop::collection::vec((1u32..100, prop::bool::ANY), 0..30),
            rest in 0u32..1000,
        ) {
            let tracker = Tracker::default();
            let (mut now, mut accesses, mut writes) = (FIRST_EPOCH, vec![], vec![]);
            for (gap, write) in gaps {
                now += gap;
                accesses.push(now);
                Watt::track(&tracker, now);
                Watt::track(&tracker, now);
                if write {
                    writes.push(now);
                    Watt::track_write(&tracker, now);
                }
            }
            now += rest;
            let scalar = Watt::values_scalar(&tracker, now);
            // An unused entry is FIRST_EPOCH epochs old and weighs next to nothing.
            for (value, expected) in [
                (scalar.0, model(&accesses, now, ACCESSES)),
                (scalar.1, model(&writes, now, WRITES)),
            ] {
                prop_assert!(value == expected || (value - expected).abs() < 1e-7);
            }
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: detected.
                prop_assert_eq!(unsafe { Watt::values_avx2(&tracker, now) }, scalar);
            }
        }
    }
}
