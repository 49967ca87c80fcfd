//! What every exported function goes through.

use std::{
    cell::Cell,
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use narrows_gpu_abi::Status;
use parking_lot::Mutex;

use crate::ffi::Answer;

thread_local! {
    /// Whether the call that runs takes the thread's own default stream.
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Set in a child that was forked after the session began: the connection is its parent's.
pub(crate) static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether the call that runs is a `_ptds` or `_ptsz` one.
pub(crate) fn per_thread() -> bool {
    PER_THREAD.get()
}

/// Says something on stderr, as this library's only way to reach a person.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    // A program may have closed it.
    let _ = writeln!(std::io::stderr(), "narrows gpu: {text}");
}

/// Says something once in the process.
pub(crate) fn say_once(text: &str) {
    static SAID: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let new = SAID
        .lock()
        .get_or_insert_with(HashSet::new)
        .insert(text.to_string());
    if new {
        say(text);
    }
}

fn traces() -> bool {
    static TRACES: OnceLock<bool> = OnceLock::new();
    *TRACES.get_or_init(|| std::env::var_os("NARROWS_GPU_TRACE").is_some())
}

/// Runs a call: nothing of ours unwinds into a program.
pub(crate) fn guard(name: &str, per_thread: bool, run: impl FnOnce() -> Answer) -> u32 {
    if FORKED.load(Relaxed) {
        say_once(
            "this process was forked from one that uses CUDA, which CUDA does not support: start it anew \
             (Python: multiprocessing.set_start_method(\"spawn\"))",
        );
        return Status::NOT_INITIALIZED.0;
    }
    let before = PER_THREAD.replace(per_thread);
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        say_once(&format!("{name} failed here; this is a bug of narrows"));
        Err(Status::UNKNOWN)
    });
    PER_THREAD.set(before);
    if traces() {
        let status = result.err().unwrap_or(Status::SUCCESS);
        say(&format!("{name} -> {status}"));
    }
    result.err().unwrap_or(Status::SUCCESS).0
}

/// A function that is exported because programs look for it, and does nothing.
pub(crate) fn refuse(name: &str) -> u32 {
    say_once(&format!(
        "{name} is not implemented; it returns CUDA_ERROR_NOT_SUPPORTED"
    ));
    Status::NOT_SUPPORTED.0
}

/// Defines exported functions. Names before `;` are the same function; those behind it take the thread's own default
/// stream.
macro_rules! api {
    () => {};
    (@all [$($name:ident),*] [$($twin:ident),*] $args:tt $body:block) => {
        $($crate::call::api!(@one $name false $args $body);)*
        $($crate::call::api!(@one $twin true $args $body);)*
    };
    (@one $name:ident $twin:literal ($($arg:ident: $kind:ty),* $(,)?) $body:block) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_variables, reason = "the names are those of cuda.h")]
        pub(crate) extern "C" fn $name($($arg: $kind),*) -> u32 {
            $crate::call::guard(stringify!($name), $twin, || -> $crate::ffi::Answer { $body })
        }
    };
    (
        fn $($name:ident),+ $(; $($twin:ident),+)? ($($args:tt)*) $body:block
        $($rest:tt)*
    ) => {
        $crate::call::api!(@all [$($name),+] [$($($twin),+)?] ($($args)*) $body);
        $crate::call::api!($($rest)*);
    };
}

pub(crate) use api;
