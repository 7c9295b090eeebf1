//! Whether the device has room for the next segment.
//!
//! | from | to | when |
//! |---|---|---|
//! | `Enough` | `Full` | the next segment cannot be made |
//! | `Full`, `Refused` | the same | another try failed as well |
//! | `Full` | `Refused` | changes have waited for the room timeout, or it is known that no room will come |
//! | `Full`, `Refused` | `Enough` | the next segment is made |
//!
//! Each transition also sets the bits of the [`Gate`], which asserts the state that it comes from.
//! The owner is the state of the segments, under its lock.

use crate::gate::Gate;
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// See the module documentation.
#[derive(Default)]
pub(crate) enum Room {
    /// The next segment is made, or no try to make it has failed.
    #[default]
    Enough,
    /// There is none, and changes wait.
    Full(Shortage),
    /// There is none, and changes are refused.
    Refused(Shortage),
}

/// Why there is no room.
pub(crate) struct Shortage {
    /// Of the last try.
    pub error: Arc<io::Error>,
    /// Of the first one.
    pub since: Instant,
    /// The device has no room, and the log has retired no segment since then.
    stuck: bool,
}

impl Room {
    /// The shortage, if there is one.
    pub(crate) fn shortage(&self) -> Option<&Shortage> {
        match self {
            Room::Enough => None,
            Room::Full(shortage) | Room::Refused(shortage) => Some(shortage),
        }
    }

    pub(crate) fn is_short(&self) -> bool {
        !matches!(self, Room::Enough)
    }

    /// A try to make the next segment failed. `helpless`: the log had no segment to retire.
    pub(crate) fn fail(&mut self, error: io::Error, helpless: bool, gate: &Gate) {
        let stuck = is_of_room(&error) && helpless;
        let error = Arc::new(error);
        match self {
            Room::Enough => {
                gate.become_full();
                *self = Room::Full(Shortage { error, since: Instant::now(), stuck });
            }
            Room::Full(shortage) | Room::Refused(shortage) => {
                (shortage.error, shortage.stuck) = (error, stuck);
            }
        }
    }

    /// Refuses changes until there is room; nothing if there is. Gives whether changes are refused
    /// now.
    pub(crate) fn refuse(&mut self, gate: &Gate) -> bool {
        *self = match std::mem::take(self) {
            Room::Enough => Room::Enough,
            Room::Full(shortage) => {
                gate.refuse();
                Room::Refused(shortage)
            }
            refused => refused,
        };
        self.is_short()
    }

    /// The same for a shortage that has lasted for `timeout`. Gives whether changes are refused
    /// since just now.
    pub(crate) fn refuse_after(&mut self, timeout: Duration, gate: &Gate) -> bool {
        match self {
            Room::Full(shortage) if shortage.since.elapsed() >= timeout => self.refuse(gate),
            _ => false,
        }
    }

    /// The next segment is made. Gives whether there was a shortage.
    pub(crate) fn recover(&mut self, gate: &Gate) -> bool {
        let short = self.is_short();
        if short {
            gate.reopen();
            *self = Room::Enough;
        }
        short
    }

    /// Whether there is no room, and the log has had no segment to retire since the last try.
    pub(crate) fn is_stuck(&self) -> bool {
        self.shortage().is_some_and(|shortage| shortage.stuck)
    }

    /// The log can retire segments: the next try may succeed.
    pub(crate) fn may_come(&mut self) {
        match self {
            Room::Enough => {}
            Room::Full(shortage) | Room::Refused(shortage) => shortage.stuck = false,
        }
    }
}

impl Shortage {
    /// The error of the last try, again.
    pub(crate) fn copy(&self) -> io::Error {
        match self.error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(self.error.kind(), self.error.to_string()),
        }
    }
}

/// Whether an error says that the device has no room. A checkpoint helps against no other error.
pub(crate) fn is_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::{Gate, Room};
    use std::{io, time::Duration};

    fn no_room() -> io::Error {
        io::ErrorKind::StorageFull.into()
    }

    #[test]
    fn room_goes_from_enough_to_full_to_refused_and_back() {
        let (gate, mut room) = (Gate::new(1), Room::default());
        assert!(!room.refuse(&gate) && !room.recover(&gate) && gate.is_open());
        room.fail(no_room(), false, &gate);
        assert!(gate.is_full() && !gate.refuses() && !room.is_stuck());
        assert!(!gate.ends_wait(true) && !gate.ends_wait(false));
        assert!(!room.refuse_after(Duration::MAX, &gate));
        assert!(room.refuse_after(Duration::ZERO, &gate) && gate.refuses());
        assert!(!room.refuse_after(Duration::ZERO, &gate), "it was refused before");
        assert!(gate.ends_wait(false));
        room.fail(no_room(), true, &gate);
        assert!(
            gate.refuses() && room.is_stuck(),
            "another failure changes nothing but its reason"
        );
        room.may_come();
        assert!(!room.is_stuck() && room.is_short());
        assert!(room.recover(&gate) && gate.is_open());
        assert!(gate.ends_wait(true) && !gate.ends_wait(false));
    }

    #[test]
    fn only_the_lack_of_room_is_stuck() {
        let (gate, mut room) = (Gate::new(1), Room::default());
        room.fail(io::Error::other("no descriptor"), true, &gate);
        assert!(room.is_short() && !room.is_stuck());
        assert_eq!(room.shortage().expect("one").copy().to_string(), "no descriptor");
    }

    #[test]
    #[should_panic(expected = "went from")]
    fn the_gate_asserts_the_state_before() {
        Gate::new(1).refuse();
    }
}
