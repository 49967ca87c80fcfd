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
};

// From the parent, so that `tests/schedules.rs` can put a scheduler's in their place.
use super::{
    sync::{Condvar, Mutex},
    thread::{self, JoinHandle},
};

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
            crew.threads.push(thread::spawn(name, help)?);
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

    /// Threads that wait for a call.
    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.shared.state.lock().idle
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
            !panicked || std::thread::panicking(),
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
