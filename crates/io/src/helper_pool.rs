//! Threads that lend a hand with work on borrowed data.
//!
//! Why not a pool that takes jobs: a job owns its data, so a request would be copied for it, and whoever waits for a
//! job waits until a thread is free. Here the caller does the work, and those who are idle do it with him; he waits for
//! nobody but who has begun. So a call costs no more than waking a thread, and where all processors are busy it is as
//! if there were no crew.

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};

/// The threads. They end with it.
#[derive(Debug)]
pub struct HelperPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is a new call, or the end.
    called: Condvar,
    /// The last helper of some call has returned.
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    /// Threads that wait for a call, or were just woken for one.
    idle: usize,
    serial: u64,
    ending: bool,
}

/// Work that others may join.
#[derive(Debug)]
struct Call {
    serial: u64,
    work: Work,
    /// How many more may join.
    wanted: usize,
    /// How many joined and have not returned.
    helping: usize,
    panicked: bool,
}

/// The caller's closure, without the lifetime it has.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn() + Sync));

// SAFETY: the closure may be called from several threads (`Sync`), and who may call it when is `Call`'s matter.
unsafe impl Send for Work {}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

impl HelperPool {
    /// Starts `threads` threads, of one name. None is fine: then all work is the caller's.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(name: &str, threads: usize) -> io::Result<Self> {
        let mut crew = Self {
            shared: Arc::default(),
            threads: Vec::with_capacity(threads),
        };
        for _ in 0..threads {
            let shared = crew.shared.clone();
            let help = move || help(&shared);
            crew.threads.push(crate::thread::spawn(name, help)?);
        }
        Ok(crew)
    }

    /// Runs `work` on this thread, and at the same time on up to `hands` threads of the crew that are idle. Returns
    /// when each that began has returned, so `work` may borrow. It is to take pieces off a common list until none is
    /// left: by the time another thread wakes, there may be nothing to do.
    ///
    /// # Panics
    /// If `work` does, on whatever thread.
    pub fn call(&self, hands: usize, work: &(dyn Fn() + Sync)) {
        let Some(serial) = self.post(hands, work) else {
            return work();
        };
        // Waits on drop, so also if `work` panics here.
        let _joined = Joined {
            shared: &self.shared,
            serial,
        };
        work();
    }

    /// Offers `work` to those who are idle. `None` if nobody is.
    fn post(&self, hands: usize, work: &(dyn Fn() + Sync)) -> Option<u64> {
        let mut state = self.shared.state.lock();
        let wanted = hands.min(state.idle);
        if wanted == 0 {
            return None;
        }
        let serial = state.serial;
        state.serial += 1;
        // SAFETY: only the lifetime changes. Threads run it between raising and lowering `helping` of this call, and
        // `Joined`, dropped before `work` ends, takes the call away when none does and none can begin any more.
        let work = unsafe {
            std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync + 'static)>(
                work,
            )
        };
        state.calls.push(Call {
            serial,
            work: Work(work),
            wanted,
            helping: 0,
            panicked: false,
        });
        drop(state);
        for _ in 0..wanted {
            self.shared.called.notify_one();
        }
        Some(serial)
    }
}

impl Drop for HelperPool {
    fn drop(&mut self) {
        self.shared.state.lock().ending = true;
        self.shared.called.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A call that was posted. Dropped, it lets nobody join any more and waits for those who did.
struct Joined<'a> {
    shared: &'a Shared,
    serial: u64,
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let panicked = loop {
            let at = state.place(self.serial);
            state.calls[at].wanted = 0;
            if state.calls[at].helping == 0 {
                break state.calls.swap_remove(at).panicked;
            }
            self.shared.returned.wait(&mut state);
        };
        drop(state);
        assert!(
            !panicked || thread::panicking(),
            "a thread that helped panicked"
        );
    }
}

impl State {
    fn place(&self, serial: u64) -> usize {
        self.calls
            .iter()
            .position(|call| call.serial == serial)
            .expect("a call stays until its caller takes it away")
    }
}

fn help(shared: &Shared) {
    let mut state = shared.state.lock();
    state.idle += 1;
    while !state.ending {
        let Some(call) = state.calls.iter_mut().find(|call| call.wanted > 0) else {
            shared.called.wait(&mut state);
            continue;
        };
        call.wanted -= 1;
        call.helping += 1;
        let (serial, work) = (call.serial, call.work);
        state.idle -= 1;
        drop(state);
        // SAFETY: `helping` is up, so the caller is still in `HelperPool::call` and what it borrows is there.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*work.0)() }));
        state = shared.state.lock();
        state.idle += 1;
        let at = state.place(serial);
        let call = &mut state.calls[at];
        call.helping -= 1;
        call.panicked |= result.is_err();
        if call.helping == 0 {
            shared.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    // Goal: every piece is done once, whoever calls at the same time. Method: lists of callers' stacks, summed by all.
    #[test]
    fn many_callers_share_a_crew_and_each_piece_is_done_once() {
        let crew = HelperPool::new("test", 3).unwrap();
        thread::scope(|scope| {
            for caller in 0..4 {
                let crew = &crew;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let mut pieces = [caller; 20];
                        let left = Mutex::new(pieces.iter_mut());
                        crew.call(round % 4, &|| {
                            while let Some(piece) = { left.lock().next() } {
                                *piece += 10;
                            }
                        });
                        assert_eq!(pieces, [caller + 10; 20], "round {round}");
                    }
                });
            }
        });
    }

    #[test]
    fn an_idle_thread_does_help_and_a_busy_one_is_not_waited_for() {
        let crew = HelperPool::new("test", 1).unwrap();
        while crew.shared.state.lock().idle == 0 {
            thread::yield_now();
        }
        // Both must be inside at once for either to get on.
        let met = Barrier::new(2);
        crew.call(1, &|| {
            if met.wait().is_leader() {
                // The other is still here, so nobody is idle.
                let alone = AtomicUsize::new(0);
                crew.call(1, &|| _ = alone.fetch_add(1, Ordering::Relaxed));
                assert_eq!(alone.into_inner(), 1);
            }
            met.wait();
        });
    }

    #[test]
    fn a_helper_that_panics_is_the_callers_panic_and_the_crew_goes_on() {
        let crew = HelperPool::new("test", 1).unwrap();
        while crew.shared.state.lock().idle == 0 {
            thread::yield_now();
        }
        let caller = thread::current().id();
        let met = Barrier::new(2);
        let result = catch_unwind(AssertUnwindSafe(|| {
            crew.call(1, &|| {
                met.wait();
                assert_eq!(thread::current().id(), caller, "on purpose");
            });
        }));
        assert!(result.is_err());
        let done = AtomicUsize::new(0);
        crew.call(1, &|| _ = done.fetch_add(1, Ordering::Relaxed));
        assert!(done.into_inner() >= 1);
    }
}
