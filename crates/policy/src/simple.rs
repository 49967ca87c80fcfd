//! The two policies without a memory: `none` and `fixed`.
//!
//! They are the measure of the adaptive one and the way to reproduce published pipelines, which knew one codec a run.

use narrows_core::{Candidate, Decision, Feedback, Gauges, Outcome, Policy, policy::Estimate};

/// Chunk length where the user names none, in bytes: fits the second-level cache, and costs a few percent of ratio
/// against a megabyte.
pub const CHUNK_LEN_DEFAULT: usize = 256 << 10;

/// Sends every chunk as it is.
#[derive(Debug, Clone, Copy)]
pub struct NonePolicy {
    /// Length of every chunk, in bytes.
    pub chunk_len: usize,
}

impl Default for NonePolicy {
    fn default() -> Self {
        Self {
            chunk_len: CHUNK_LEN_DEFAULT,
        }
    }
}

/// Packs every chunk the same way. A chunk that does not shrink still travels raw, unless the pipeline is told not to
/// ask.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    /// What every chunk gets.
    pub candidate: Candidate,
    /// Length of every chunk, in bytes; a message may be shorter.
    pub chunk_len: usize,
    /// Only chunks shorter than this, in bytes, refer to those before them.
    pub history_below: usize,
}

impl Fixed {
    /// With the default chunk length, and the candidate's history for each chunk.
    #[must_use]
    pub fn new(candidate: Candidate) -> Self {
        Self {
            candidate,
            chunk_len: CHUNK_LEN_DEFAULT,
            history_below: usize::MAX,
        }
    }
}

impl Policy for NonePolicy {
    fn name(&self) -> &'static str {
        "none"
    }
    fn chunk_len(&mut self, _: &Gauges) -> usize {
        self.chunk_len
    }
    fn decide(&mut self, _: &[u8], _: &Gauges) -> Decision {
        always(Candidate::RAW, "none")
    }
    fn learn(&mut self, _: &Outcome) {}
    fn feedback(&mut self, _: &Feedback) {}
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }
    fn chunk_len(&mut self, _: &Gauges) -> usize {
        self.chunk_len
    }
    fn decide(&mut self, chunk: &[u8], _: &Gauges) -> Decision {
        let history_len = if chunk.len() < self.history_below {
            self.candidate.history_len
        } else {
            0
        };
        always(
            Candidate {
                history_len,
                ..self.candidate
            },
            "fixed",
        )
    }
    fn learn(&mut self, _: &Outcome) {}
    fn feedback(&mut self, _: &Feedback) {}
}

fn always(candidate: Candidate, why: &'static str) -> Decision {
    Decision {
        candidate,
        ticket: 0,
        estimate: Estimate::default(),
        audition: None,
        why,
    }
}

#[cfg(test)]
mod tests {
    use narrows_core::{CodecId, Level};

    use super::*;

    #[test]
    fn they_say_the_same_whatever_they_see() {
        let lz4 = Candidate {
            codec: CodecId(1),
            level: Level(1),
            history_len: 0,
        };
        let mut fixed = Fixed {
            chunk_len: 4096,
            ..Fixed::new(lz4)
        };
        let mut none = NonePolicy::default();
        for byte in 0..8 {
            assert_eq!(fixed.decide(&[byte; 99], &Gauges::default()).candidate, lz4);
            assert_eq!(
                none.decide(&[byte; 99], &Gauges::default()).candidate,
                Candidate::RAW
            );
        }
        assert_eq!(
            (fixed.chunk_len(&Gauges::default()), fixed.name()),
            (4096, "fixed")
        );
        assert_eq!(
            (none.chunk_len(&Gauges::default()), none.name()),
            (CHUNK_LEN_DEFAULT, "none")
        );
    }

    #[test]
    fn short_chunks_refer_back() {
        let zstd = Candidate {
            codec: CodecId(1),
            level: Level(1),
            history_len: 512,
        };
        let mut fixed = Fixed {
            history_below: 100,
            ..Fixed::new(zstd)
        };
        let mut history = |len| {
            fixed
                .decide(&vec![0; len], &Gauges::default())
                .candidate
                .history_len
        };
        assert_eq!([history(99), history(100), history(1)], [512, 0, 512]);
    }
}
