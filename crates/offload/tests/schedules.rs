//! Interleavings of those who push and pop blocks of jobs, explored by a scheduler.

#[path = "../src/queue.rs"]
#[allow(unreachable_pub, dead_code, reason = "the crate's own file, in part")]
mod queue;
#[path = "../../io/tests/shuttled/mod.rs"]
mod shuttled;

use shuttle::sync::{Arc, Mutex};
use shuttled::{explore, sync};

use self::queue::Queue;

// Goal: whatever the order of steps, each block is taken once, a call wakes those who wait, and after
// the end nobody waits. Method: two jobs push three blocks each, two workers take them, a third thread calls.
#[test]
fn blocks_are_taken_once_under_every_schedule() {
    explore("the queue of blocks", || {
        let queue = Arc::new(Queue::new());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (queue, taken) = (queue.clone(), taken.clone());
                shuttle::thread::spawn(move || {
                    let mut heard = 0;
                    while let Some(work) = queue.pop(&mut heard) {
                        let mut taken = taken.lock().unwrap();
                        taken.extend(work);
                        if taken.len() == 6 {
                            queue.close();
                        }
                    }
                })
            })
            .collect();
        let caller = queue.clone();
        let caller = shuttle::thread::spawn(move || caller.call());
        let jobs = [1, 2].map(|job| {
            let queue = queue.clone();
            shuttle::thread::spawn(move || (0..3).for_each(|block| queue.push(job, (job, block))))
        });
        for thread in workers.into_iter().chain(jobs).chain([caller]) {
            thread.join().unwrap();
        }
        let mut taken = taken.lock().unwrap();
        taken.sort_unstable();
        let all: Vec<_> = [1, 2]
            .into_iter()
            .flat_map(|job| (0..3).map(move |block| (job, block)))
            .collect();
        assert_eq!(*taken, all);
    });
}
