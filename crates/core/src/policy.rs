//! How a chunk's codec is chosen: the words between a pipeline and its policy.
//!
//! A policy is a pure state machine. It reads no clock and touches no thread: `now_ns` comes in with [`Gauges`], what
//! happened comes back as [`Outcome`] and [`Feedback`]. The same calls in the same order always give the same
//! decisions, which is what makes it testable in virtual time.

use std::{fmt::Debug, sync::Arc};

use crate::{CodecId, Level, Seq};

/// First bytes of a chunk on which an audition is held; a shorter chunk is auditioned whole. Long enough to see an LZ
/// codec's speed, short enough that a dozen auditions cost less than a millisecond.
///
/// Auditions run *after* the chunk's own packing, when its frame has gone on, so that they delay no byte.
pub const AUDITION_LEN: usize = 32 << 10;

/// One thing a policy may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Format.
    pub codec: CodecId,
    /// How hard to try.
    pub level: Level,
    /// Most bytes of history to offer the codec; 0 where it takes none.
    pub history_len: u32,
}

impl Candidate {
    /// The chunk as it is.
    pub const RAW: Self = Self {
        codec: CodecId::RAW,
        level: Level(0),
        history_len: 0,
    };
}

/// What the policy wants done with one chunk.
#[derive(Debug, Clone)]
pub struct Decision {
    /// How to pack it.
    pub candidate: Candidate,
    /// The policy's own mark, given back with the outcome. Other parts do not read it.
    pub ticket: u32,
    /// Estimate beside which `--explain` prints the outcome; 0 where the policy makes none.
    pub estimate: Estimate,
    /// Candidates to try on the first bytes of the chunk besides, to learn what they cost on data like this.
    /// Their output is thrown away.
    pub audition: Option<Arc<[Candidate]>>,
    /// In a word or two, for people: `"price"`, `"fixed"`, `"probe says random"`.
    pub why: &'static str,
}

/// What a policy expects of one chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Packed length in bytes.
    pub packed_len: u32,
    /// CPU time to pack, in nanoseconds.
    pub pack_ns: u32,
    /// CPU time to unpack at the receiver, in nanoseconds.
    pub unpack_ns: u32,
    /// What the link was believed to carry, in bytes per second.
    pub link_bytes_per_s: u64,
}

/// State of link and workers at one moment. Counters only grow: a policy takes differences over spans it likes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// The moment, in nanoseconds since the session began.
    pub now_ns: u64,
    /// Threads that pack, as far as there are processors for them.
    pub workers: u32,
    /// Chunks decided on and not yet packed, in all channels that share the workers.
    pub packing: u32,
    /// Packed bytes waiting for the link (not those the kernel holds).
    pub queued_bytes: u64,
    /// Bytes that the link's transport has accepted so far.
    pub sent_bytes: u64,
    /// Bytes that the peer's kernel acknowledged so far; where the transport does not tell, the same as `sent_bytes`.
    pub acked_bytes: u64,
    /// Bytes that the link carried so far while more waited for it, as the peer's kernel acknowledged them; where the
    /// transport does not tell, the same as `sent_bytes`.
    pub link_bytes: u64,
    /// Time in which it carried them; where the transport does not tell, the same as `sending_ns`.
    pub link_ns: u64,
    /// Time in which the link had something to carry all the same: more waited for it, or a queue stood on the way, so
    /// that it did not run dry. No less than `link_ns`.
    pub full_ns: u64,
    /// Time the sender spent writing to the transport so far; while it writes it is held up by the link alone.
    pub sending_ns: u64,
    /// Time the sender had something to send but no credit: the receiver, not the link, held it up.
    pub starved_ns: u64,
    /// The moment at which the last chunk came from the peer, on any channel; 0 where none has.
    pub heard_ns: u64,
}

/// What became of one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Which chunk of its channel.
    pub seq: Seq,
    /// What was chosen.
    pub candidate: Candidate,
    /// The mark from [`Decision::ticket`].
    pub ticket: u32,
    /// Bytes in.
    pub raw_len: u32,
    /// Bytes out, as it travels: `raw_len` where it did not shrink.
    pub packed_len: u32,
    /// Processor time of the worker, in nanoseconds.
    pub cpu_ns: u64,
    /// Time on the clock from start to end of packing. Longer than `cpu_ns` where others wanted the processor.
    pub wall_ns: u64,
    /// Whether this was an audition on a slice rather than the chunk's own packing.
    pub audition: bool,
}

/// What the receiver says of itself. Counters only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Feedback {
    /// The moment it arrived here, in nanoseconds since the session began.
    pub now_ns: u64,
    /// Threads that unpack, as far as there are processors for them.
    pub workers: u32,
    /// Bytes unpacked so far.
    pub raw_bytes: u64,
    /// Processor time spent unpacking so far, in nanoseconds.
    pub unpack_ns: u64,
    /// Processor time spent taking packed bytes from the link and handing raw ones on so far, in nanoseconds.
    pub io_ns: u64,
    /// Time in which its threads had work and no processor so far, all added up, in nanoseconds.
    pub delayed_ns: u64,
    /// Packed bytes that reached the receiver's host and are not unpacked yet: next to nothing while it keeps up.
    pub waiting_bytes: u64,
    /// Time so far during which the sink, not the unpacking, held the receiver up, in nanoseconds.
    pub sink_ns: u64,
}

/// What may be under way when a chunk is decided on. Beyond that the decision should wait: it would be as old as what is
/// before it when it takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Packed bytes waiting for the link.
    pub queued_bytes: u64,
    /// Packed bytes of the channel that the receiver has not consumed.
    pub unconsumed_bytes: u64,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            queued_bytes: u64::MAX,
            unconsumed_bytes: u64::MAX,
        }
    }
}

/// Chooses codec and level for each chunk.
pub trait Policy: Debug + Send {
    /// What users type: `adaptive`, `none`, `fixed`.
    fn name(&self) -> &'static str;

    /// How long the next chunk should be, in bytes. Asked before the chunk is read.
    fn chunk_len(&mut self, gauges: &Gauges) -> usize;

    /// How far ahead of the link and of the receiver the next decision may be.
    fn ahead_max(&self) -> Ahead {
        Ahead::default()
    }

    /// Decides on the next chunk of a channel. Called in order of `seq`. May look at the bytes; a policy that does
    /// touches at most 4 KiB of them. Channels share a policy and read their gauges before they have it, so of two of
    /// them `gauges` may be a moment older than those of the call before.
    fn decide(&mut self, raw: &[u8], gauges: &Gauges) -> Decision;

    /// What became of an earlier decision. Comes in the order in which workers finish.
    fn learn(&mut self, outcome: &Outcome);

    /// What the receiver says. Comes now and then.
    fn feedback(&mut self, feedback: &Feedback);

    /// What the link was measured to carry, in bytes per second; `None` where it never held anything up.
    fn link_bytes_per_s(&self) -> Option<f64> {
        None
    }
}
