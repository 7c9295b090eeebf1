//! Racy reads and writes of page bytes: the primitives through which optimistic readers and the
//! exclusive writer share a page. One of the files meant for `unsafe`.
//!
//! Every access is a relaxed atomic, or a load or store in inline assembly, about which the
//! compiler assumes nothing and which it does not repeat. A racing reader can therefore see any mix
//! of old and new bytes, which the caller discards when the latch version does not validate. Inline
//! assembly is used where Rust's atomics do not vectorise; other processors and the model checker
//! take the byte-wise path. Only [`crate::page`] calls this module, and it checks all bounds.

use crate::{sync::interleave, tuning};
use std::cmp::Ordering;

/// Bytes that the model checker copies without a chance to switch threads.
#[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
const TORN: usize = 512;

/// Loads a naturally aligned unsigned integer.
macro_rules! load {
    ($name:ident, $int:ty, $atomic:ident) => {
        /// Relaxed load.
        ///
        /// # Safety
        /// `ptr` must be valid for reads of the type, naturally aligned, and all concurrent
        /// writes to it must go through this module.
        #[inline(always)]
        pub unsafe fn $name(ptr: *const u8) -> $int {
            interleave();
            // SAFETY: the caller guarantees validity and alignment.
            let atomic = unsafe { std::sync::atomic::$atomic::from_ptr(ptr as *mut $int) };
            atomic.load(std::sync::atomic::Ordering::Relaxed)
        }
    };
}
load!(load_u8, u8, AtomicU8);
load!(load_u16, u16, AtomicU16);
load!(load_u32, u32, AtomicU32);
load!(load_u64, u64, AtomicU64);

/// Stores a naturally aligned unsigned integer.
macro_rules! store {
    ($name:ident, $int:ty, $atomic:ident) => {
        /// Relaxed store.
        ///
        /// # Safety
        /// `ptr` must be valid for writes of the type, naturally aligned, and the caller must be
        /// the only writer (exclusive latch).
        #[inline(always)]
        pub unsafe fn $name(ptr: *mut u8, value: $int) {
            interleave();
            // SAFETY: the caller guarantees validity and alignment.
            let atomic = unsafe { std::sync::atomic::$atomic::from_ptr(ptr as *mut $int) };
            atomic.store(value, std::sync::atomic::Ordering::Relaxed);
        }
    };
}
store!(store_u8, u8, AtomicU8);
store!(store_u16, u16, AtomicU16);
store!(store_u32, u32, AtomicU32);
store!(store_u64, u64, AtomicU64);

#[cfg(all(target_arch = "x86_64", not(shuttle)))]
mod words {
    use std::arch::asm;

    macro_rules! word {
        ($load:ident, $store:ident, $int:ty, $class:ident, $l:literal, $s:literal) => {
            /// Loads one possibly unaligned word.
            ///
            /// # Safety
            /// `ptr` must be valid for reads of the type.
            #[inline(always)]
            pub unsafe fn $load(ptr: *const u8) -> $int {
                let value: $int;
                // SAFETY: the caller guarantees the read; the assembly only loads.
                unsafe {
                    asm!($l, out($class) value, in(reg) ptr,
                         options(readonly, nostack, preserves_flags));
                }
                value
            }
            /// Stores one possibly unaligned word.
            ///
            /// # Safety
            /// `ptr` must be valid for writes of the type.
            #[inline(always)]
            pub unsafe fn $store(ptr: *mut u8, value: $int) {
                // SAFETY: the caller guarantees the write; the assembly only stores.
                unsafe {
                    asm!($s, in($class) value, in(reg) ptr, options(nostack, preserves_flags));
                }
            }
        };
    }
    use std::arch::x86_64::__m128i;
    word!(load16, store16, __m128i, xmm_reg, "movdqu {0}, [{1}]", "movdqu [{1}], {0}");
    word!(load8, store8, u64, reg, "mov {0}, [{1}]", "mov [{1}], {0}");
    word!(load4, store4, u32, reg, "mov {0:e}, [{1}]", "mov [{1}], {0:e}");
    word!(load2, store2, u16, reg, "mov {0:x}, [{1}]", "mov [{1}], {0:x}");
    word!(load1, store1, u8, reg_byte, "mov {0}, [{1}]", "mov [{1}], {0}");

    /// Loads 32 bytes.
    ///
    /// # Safety
    /// `ptr` must be valid for reads of 32 bytes.
    #[inline(always)]
    unsafe fn load32(ptr: *const u8) -> [__m128i; 2] {
        let (low, high);
        // SAFETY: the caller guarantees the read; the assembly only loads.
        unsafe {
            asm!("movdqu {0}, [{2}]", "movdqu {1}, [{2} + 16]",
                 out(xmm_reg) low, out(xmm_reg) high, in(reg) ptr,
                 options(readonly, nostack, preserves_flags));
        }
        [low, high]
    }

    /// Stores 32 bytes.
    ///
    /// # Safety
    /// `ptr` must be valid for writes of 32 bytes.
    #[inline(always)]
    unsafe fn store32(ptr: *mut u8, [low, high]: [__m128i; 2]) {
        // SAFETY: the caller guarantees the write; the assembly only stores.
        unsafe {
            asm!("movdqu [{2}], {0}", "movdqu [{2} + 16], {1}",
                 in(xmm_reg) low, in(xmm_reg) high, in(reg) ptr,
                 options(nostack, preserves_flags));
        }
    }

    /// Loads 64 bytes.
    ///
    /// # Safety
    /// `ptr` must be valid for reads of 64 bytes.
    #[inline(always)]
    unsafe fn load64(ptr: *const u8) -> [__m128i; 4] {
        let (a, b, c, d);
        // SAFETY: the caller guarantees the read; the assembly only loads.
        unsafe {
            asm!("movdqu {0}, [{4}]", "movdqu {1}, [{4} + 16]",
                 "movdqu {2}, [{4} + 32]", "movdqu {3}, [{4} + 48]",
                 out(xmm_reg) a, out(xmm_reg) b, out(xmm_reg) c, out(xmm_reg) d, in(reg) ptr,
                 options(readonly, nostack, preserves_flags));
        }
        [a, b, c, d]
    }

    /// Stores 64 bytes.
    ///
    /// # Safety
    /// `ptr` must be valid for writes of 64 bytes.
    #[inline(always)]
    unsafe fn store64(ptr: *mut u8, [a, b, c, d]: [__m128i; 4]) {
        // SAFETY: the caller guarantees the write; the assembly only stores.
        unsafe {
            asm!("movdqu [{4}], {0}", "movdqu [{4} + 16], {1}",
                 "movdqu [{4} + 32], {2}", "movdqu [{4} + 48], {3}",
                 in(xmm_reg) a, in(xmm_reg) b, in(xmm_reg) c, in(xmm_reg) d, in(reg) ptr,
                 options(nostack, preserves_flags));
        }
    }

    /// Copies `len` bytes with word moves that overlap at the end.
    ///
    /// # Safety
    /// `src` valid for reads and `dst` for writes of `len` bytes; they do not overlap.
    #[inline(always)]
    pub unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
        macro_rules! pair {
            ($load:ident, $store:ident, $size:literal) => {{
                // SAFETY: $size <= len, so both words lie inside the ranges.
                let first = unsafe { $load(src) };
                // SAFETY: len - $size is in range.
                let at = unsafe { src.add(len - $size) };
                // SAFETY: the last $size bytes of the source.
                let last = unsafe { $load(at) };
                // SAFETY: as for the source.
                unsafe { $store(dst, first) };
                // SAFETY: len - $size is in range.
                let at = unsafe { dst.add(len - $size) };
                // SAFETY: the last $size bytes of the destination.
                unsafe { $store(at, last) };
            }};
        }
        match len {
            0 => {}
            1 => {
                // SAFETY: one byte in range.
                let byte = unsafe { load1(src) };
                // SAFETY: one byte in range.
                unsafe { store1(dst, byte) };
            }
            2..4 => pair!(load2, store2, 2),
            4..8 => pair!(load4, store4, 4),
            8..16 => pair!(load8, store8, 8),
            16..32 => pair!(load16, store16, 16),
            32..64 => pair!(load32, store32, 32),
            _ => {
                let mut at = 0;
                while at + 64 < len {
                    // SAFETY: at + 64 < len.
                    let from = unsafe { src.add(at) };
                    // SAFETY: 64 bytes in range.
                    let words = unsafe { load64(from) };
                    // SAFETY: at + 64 < len.
                    let to = unsafe { dst.add(at) };
                    // SAFETY: 64 bytes in range.
                    unsafe { store64(to, words) };
                    at += 64;
                }
                // SAFETY: len >= 64.
                let from = unsafe { src.add(len - 64) };
                // SAFETY: the last 64 bytes.
                let words = unsafe { load64(from) };
                // SAFETY: len >= 64.
                let to = unsafe { dst.add(len - 64) };
                // SAFETY: the last 64 bytes.
                unsafe { store64(to, words) };
            }
        }
    }
}

/// Copies `len` bytes of a page to private memory.
///
/// # Safety
/// `src` valid for reads, `dst` valid for writes and private to the caller, no overlap.
#[inline(always)]
pub unsafe fn copy_out(src: *const u8, dst: *mut u8, len: usize) {
    interleave();
    #[cfg(all(target_arch = "x86_64", not(shuttle)))]
    // SAFETY: forwarded from the caller.
    unsafe {
        words::copy(src, dst, len)
    };
    #[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
    for at in 0..len {
        // SAFETY: at < len.
        let from = unsafe { src.add(at) };
        // SAFETY: one byte in range.
        let byte = unsafe { load_u8_quiet(from) };
        // SAFETY: at < len.
        let to = unsafe { dst.add(at) };
        // SAFETY: private memory of the caller.
        unsafe { to.write(byte) };
        if at % TORN == TORN - 1 {
            interleave();
        }
    }
}

/// Copies `len` private bytes into a page.
///
/// # Safety
/// `src` valid for reads and not concurrently written, `dst` valid for writes, the caller is the
/// only writer of the page, no overlap.
#[inline(always)]
pub unsafe fn copy_in(src: *const u8, dst: *mut u8, len: usize) {
    interleave();
    #[cfg(all(target_arch = "x86_64", not(shuttle)))]
    // SAFETY: forwarded from the caller.
    unsafe {
        words::copy(src, dst, len)
    };
    #[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
    for at in 0..len {
        // SAFETY: at < len.
        let from = unsafe { src.add(at) };
        // SAFETY: readable by the contract.
        let byte = unsafe { from.read() };
        // SAFETY: at < len.
        let to = unsafe { dst.add(at) };
        // SAFETY: one byte in range, always aligned.
        let atomic = unsafe { std::sync::atomic::AtomicU8::from_ptr(to) };
        atomic.store(byte, std::sync::atomic::Ordering::Relaxed);
        if at % TORN == TORN - 1 {
            interleave();
        }
    }
}

/// Relaxed load of a byte without a scheduling point.
///
/// # Safety
/// As for [`load_u8`].
#[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
unsafe fn load_u8_quiet(ptr: *const u8) -> u8 {
    // SAFETY: the caller guarantees one readable byte; bytes are always aligned.
    let atomic = unsafe { std::sync::atomic::AtomicU8::from_ptr(ptr as *mut u8) };
    atomic.load(std::sync::atomic::Ordering::Relaxed)
}

/// Compares `key.len()` bytes of a page with `key`, as `page_bytes.cmp(key)`.
///
/// # Safety
/// `ptr` valid for reads of `key.len()` bytes.
#[inline(always)]
pub unsafe fn compare(ptr: *const u8, key: &[u8]) -> Ordering {
    interleave();
    #[cfg(all(target_arch = "x86_64", not(shuttle)))]
    {
        let len = key.len();
        let mut at = 0;
        // The bytes after the last whole word are compared through a word that overlaps the
        // previous one, whose bytes are known to be equal.
        while at < len && len >= 8 {
            let word_at = at.min(len - 8);
            // SAFETY: word_at + 8 <= len.
            let from = unsafe { ptr.add(word_at) };
            // SAFETY: 8 bytes in range.
            let ours = u64::from_be(unsafe { words::load8(from) });
            let theirs = key[word_at..].first_chunk().expect("8 bytes");
            let theirs = u64::from_be_bytes(*theirs);
            if ours != theirs {
                return ours.cmp(&theirs);
            }
            at += 8;
        }
        if (4..8).contains(&len) {
            for word_at in [0, len - 4] {
                // SAFETY: word_at + 4 <= len.
                let from = unsafe { ptr.add(word_at) };
                // SAFETY: 4 bytes in range.
                let ours = u32::from_be(unsafe { words::load4(from) });
                let theirs = key[word_at..].first_chunk().expect("4 bytes");
                let theirs = u32::from_be_bytes(*theirs);
                if ours != theirs {
                    return ours.cmp(&theirs);
                }
            }
            return Ordering::Equal;
        }
        while at < len {
            // SAFETY: at < len.
            let from = unsafe { ptr.add(at) };
            // SAFETY: one byte in range.
            let ours = unsafe { words::load1(from) };
            if ours != key[at] {
                return ours.cmp(&key[at]);
            }
            at += 1;
        }
        Ordering::Equal
    }
    #[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
    {
        for (at, byte) in key.iter().enumerate() {
            // SAFETY: at < key.len().
            let from = unsafe { ptr.add(at) };
            // SAFETY: one byte in range.
            let ours = unsafe { load_u8_quiet(from) };
            if ours != *byte {
                return ours.cmp(byte);
            }
        }
        Ordering::Equal
    }
}

/// Instruction sets for comparing 16 integers.
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
mod vectors {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    pub const UNKNOWN: u8 = 0;
    pub const SCALAR: u8 = 1;
    pub const AVX2: u8 = 2;
    pub const AVX512: u8 = 3;

    static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// The level, or [`UNKNOWN`] before the first detection. One load; the macro of the standard
    /// library would test each feature.
    #[inline(always)]
    pub fn level() -> u8 {
        LEVEL.load(Relaxed)
    }

    /// Detects and stores the level.
    #[cold]
    #[inline(never)]
    pub fn detect() {
        let level = if std::arch::is_x86_feature_detected!("avx512f") {
            AVX512
        } else if std::arch::is_x86_feature_detected!("avx2") {
            AVX2
        } else {
            SCALAR
        };
        LEVEL.store(level, Relaxed);
    }
}

/// Bit `i` of the result is set when the `i`-th of the 16 little-endian `u32` at `ptr` is below
/// `bound`.
///
/// # Safety
/// `ptr` valid for reads of 64 bytes and aligned to 4.
#[inline(always)]
pub unsafe fn below_16(ptr: *const u8, bound: u32) -> u32 {
    interleave();
    #[cfg(all(target_arch = "x86_64", not(shuttle)))]
    {
        if vectors::level() == vectors::AVX512 {
            let mask: u32;
            // A register above 15: values in the upper halves of the first sixteen would make every
            // following SSE instruction wait for its target register and merge with it. The first
            // sixteen would need a `vzeroupper`, as in `below_16_avx2`.
            // SAFETY: 64 readable bytes by the contract; AVX-512F was detected.
            unsafe {
                std::arch::asm!(
                    "vpbroadcastd zmm16, {bound:e}",
                    "vpcmpud k1, zmm16, [{ptr}], 6", // 6: not less or equal, bound > element
                    "kmovw {mask:e}, k1",
                    bound = in(reg) bound, ptr = in(reg) ptr, mask = lateout(reg) mask,
                    out("zmm16") _, out("k1") _,
                    options(readonly, nostack, preserves_flags)
                );
            }
            return mask;
        }
        // SAFETY: forwarded from the caller.
        unsafe { below_16_avx2(ptr, bound) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
    // SAFETY: forwarded from the caller.
    unsafe {
        below_16_scalar(ptr, bound)
    }
}

/// [`below_16`] for processors without AVX-512, out of line so that searches stay short. The first
/// call in a process also comes here and detects the processor.
///
/// # Safety
/// As for [`below_16`].
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
#[inline(never)]
unsafe fn below_16_avx2(ptr: *const u8, bound: u32) -> u32 {
    if vectors::level() == vectors::UNKNOWN {
        vectors::detect();
    }
    if vectors::level() >= vectors::AVX2 {
        let (low, high): (u32, u32);
        // SAFETY: 64 readable bytes by the contract; AVX2 was detected.
        unsafe {
            std::arch::asm!(
                "vmovd xmm1, {bound:e}",
                "vpbroadcastd ymm1, xmm1",
                "vmovdqu ymm2, [{ptr}]",
                "vmovdqu ymm3, [{ptr} + 32]",
                "vpmaxud ymm4, ymm2, ymm1", // equal to the element when element >= bound
                "vpcmpeqd ymm4, ymm4, ymm2",
                "vpmaxud ymm5, ymm3, ymm1",
                "vpcmpeqd ymm5, ymm5, ymm3",
                "vmovmskps {low:e}, ymm4",
                "vmovmskps {high:e}, ymm5",
                "vzeroupper",
                bound = in(reg) bound, ptr = in(reg) ptr,
                low = out(reg) low, high = out(reg) high,
                out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
                options(readonly, nostack, preserves_flags)
            );
        }
        return !(low | high << 8) & 0xffff;
    }
    // SAFETY: forwarded from the caller.
    unsafe { below_16_scalar(ptr, bound) }
}

/// [`below_16`] without vectors.
///
/// # Safety
/// As for [`below_16`].
#[inline(never)]
unsafe fn below_16_scalar(ptr: *const u8, bound: u32) -> u32 {
    let mut mask = 0;
    for i in 0..16 {
        // SAFETY: i < 16.
        let at = unsafe { ptr.add(4 * i) };
        // SAFETY: 4 aligned bytes in range.
        let element = u32::from_le(unsafe { load_u32(at) });
        mask |= u32::from(element < bound) << i;
    }
    mask
}

/// Prefetches the cache line of `ptr` for reading. Any address is allowed.
#[inline(always)]
pub fn prefetch(ptr: *const u8) {
    if !tuning::PREFETCH {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on memory and faults on no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch(ptr.cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// Prefetches the cache line of `ptr` for writing, so that a later store need not fetch it from the
/// core that wrote it last. Any address is allowed. Pays off some hundred nanoseconds ahead.
#[inline(always)]
pub fn prefetch_write(ptr: *const u8) {
    if !tuning::PREFETCH {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on memory and faults on no address. Processors without this
    // instruction execute it as a no-op.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) ptr,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// The purpose of a prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// The line will be read: [`prefetch`].
    Read,
    /// The line will be written: [`prefetch_write`].
    Write,
}

impl For {
    /// Prefetches the cache line of `ptr`. Any address is allowed.
    #[inline(always)]
    pub fn prefetch(self, ptr: *const u8) {
        match self {
            For::Read => prefetch(ptr),
            For::Write => prefetch_write(ptr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_length_are_exact() {
        let source: Vec<u8> = (0..300u32).map(|i| (i * 7 + 3) as u8).collect();
        for len in 0..280 {
            for start in [0, 1, 5] {
                let mut target = vec![0u8; 300];
                // SAFETY: start + len < 300 on both sides.
                unsafe { copy_out(source[start..].as_ptr(), target[start..].as_mut_ptr(), len) };
                assert_eq!(source[start..start + len], target[start..start + len]);
                assert!(target[start + len..].iter().all(|b| *b == 0));
            }
        }
    }

    #[test]
    fn comparison_agrees_with_slices() {
        for len in 0..40 {
            let ours: Vec<u8> = (0..len as u8).collect();
            // SAFETY: both have `len` bytes.
            assert_eq!(unsafe { compare(ours.as_ptr(), &ours) }, Ordering::Equal);
            for at in 0..len {
                for change in [1u8, 255] {
                    let mut key = ours.clone();
                    key[at] = key[at].wrapping_add(change);
                    // SAFETY: both have `len` bytes.
                    let found = unsafe { compare(ours.as_ptr(), &key) };
                    assert_eq!(found, ours.cmp(&key));
                }
            }
        }
    }

    #[test]
    fn vector_compare_agrees_with_scalar() {
        let mut heads = [0u32; 16];
        for (i, head) in heads.iter_mut().enumerate() {
            *head = (i as u32).wrapping_mul(0x1357_9bdf);
        }
        for bound in heads.iter().flat_map(|h| [h.wrapping_sub(1), *h, h.wrapping_add(1)]) {
            let expected =
                heads.iter().enumerate().map(|(i, h)| u32::from(*h < bound) << i).sum::<u32>();
            // SAFETY: 64 bytes.
            assert_eq!(unsafe { below_16(heads.as_ptr().cast(), bound) }, expected);
            // SAFETY: 64 bytes.
            assert_eq!(unsafe { below_16_scalar(heads.as_ptr().cast(), bound) }, expected);
            #[cfg(all(target_arch = "x86_64", not(shuttle)))]
            // SAFETY: 64 bytes.
            assert_eq!(unsafe { below_16_avx2(heads.as_ptr().cast(), bound) }, expected);
        }
    }
}
