//! Doubly linked lists of frames, for policies with a global order. A frame is on at most one list
//! at a time. All links are in one array by frame, so every operation takes constant time and
//! allocates nothing: 12 bytes for each frame, reserved when the pool is opened.
//!
//! The lists of a policy are under one latch, the last in the order of latches. Under it a thread
//! only changes links and reads frame headers. A policy that moves a page at every use takes it at
//! every use: that is the cost of its definition, which the policies without lists avoid.

use super::policy::{Frames, Standing};
use crate::ids::FrameId;

const NONE: u32 = u32::MAX;
/// The number that stands for no list.
const OFF: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    /// Towards the front.
    before: u32,
    /// Towards the back.
    after: u32,
    list: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: u32,
    back: u32,
    len: usize,
}

/// `N` lists over the frames of a pool. By convention the most recent frame is at the front.
#[derive(Debug)]
pub(super) struct FrameLists<const N: usize> {
    links: Vec<Links>,
    ends: [Ends; N],
}

fn frame(link: u32) -> Option<FrameId> {
    (link != NONE).then_some(FrameId(link))
}

impl<const N: usize> FrameLists<N> {
    /// Empty lists for `frames` frames.
    pub fn new(frames: usize) -> Self {
        FrameLists {
            links: vec![Links { before: NONE, after: NONE, list: OFF }; frames],
            ends: [Ends { front: NONE, back: NONE, len: 0 }; N],
        }
    }

    /// The list that `of` is on.
    pub fn list_of(&self, of: FrameId) -> Option<usize> {
        let list = self.links[of.0 as usize].list;
        (list != OFF).then_some(list as usize)
    }

    /// Number of frames on `list`.
    pub fn len(&self, list: usize) -> usize {
        self.ends[list].len
    }

    /// Last frame of `list`.
    pub fn back(&self, list: usize) -> Option<FrameId> {
        frame(self.ends[list].back)
    }

    /// The next frame towards the front of the list that `of` is on.
    pub fn before(&self, of: FrameId) -> Option<FrameId> {
        frame(self.links[of.0 as usize].before)
    }

    /// Puts a frame, which is on no list, at the front of `list`.
    pub fn push_front(&mut self, list: usize, new: FrameId) {
        assert!(self.list_of(new).is_none(), "frame {} is on a list already", new.0);
        let ends = &mut self.ends[list];
        let old = std::mem::replace(&mut ends.front, new.0);
        ends.len += 1;
        match old {
            NONE => ends.back = new.0,
            _ => self.links[old as usize].before = new.0,
        }
        self.links[new.0 as usize] = Links { before: NONE, after: old, list: list as u32 };
    }

    /// Removes a frame from its list, and returns that list, if it is on one.
    pub fn remove(&mut self, old: FrameId) -> Option<usize> {
        let list = self.list_of(old)?;
        let Links { before, after, .. } = self.links[old.0 as usize];
        match before {
            NONE => self.ends[list].front = after,
            _ => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.ends[list].back = before,
            _ => self.links[after as usize].before = before,
        }
        self.ends[list].len -= 1;
        self.links[old.0 as usize].list = OFF;
        Some(list)
    }

    /// Moves a frame from its list to the front of `list`; a frame on no list stays off.
    pub fn move_to_front(&mut self, list: usize, frame: FrameId) {
        if self.remove(frame).is_some() {
            self.push_front(list, frame);
        }
    }

    /// Calls `visit` for the frames of `list` from the back on, once each at most, until it returns
    /// false. It may move the frame that it is called with.
    pub fn sweep(&mut self, list: usize, mut visit: impl FnMut(&mut Self, FrameId) -> bool) {
        let mut next = self.back(list);
        for _ in 0..self.len(list) {
            let Some(frame) = next else { break };
            next = self.before(frame);
            if !visit(self, frame) {
                break;
            }
        }
    }

    /// Proposes frames of `list` from the back on: adds those that may leave to `victims`, until
    /// there are `most`, and calls `spare` for those that must stay. Frames that are being written
    /// keep their place.
    pub fn propose(
        &mut self,
        list: usize,
        frames: &dyn Frames,
        most: usize,
        victims: &mut Vec<FrameId>,
        mut spare: impl FnMut(&mut Self, FrameId),
    ) {
        self.sweep(list, |lists, frame| {
            if victims.len() >= most {
                return false;
            }
            match frames.standing(frame) {
                Standing::Clean | Standing::Dirty => victims.push(frame),
                Standing::Held => spare(lists, frame),
                Standing::Empty | Standing::Writing => {}
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn lists_do_what_queues_do(
            steps in prop::collection::vec((0u32..20, 0usize..2, 0u8..4), 1..300),
        ) {
            let (mut lists, mut model) =
                (FrameLists::<2>::new(20), [VecDeque::new(), VecDeque::new()]);
            for (number, to, what) in steps {
                let frame = FrameId(number);
                let from = model.iter().position(|queue| queue.contains(&frame));
                prop_assert_eq!(lists.list_of(frame), from);
                model.iter_mut().for_each(|queue| queue.retain(|other| *other != frame));
                match (what, from) {
                    (0, _) => prop_assert_eq!(lists.remove(frame), from),
                    (1, None) => {
                        lists.push_front(to, frame);
                        model[to].push_front(frame);
                    }
                    (_, None) => lists.move_to_front(to, frame),
                    (_, Some(_)) => {
                        lists.move_to_front(to, frame);
                        model[to].push_front(frame);
                    }
                }
                for (list, queue) in model.iter().enumerate() {
                    prop_assert_eq!(lists.len(list), queue.len());
                    let mut seen = Vec::new();
                    lists.sweep(list, |_, frame| {
                        seen.push(frame);
                        true
                    });
                    prop_assert!(seen.iter().eq(queue.iter().rev()));
                }
            }
        }
    }
}
