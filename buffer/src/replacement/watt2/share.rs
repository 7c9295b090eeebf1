//! The share of the uses of a page that change it, for watt2, by the class of its writes.
//!
//! A write is also a use, so keeping a page cannot save more writes than this share of the uses
//! that it saves.

/// Classes of writes.
const CLASSES: usize = 16;

/// Uses and writes of pages that were written before, and their quotient at the last relearning.
#[derive(Debug)]
pub struct WriteShare {
    uses: [f32; CLASSES],
    writes: [f32; CLASSES],
    share: [f32; CLASSES],
}

impl Default for WriteShare {
    /// Without observations every use is a write.
    fn default() -> Self {
        Self { uses: [0.0; CLASSES], writes: [0.0; CLASSES], share: [1.0; CLASSES] }
    }
}

impl WriteShare {
    /// Number of classes.
    pub const fn classes() -> usize {
        CLASSES
    }

    /// Pages of this class of writes were used in a new tick `times` times.
    #[inline]
    pub fn used(&mut self, class: usize, times: f32) {
        self.uses[class] += times;
    }

    /// Pages of this class of writes were written in a new tick `times` times.
    #[inline]
    pub fn written(&mut self, class: usize, times: f32) {
        self.writes[class] += times;
    }

    /// The share of the uses that are writes.
    #[inline]
    pub fn of(&self, class: usize) -> f32 {
        self.share[class]
    }

    /// Learns from the counts, with one write of two uses as a prior, and multiplies them by
    /// `fade`.
    pub fn relearn(&mut self, fade: f32) {
        for class in 0..CLASSES {
            self.share[class] = (self.writes[class] + 1.0) / (self.uses[class] + 2.0);
            self.uses[class] *= fade;
            self.writes[class] *= fade;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_the_counts_and_forgets() {
        let mut share = WriteShare::default();
        assert_eq!(share.of(3), 1.0);
        share.used(3, 98.0);
        share.written(3, 24.0);
        share.relearn(0.0);
        assert_eq!((share.of(3), share.of(4)), (0.25, 0.5));
        share.relearn(1.0);
        assert_eq!(share.of(3), 0.5);
    }
}
