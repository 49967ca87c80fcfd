//! Runs of faults in order, and how far ahead of them to bring blocks.

/// Faults that followed each other.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    last: u32,
    /// Where the next fault is due.
    next: u32,
    back: bool,
    run: u32,
    used: u64,
    /// Faults of writes behind reads: what is brought ahead will be written.
    writes: u8,
}

impl Stream {
    fn is_followed_by(&self, block: u32) -> bool {
        match (self.run, self.back) {
            (0, _) => block.abs_diff(self.last) == 1,
            (_, false) => block > self.last && block <= self.next.saturating_add(SLACK),
            (_, true) => block < self.last && block >= self.next.saturating_sub(SLACK),
        }
    }
}

/// Blocks to bring before they are asked for: from `first` on, upwards or downwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) back: bool,
    /// They will be written, too.
    pub(crate) written: bool,
}

impl Ahead {
    pub(crate) fn blocks(self) -> impl Iterator<Item = u32> {
        (0..self.count).map_while(move |at| match self.back {
            true => self.first.checked_sub(at),
            false => self.first.checked_add(at),
        })
    }
}

/// The last streams.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Streams {
    /// Notes a fault, and says what to bring ahead.
    pub(crate) fn note(&mut self, block: u32) -> Ahead {
        self.clock += 1;
        let clock = self.clock;
        let follows = |stream: &&mut Stream| stream.used > 0 && stream.is_followed_by(block);
        let Some(stream) = self.streams.iter_mut().find(follows) else {
            let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used);
            *oldest.expect("there are some") = Stream {
                last: block,
                next: block,
                used: clock,
                ..Stream::default()
            };
            return Ahead::default();
        };
        if stream.run == 0 {
            stream.back = block < stream.last;
        }
        stream.run += 1;
        stream.used = clock;
        stream.last = block;
        let count = AHEAD_MAX.min(1 << stream.run.min(8));
        let step = |by: u32| match stream.back {
            true => block.saturating_sub(by),
            false => block.saturating_add(by),
        };
        stream.next = step(count + 1);
        Ahead {
            first: step(1),
            count,
            back: stream.back,
            written: stream.writes >= WRITES,
        }
    }

    /// Notes the first write to a block that was brought for a read.
    pub(crate) fn note_write(&mut self, block: u32) {
        let near =
            |stream: &&mut Stream| stream.run > 0 && block.abs_diff(stream.last) <= AHEAD_MAX;
        if let Some(stream) = self.streams.iter_mut().find(near) {
            stream.writes = stream.writes.saturating_add(1);
        }
    }
}

/// Streams that are told apart: a program that reads some arrays and writes others has one for each.
const STREAMS: usize = 24;
/// Blocks brought ahead at most.
const AHEAD_MAX: u32 = 16;
/// A fault so far behind where one is due is still of the stream: blocks between were there.
const SLACK: u32 = 4;
/// So many writes behind reads are believed.
const WRITES: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: order is seen in both directions and among other streams. Method: three streams, fault by fault.
    #[test]
    fn streams_are_seen_beside_each_other() {
        let mut streams = Streams::default();
        let mut found = [0; 3];
        let (mut up, mut down) = (1000, 9000);
        for n in 0..20_u32 {
            let ahead = streams.note(up);
            found[0] += ahead.count;
            up += ahead.count + 1;
            let ahead = streams.note(down);
            assert!(ahead.back || ahead.count == 0);
            found[1] += ahead.count;
            down -= ahead.count + 1;
            found[2] += streams.note(100_000 + n * 7919 % 1000 * 50).count;
        }
        assert_eq!(found, [2 + 4 + 8 + 16 * 16, 2 + 4 + 8 + 16 * 16, 0]);
    }
}
