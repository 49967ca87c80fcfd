//! Tests of [`Queue`]. They are no part of its file, which `tests/schedules.rs` compiles as well.

use crate::queue::Queue;

#[test]
fn jobs_take_turns_whatever_the_length_of_their_lines() {
    let queue = Queue::new();
    (0..5).for_each(|n| queue.push(1, (1, n)));
    (0..2).for_each(|n| queue.push(2, (2, n)));
    queue.push(3, (3, 0));
    let order: Vec<_> = (0..8).filter_map(|_| queue.pop(&mut 0)?).collect();
    assert_eq!(
        order,
        [
            (1, 0),
            (2, 0),
            (3, 0),
            (1, 1),
            (2, 1),
            (1, 2),
            (1, 3),
            (1, 4)
        ]
    );
}

#[test]
fn a_forgotten_job_has_nothing_waiting_and_may_come_again() {
    let queue = Queue::new();
    queue.push(1, "old");
    queue.push(2, "other");
    queue.forget(1);
    queue.push(1, "new");
    let heard = &mut 0;
    assert_eq!(queue.pop(heard), Some(Some("other")));
    queue.call();
    assert_eq!(queue.pop(heard), Some(None), "a call");
    assert_eq!(queue.pop(heard), Some(Some("new")));
    queue.close();
    assert_eq!(queue.pop(heard), None);
}
