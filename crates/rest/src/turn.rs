//! Turns at the processors, for callers that pack or unpack on their own thread.
//!
//! Why not let the system share the processors out: a thread that packs has up to 10 MiB in hand. Eight threads on two
//! processors push each other's out of the caches, and took 1.3 times the processor time that two take. Here hardly more
//! work at once than there are processors, the others wait for the length of a chunk, and workspaces are used again.

use std::{
    sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
};

use narrows_core::Workspace;

/// Who works, and what lies ready for the next.
struct Turns {
    /// Whose turns: a child of a fork has none of its parent's threads.
    process: u32,
    taken: usize,
    workspaces: Vec<Workspace>,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns {
    process: 0,
    taken: 0,
    workspaces: Vec::new(),
});
static GIVEN_BACK: Condvar = Condvar::new();
/// One more than there are processors: a thread that is woken takes a while to begin.
static AT_ONCE: LazyLock<usize> = LazyLock::new(|| crate::options::threads(0) + 1);

/// Waits for a turn and does `job`. The job must not take another turn, and must not wait for another thread.
pub(crate) fn with<T>(job: impl FnOnce(&mut Workspace) -> T) -> T {
    job(&mut Turn::take().ws)
}

/// Given back when dropped, so that a job that panics ends its turn, too.
struct Turn {
    ws: Workspace,
    is_counted: bool,
}

impl Turn {
    fn take() -> Self {
        let Some(mut turns) = try_lock() else {
            return Self {
                ws: Workspace::default(),
                is_counted: false,
            };
        };
        let process = std::process::id();
        if turns.process != process {
            (turns.process, turns.taken) = (process, 0);
        }
        while turns.taken >= *AT_ONCE {
            turns = GIVEN_BACK
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
        turns.taken += 1;
        Self {
            ws: turns.workspaces.pop().unwrap_or_default(),
            is_counted: true,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.taken -= 1;
        turns.workspaces.push(std::mem::take(&mut self.ws));
        drop(turns);
        GIVEN_BACK.notify_one();
    }
}

/// `None` in a child of a process that forked while one of its threads held the lock: there it stays locked. No thread
/// holds it for longer than a list takes.
fn try_lock() -> Option<MutexGuard<'static, Turns>> {
    for _ in 0..TRIES {
        match TURNS.try_lock() {
            Ok(turns) => return Some(turns),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}

const TRIES: usize = 1000;

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use super::*;

    #[test]
    fn few_work_at_once_and_a_panic_ends_a_turn() {
        let (at_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let callers = 4 * *AT_ONCE;
        let begin = Barrier::new(callers);
        thread::scope(|scope| {
            for n in 0..callers {
                let (at_work, most, begin) = (&at_work, &most, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for _ in 0..20 {
                        let job = |_: &mut Workspace| {
                            most.fetch_max(at_work.fetch_add(1, SeqCst) + 1, SeqCst);
                            thread::yield_now();
                            at_work.fetch_sub(1, SeqCst);
                            assert!(n % 2 == 0, "every other job fails");
                        };
                        let done = std::panic::catch_unwind(|| with(job));
                        assert_eq!(done.is_ok(), n % 2 == 0);
                    }
                });
            }
        });
        assert!(most.load(SeqCst) <= *AT_ONCE);
        assert!(TURNS.lock().unwrap().workspaces.len() <= *AT_ONCE);
    }
}
