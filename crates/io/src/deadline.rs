//! Work on a connection that must be done by some time, else the connection is cut.
//!
//! One thread watches all of them, started when it is first needed. A thread for each would let strangers who connect
//! take two threads each, and a system that has none left would fail in the middle of a handshake. Socket timeouts do
//! not serve: those start anew with each byte, and pipes have none.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::transport::Shutdown;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Late {
    /// The work took longer, and its connection was cut.
    #[error("it took longer than {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The system gives no thread to watch the time with; the work was not begun.
    #[error(transparent)]
    NoThread(#[from] io::Error),
}

impl From<Late> for io::Error {
    fn from(late: Late) -> Self {
        match late {
            Late::Timeout(_) => Self::new(io::ErrorKind::TimedOut, late),
            Late::NoThread(error) => error,
        }
    }
}

/// Runs `work`; aborts `shutdown` when it takes longer than `time`.
///
/// # Errors
/// See [`Late`].
pub fn deadline<T>(
    shutdown: &Shutdown,
    time: Duration,
    work: impl FnOnce() -> T,
) -> Result<T, Late> {
    let watched = Watched::begin(shutdown, time)?;
    let result = work();
    if watched.end() {
        Err(Late::Timeout(time))
    } else {
        Ok(result)
    }
}

/// What the watching thread looks after.
#[derive(Default)]
struct Watch {
    running: bool,
    waiting: Vec<Waiting>,
}

struct Waiting {
    id: u64,
    until: Instant,
    shutdown: Shutdown,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    running: false,
    waiting: Vec::new(),
});
static CHANGED: Condvar = Condvar::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A place in the list of what is watched; left on drop.
struct Watched(u64);

impl Watched {
    fn begin(shutdown: &Shutdown, time: Duration) -> io::Result<Self> {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut watch = WATCH.lock();
        if !watch.running {
            crate::thread::spawn("deadlines", run)?;
            watch.running = true;
        }
        watch.waiting.push(Waiting {
            id,
            until: Instant::now() + time,
            shutdown: shutdown.clone(),
        });
        drop(watch);
        CHANGED.notify_one();
        Ok(Self(id))
    }

    /// Whether the time was over before.
    fn end(&self) -> bool {
        let mut watch = WATCH.lock();
        match watch.waiting.iter().position(|one| one.id == self.0) {
            Some(at) => {
                watch.waiting.swap_remove(at);
                false
            }
            None => true,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.end();
    }
}

fn run() {
    let mut watch = WATCH.lock();
    loop {
        let now = Instant::now();
        let mut at = 0;
        while at < watch.waiting.len() {
            if watch.waiting[at].until <= now {
                watch.waiting.swap_remove(at).shutdown.abort();
            } else {
                at += 1;
            }
        }
        match watch.waiting.iter().map(|one| one.until).min() {
            Some(until) => drop(CHANGED.wait_until(&mut watch, until)),
            None => CHANGED.wait(&mut watch),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::transport::from_unix;

    // Goal: what is late is cut, what is done in time is not, and many at once need one thread.
    #[test]
    fn the_late_are_cut_and_no_others() {
        let pair = || Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        let ((late, _peer), (fast, _other)) = (pair(), pair());
        let (late, fast) = (
            from_unix(late, "late".into()),
            from_unix(fast, "fast".into()),
        );
        let done = deadline(&fast.shutdown, Duration::from_secs(60), || 7);
        assert_eq!(done.unwrap(), 7);
        let (_held, never) = mpsc::channel::<()>();
        let watched = late.shutdown.clone();
        let waiting = thread::spawn(move || {
            let wait = || never.recv_timeout(Duration::from_millis(300));
            deadline(&watched, Duration::from_millis(50), wait).is_err()
        });
        assert!(waiting.join().unwrap(), "it took too long");
        assert!(late.shutdown.is_aborted() && !fast.shutdown.is_aborted());
    }
}
