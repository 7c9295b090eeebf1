//! A short pause of a task in which its thread may sleep.
//!
//! A task that yields and is ready again at once keeps its runtime from going to sleep. An io_uring
//! runtime submits reads when it goes to sleep, so tasks that wait for pages would wait forever.
//! Pauses therefore end through another thread.

use std::future::poll_fn;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::control::say;

/// Length of a pause, about.
const PAUSE: Duration = Duration::from_micros(50);

/// Suspends the calling task for a moment.
pub async fn pause() {
    let mut asked = false;
    poll_fn(|context| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        if let Err(unsent) = alarm().send(context.waker().clone()) {
            unsent.0.wake();
        }
        Poll::Pending
    })
    .await;
}

/// The channel to the thread that wakes tasks. The first pause starts that thread; it runs until
/// the process ends.
fn alarm() -> &'static Sender<Waker> {
    static ALARM: OnceLock<Sender<Waker>> = OnceLock::new();
    ALARM.get_or_init(|| {
        let (sender, receiver) = channel();
        let started = std::thread::Builder::new().name("pauses".to_owned());
        if let Err(error) = started.spawn(move || ring(&receiver)) {
            // Without it, pauses end at once.
            say(format_args!("warning: no thread for pauses: {error}"));
        }
        sender
    })
}

fn ring(wakers: &Receiver<Waker>) {
    while let Ok(first) = wakers.recv() {
        std::thread::sleep(PAUSE);
        first.wake();
        wakers.try_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Wake};
    use std::thread::Thread;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn a_pause_does_not_wake_its_task_itself_and_ends() {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = Context::from_waker(&waker);
        for _ in 0..20 {
            let mut paused = pin!(pause());
            assert!(paused.as_mut().poll(&mut context).is_pending());
            std::thread::park_timeout(Duration::from_secs(10));
            assert!(paused.as_mut().poll(&mut context).is_ready());
        }
    }
}
