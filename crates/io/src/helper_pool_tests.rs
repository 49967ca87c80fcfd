//! Tests of [`HelperPool`]. They are no part of its file, which `tests/schedules.rs` compiles as well.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

use crate::helper_pool::HelperPool;

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
    while crew.idle() == 0 {
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
    while crew.idle() == 0 {
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
