//! A thread for work that nobody waits for.
//!
//! It works in shifts and rests between them, so that it takes a bounded share of one processor, can be woken at once,
//! and ends when its owner is dropped. What the work is, a closure says: it gets a [`Shift`], calls [`Shift::wait`]
//! between rounds and [`Shift::breathe`] within them, and returns when either says that it is to end.
//!
//! ```
//! use std::time::Duration;
//! use narrows_io::background::{Background, Bell};
//!
//! let bell = Bell::default();
//! let background = Background::start("cleaner", &bell, |shift| {
//!     while shift.wait(Duration::from_secs(10)) {
//!         // One round; `shift.breathe()` after each piece of it.
//!     }
//! })?;
//! bell.ring(); // The next round begins now.
//! drop(background); // Returns when the thread has ended.
//! # Ok::<(), std::io::Error>(())
//! ```

use std::{
    io,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::thread;

/// Rests this many times as long as it worked: a quarter of one processor.
const REST: u32 = 3;
/// Works this long before it rests.
const SHIFT: Duration = Duration::from_millis(5);

/// Wakes a background thread. Cheap to clone; may exist before the thread and after it.
#[derive(Debug, Clone, Default)]
pub struct Bell(Arc<Signal>);

#[derive(Debug, Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    ended: bool,
}

impl Bell {
    /// Ends the wait that the thread is in, or its next one: a ring is never lost, and several make one.
    pub fn ring(&self) {
        self.set(|state| !std::mem::replace(&mut state.rung, true));
    }

    fn end(&self) {
        self.set(|state| !std::mem::replace(&mut state.ended, true));
    }

    /// Notifies if `change` says that it changed something.
    fn set(&self, change: impl FnOnce(&mut State) -> bool) {
        if change(&mut self.0.state.lock()) {
            self.0.changed.notify_all();
        }
    }
}

/// The running thread's side: when to rest, and whether to go on.
#[derive(Debug)]
pub struct Shift {
    /// `None` does not rest.
    bell: Option<Bell>,
    /// When it last rested.
    since: Instant,
}

impl Shift {
    /// One that neither rests nor ends: the same work, on the thread of a caller who waits for it.
    #[must_use]
    pub fn without_rest() -> Self {
        Self {
            bell: None,
            since: Instant::now(),
        }
    }

    /// Waits until the bell rings, `time` at most; `false` once the thread is to end.
    #[must_use]
    pub fn wait(&mut self, time: Duration) -> bool {
        self.rest(time, |state| std::mem::take(&mut state.rung))
    }

    /// Rests if it worked for some milliseconds; `false` once the thread is to end. A ring cuts the rest short and
    /// still ends the next [`wait`](Self::wait): what it asks for is for the next round.
    #[must_use]
    pub fn breathe(&mut self) -> bool {
        let worked = self.since.elapsed();
        worked < SHIFT || self.rest(worked * REST, |state| state.rung)
    }

    /// Rests until `is_over`, the end or a time-out.
    fn rest(&mut self, time: Duration, mut is_over: impl FnMut(&mut State) -> bool) -> bool {
        let Some(Bell(signal)) = &self.bell else {
            return true;
        };
        let mut state = signal.state.lock();
        signal
            .changed
            .wait_while_for(&mut state, |state| !state.ended && !is_over(state), time);
        self.since = Instant::now();
        !state.ended
    }
}

/// A background thread. Dropping it ends the thread and waits for it.
#[derive(Debug)]
pub struct Background {
    bell: Bell,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Runs `work` on a thread of that name, to be woken by `bell`. A bell is for one thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        name: &str,
        bell: &Bell,
        work: impl FnOnce(&mut Shift) + Send + 'static,
    ) -> io::Result<Self> {
        let mut shift = Shift {
            bell: Some(bell.clone()),
            since: Instant::now(),
        };
        Ok(Self {
            bell: bell.clone(),
            thread: Some(thread::spawn(name, move || work(&mut shift))?),
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.bell.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a background thread panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver};

    use super::*;

    /// Counts its rounds in a channel, with a wait of `time` before each.
    fn rounds(bell: &Bell, time: Duration) -> (Background, Receiver<()>) {
        let (tell, told) = mpsc::channel();
        let background = Background::start("test", bell, move |shift| {
            while shift.wait(time) {
                let _ = tell.send(());
            }
        });
        (background.unwrap(), told)
    }

    const LONG: Duration = Duration::from_secs(600);

    // Goal: a ring wakes at once, before the thread started too, and the end is not waited for. Method: waits of ten
    // minutes.
    #[test]
    fn rings_wake_and_dropping_ends() {
        let bell = Bell::default();
        bell.ring();
        let (background, told) = rounds(&bell, LONG);
        for _ in 0..3 {
            told.recv_timeout(LONG / 10).expect("a round");
            bell.ring();
        }
        told.recv_timeout(LONG / 10).expect("a round");
        drop(background);
        assert!(told.try_recv().is_err(), "a round that nobody rang for");
    }

    #[test]
    fn rounds_come_without_a_ring() {
        let (_background, told) = rounds(&Bell::default(), Duration::from_millis(1));
        for _ in 0..3 {
            told.recv_timeout(LONG / 10).expect("a round");
        }
    }

    // Goal: a ring while a round is under way is for the next round, and that round does not rest. Method: ring, work
    // longer than a shift, breathe.
    #[test]
    fn a_ring_cuts_rests_short_and_is_kept() {
        let bell = Bell::default();
        let mut shift = Shift {
            bell: Some(bell.clone()),
            since: Instant::now() - LONG,
        };
        bell.ring();
        assert!(shift.breathe(), "rested and goes on");
        assert!(shift.wait(LONG), "the ring is still there");
        bell.end();
        shift.since -= LONG;
        assert!(!shift.breathe() && !shift.wait(LONG));
    }

    // Goal: it takes a quarter of a processor. Method: ten shifts of work.
    #[test]
    fn it_rests_three_times_as_long_as_it_works() {
        let mut shift = Shift {
            bell: Some(Bell::default()),
            since: Instant::now(),
        };
        let begun = Instant::now();
        for _ in 0..10 {
            std::thread::sleep(SHIFT);
            assert!(shift.breathe());
        }
        assert!(begun.elapsed() >= SHIFT * 10 * (1 + REST));
    }

    #[test]
    fn without_rest_it_goes_on() {
        let mut shift = Shift::without_rest();
        shift.since -= LONG;
        assert!(shift.breathe() && shift.wait(LONG));
    }
}
