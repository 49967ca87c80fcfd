//! When memory is managed, by which threads, and what a forked child is told.
//!
//! Nothing is started until the program asks for large memory, so a shell that goes on to run it costs nothing.

use std::{
    cell::Cell,
    env,
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use libc::{c_int, c_void, siginfo_t};
use narrows_memory::run;

use crate::{
    pager::{Config, Kit, Pager},
    sys,
};

/// Whether this process is to be managed. Off in children.
static WANTED: AtomicBool = AtomicBool::new(false);
static PAGER: OnceLock<Pager> = OnceLock::new();

thread_local! {
    /// This thread is one of ours, or in a call of ours: what it allocates is not managed.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A call of the program into this library. While it is there, no signal interrupts the thread, and what it allocates
/// is not managed.
#[derive(Debug)]
pub(crate) struct Call(libc::sigset_t);

impl Call {
    /// `None` where the thread is inside already, or nothing is to be managed.
    pub(crate) fn enter() -> Option<Self> {
        if !WANTED.load(Ordering::Relaxed) || INSIDE.get() {
            return None;
        }
        let before = block_signals();
        INSIDE.set(true);
        Some(Self(before))
    }

    /// The pager, started if need be.
    pub(crate) fn pager(&self) -> &'static Pager {
        PAGER.get_or_init(|| start().unwrap_or_else(|text| sys::fatal(&text)))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        INSIDE.set(false);
        // SAFETY: the set is the one that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// The pager that holds `address`, in whatever process: a forked child asks, too.
pub(crate) fn holder(address: usize) -> Option<&'static Pager> {
    PAGER.get().filter(|pager| pager.holds(address))
}

/// Whether memory is managed here, rather than in the parent of this forked child.
pub(crate) fn is_managed() -> bool {
    WANTED.load(Ordering::Relaxed)
}

fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are filled before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Runs before the program's `main`.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = {
    extern "C" fn init() {
        prepare();
    }
    init
};

/// Reads whether this process is the one to be managed.
fn prepare() {
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    // SAFETY: asks for a number.
    let parent = unsafe { libc::getppid() };
    if number(run::LIMIT).is_none() || number(run::PARENT) != Some(parent as u64) {
        return;
    }
    WANTED.store(true, Ordering::Relaxed);
    // SAFETY: asks for a signal once the parent is gone: nothing of a run that was killed is left.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    if env::var_os(run::CHECK).is_some()
        && let Some(call) = Call::enter()
    {
        let _ = call.pager();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
}

fn start() -> Result<Pager, String> {
    let config = Config {
        limit: env::var(run::LIMIT)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(u64::MAX),
        backing: env::var(run::BACKING).unwrap_or_else(|_| "/tmp".into()),
        counters: env::var(run::COUNTERS).ok(),
    };
    let pager = Pager::new(&config)?;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..(processors / 2).clamp(2, HANDLERS_MAX) {
        spawn("narrows-fault", |pager| {
            let mut kit = Kit::default();
            loop {
                match pager.uffd.wait() {
                    Ok(Some(fault)) => pager.serve(fault, &mut kit),
                    Ok(None) => {}
                    Err(fault) => sys::fatal(&format!("userfaultfd, read: {fault}")),
                }
            }
        })?;
    }
    for _ in 0..processors.clamp(1, WORKERS_MAX) {
        spawn("narrows-pack", Pager::work)?;
    }
    // SAFETY: registers functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    Ok(pager)
}

/// Starts a thread that waits until the pager is there. It takes no signals: its creator blocked them.
fn spawn(name: &str, work: impl FnOnce(&'static Pager) + Send + 'static) -> Result<(), String> {
    let run = move || {
        INSIDE.set(true);
        let pager = PAGER.wait();
        let _ = catch_unwind(AssertUnwindSafe(|| work(pager)));
        sys::fatal("a thread that serves memory has failed");
    };
    let thread = thread::Builder::new().name(name.into()).spawn(run);
    thread
        .map(drop)
        .map_err(|fault| format!("cannot make a thread: {fault}"))
}

/// A child made by `fork` has none of the managed memory and none of the threads. One that goes on to run another
/// program needs neither; one that touches the memory is ended with a sentence.
extern "C" fn in_child() {
    WANTED.store(false, Ordering::Relaxed);
    let mut action: libc::sigaction = {
        // SAFETY: all zeroes is a valid action.
        unsafe { MaybeUninit::zeroed().assume_init() }
    };
    action.sa_sigaction = on_violation as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
    // SAFETY: the action is whole, and its function only makes calls that signals may.
    unsafe { libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()) };
}

extern "C" fn on_violation(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes what belongs to the signal.
    let address = unsafe { (*info).si_addr() } as usize;
    if holder(address).is_some() {
        sys::fatal(FORKED);
    }
    // Not ours: the instruction is tried again, and meets the default.
}

pub(crate) const FORKED: &str = "a child made by fork without exec touched large memory, which it does not have; use spawn (in \
                      Python, multiprocessing's \"spawn\"), or run the program without a limit";
/// More handlers than this only wait for each other.
const HANDLERS_MAX: usize = 8;
const WORKERS_MAX: usize = 16;
