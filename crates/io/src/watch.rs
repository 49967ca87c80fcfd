//! Looks for something for a moment before sleeping.
//!
//! Where a thread is woken for every message, most of a round trip is waking up, and whoever wakes it pays too: to
//! interrupt a processor that sleeps takes several microseconds. So after some waits that were short, the thread looks
//! for a moment before it sleeps. It yields between looks, so that whoever has work gets the processor, and only some
//! threads of a process look at a time. One that waits for long never does.

use std::{
    io,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long to look before sleeping: the other side's turn takes less. Half of it did not do: round trips of 4 KiB through
/// a tunnel took 100 µs where looks met what they waited for, and twice that, with all the same, where they missed it.
const WATCH: Duration = Duration::from_micros(200);
/// A wait that would have been no longer than [`WATCH`], had nobody slept.
const SHORT: Duration = Duration::from_micros(300);
/// Short waits in a row that make it worth looking; one look in vain begins anew.
const SHORT_ENOUGH: u8 = 8;

/// Whether it is worth looking, for one place where a thread waits.
#[derive(Debug, Default)]
pub struct Watch {
    /// Short waits in a row, up to [`SHORT_ENOUGH`].
    short: u8,
}

impl Watch {
    /// Looks until there is something, if that is promising; `None` where the caller had better sleep.
    ///
    /// # Errors
    /// Those of `look`.
    pub fn look<T>(
        &mut self,
        mut look: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        if self.short < SHORT_ENOUGH {
            return Ok(None);
        }
        let Some(_turn) = Turn::take() else {
            return Ok(None);
        };
        let begun = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if begun.elapsed() >= WATCH {
                self.short = 0;
                return Ok(None);
            }
            thread::yield_now();
        }
    }

    /// A wait took this long, asleep.
    pub fn waited(&mut self, time: Duration) {
        self.short = if time < SHORT {
            SHORT_ENOUGH.min(self.short + 1)
        } else {
            0
        };
    }

    /// Looks in vain until there were some short waits again.
    pub fn discourage(&mut self) {
        self.short = 0;
    }
}

/// The right of a thread to watch: at most half of the processors are watched from.
struct Turn;

static WATCHING: AtomicUsize = AtomicUsize::new(0);
static WATCHING_MAX: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from) / 2);

impl Turn {
    fn take() -> Option<Self> {
        let turn = (WATCHING.fetch_add(1, Ordering::Relaxed) < *WATCHING_MAX).then(|| Self);
        if turn.is_none() {
            WATCHING.fetch_sub(1, Ordering::Relaxed);
        }
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        WATCHING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test, as watchers of a process share their turns.
    #[test]
    fn only_short_waits_make_it_look_and_one_look_in_vain_ends_that() {
        let (mut watch, mut looks) = (Watch::default(), 0);
        let mut look = |watch: &mut Watch, found: bool| {
            looks = 0;
            let result = watch.look(|| {
                looks += 1;
                Ok(found.then_some(()))
            });
            (result.unwrap().is_some(), looks > 0)
        };
        assert_eq!(
            look(&mut watch, true),
            (false, false),
            "nothing is known yet"
        );
        (0..SHORT_ENOUGH).for_each(|_| watch.waited(Duration::from_micros(10)));
        let one = *WATCHING_MAX > 0;
        assert_eq!(
            look(&mut watch, true),
            (one, one),
            "not on a single processor"
        );
        assert_eq!(look(&mut watch, false), (false, one));
        assert_eq!(look(&mut watch, true), (false, false), "in vain before");
        (0..SHORT_ENOUGH).for_each(|_| watch.waited(Duration::from_micros(10)));
        watch.waited(SHORT);
        assert_eq!(look(&mut watch, true), (false, false), "a long wait before");
    }
}
