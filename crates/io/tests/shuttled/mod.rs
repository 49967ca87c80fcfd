//! The locks and threads that explored code uses, as [`shuttle`]'s: it runs one thread at a time and chooses at each step
//! which, by a seed.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each of the tests that include it uses a part"
)]

/// `parking_lot`'s interface.
pub mod sync {
    use std::ops::{Deref, DerefMut};

    use shuttle::sync::{Condvar as Inner, Mutex as InnerMutex, MutexGuard as InnerGuard};

    #[derive(Debug, Default)]
    pub struct Mutex<T>(InnerMutex<T>);

    /// Empty only within [`Condvar::wait`].
    #[derive(Debug)]
    pub struct MutexGuard<'a, T>(Option<InnerGuard<'a, T>>);

    #[derive(Debug, Default)]
    pub struct Condvar(Inner);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(InnerMutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    impl Condvar {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(held).unwrap());
        }
    }
}

/// `narrows_io::thread`'s interface.
pub mod thread {
    use std::io;

    pub use shuttle::thread::JoinHandle;

    pub fn spawn<T: Send + 'static>(
        name: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        shuttle::thread::Builder::new().name(name.into()).spawn(run)
    }
}

/// Runs `scenario` once for each of `NARROWS_SCHEDULES` schedules, chosen at random from `NARROWS_SEED` on, and says so. A
/// deadlock, a panic or an assertion fails with the schedule.
pub fn explore(what: &str, scenario: impl Fn() + Send + Sync + 'static) {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (schedules, seed) = (number("NARROWS_SCHEDULES", 2000), number("NARROWS_SEED", 1));
    let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(seed, schedules as usize);
    let runs = shuttle::Runner::new(scheduler, shuttle::Config::default()).run(scenario);
    println!("{runs} schedules of {what}");
}
