//! Interleavings of the helper pool's threads, explored by a scheduler.

#[path = "../src/helper_pool.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate's own file, in part")]
mod helper_pool;
mod shuttled;

use shuttle::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use shuttled::{explore, sync, thread};

use self::helper_pool::HelperPool;

// Goal: whatever the order of steps, each piece is done once, a call returns after all who joined it, nobody waits for ever.
// Method: two callers share two helpers; each has pieces on its own stack, which a helper that comes late would find gone.
#[test]
fn calls_share_helpers_under_every_schedule() {
    explore("the helper pool", || {
        let pool = Arc::new(HelperPool::new("helper", 2).unwrap());
        let callers: Vec<_> = (0..2_usize)
            .map(|caller| {
                let pool = pool.clone();
                shuttle::thread::spawn(move || {
                    for hands in [2, 1] {
                        let done: [AtomicUsize; 3] = Default::default();
                        let next = AtomicUsize::new(0);
                        pool.call(hands, &|| {
                            while let Some(piece) = done.get(next.fetch_add(1, Ordering::SeqCst)) {
                                piece.fetch_add(caller + 1, Ordering::SeqCst);
                            }
                        });
                        for piece in &done {
                            assert_eq!(piece.load(Ordering::SeqCst), caller + 1);
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        drop(Arc::into_inner(pool));
    });
}
