//! One channel's sending side: chunks in, frames out in order.
//!
//! Flow of one chunk: [`ChunkPacker::push`] waits until the [`Outlet`] has room, asks the policy, and hands the chunk to a
//! worker; the worker packs, the sequencer restores order, the outlet takes the frame. A raw or small chunk is done on
//! the calling thread: there is nothing to share out.
//!
//! What a worker packs into is its own scratch, copied to a buffer of the right length afterwards: the copy is a
//! tenth of the packing, the scratch stays in cache, and frames waiting for their acknowledgement hold no slack.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use narrows_core::{
    Ahead, Candidate, ChannelId, Clock, CodecId, Decision, Gauges, Outcome, Policy, Registry, Seq,
    Workspace, policy::AUDITION_LEN,
};
use narrows_format::{Frame, Header, chunk_check, packed_len_max};
use parking_lot::Mutex;

use crate::{
    BufferPool, Bytes, History, INLINE_LEN, Sequencer, WorkerPool,
    padding::{pad, padded_len},
};

/// The session has ended; nothing more can be sent. Why is known to whoever ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session has ended")]
pub struct Stopped;

/// Where frames go.
pub trait Outlet: Send + Sync {
    /// Waits until the channel may have one more chunk under way and no more than `most` is. Returns the state of link
    /// and workers with that chunk.
    ///
    /// # Errors
    /// [`Stopped`] when it never will.
    fn admit(&self, channel: ChannelId, most: Ahead) -> Result<Gauges, Stopped>;

    /// One more chunk of the channel is packed, and these frames may leave, in order of sequence: none where one before it
    /// is not packed yet. Does not wait.
    fn packed(&self, channel: ChannelId, frames: &mut dyn Iterator<Item = Frame<Bytes>>);

    /// Lets frames that were submitted leave; `here`, the calling thread may write to the link itself.
    fn flush(&self, here: bool);

    /// State of link and workers.
    fn gauges(&self) -> Gauges;
}

/// Told of each decision and what became of it.
pub type Explain = Arc<dyn Fn(&Decision, &Outcome) + Send + Sync>;

/// What the packers of a session share.
#[derive(Clone)]
pub struct Packing {
    /// Codecs.
    pub registry: Arc<Registry>,
    /// Threads.
    pub pool: Arc<WorkerPool>,
    /// Buffers for frames.
    pub buffers: Arc<BufferPool>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chooses for all channels, since they share link and workers.
    pub policy: Arc<Mutex<Box<dyn Policy>>>,
    /// Where frames go.
    pub outlet: Arc<dyn Outlet>,
    /// Send a chunk raw where packing does not shrink it (the paper's V2); else what the codec made.
    pub keep_if_smaller: bool,
    /// Round the lengths of frames up.
    pub pad: bool,
    /// Longest chunk, in bytes: what the receiver allows.
    pub chunk_len_max: usize,
    /// Most bytes of history a decision may use: what the receiver allows.
    pub history_len_max: usize,
    /// Where `--explain` goes.
    pub explain: Option<Explain>,
}

impl std::fmt::Debug for Packing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packing")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Packs the chunks of one channel.
#[derive(Debug)]
pub struct ChunkPacker {
    shared: Packing,
    channel: ChannelId,
    next_seq: Seq,
    history: History,
    order: Arc<Mutex<Sequencer<Frame<Bytes>>>>,
    ws: Workspace,
}

struct Job {
    shared: Packing,
    channel: ChannelId,
    seq: Seq,
    chunk: Bytes,
    history: History,
    decision: Decision,
    order: Arc<Mutex<Sequencer<Frame<Bytes>>>>,
}

/// A worker's own buffers.
#[derive(Default)]
struct Scratch {
    packed: Vec<u8>,
    history: Vec<u8>,
}

impl ChunkPacker {
    /// A packer for a channel without chunks so far.
    #[must_use]
    pub fn new(shared: Packing, channel: ChannelId) -> Self {
        let history = History::new(shared.history_len_max);
        Self {
            shared,
            channel,
            next_seq: Seq(0),
            history,
            order: Arc::default(),
            ws: Workspace::default(),
        }
    }

    /// How long the next chunk should be, in bytes.
    #[must_use]
    pub fn chunk_len(&self) -> usize {
        let gauges = self.shared.outlet.gauges();
        let len = self.shared.policy.lock().chunk_len(&gauges);
        len.min(self.shared.chunk_len_max)
    }

    /// Sends a chunk on its way; waits while too many are under way.
    ///
    /// # Errors
    /// [`Stopped`] when the session has ended.
    pub fn push(&mut self, chunk: Bytes) -> Result<(), Stopped> {
        if chunk.is_empty() {
            return Ok(());
        }
        // Somebody waits for a message: it does not wait for what other channels queued.
        let most = if chunk.len() <= INLINE_LEN {
            Ahead::default()
        } else {
            self.shared.policy.lock().ahead_max()
        };
        let gauges = self.shared.outlet.admit(self.channel, most)?;
        let decision = self.shared.policy.lock().decide(&chunk, &gauges);
        let candidate = decision.candidate;
        let job = Job {
            shared: self.shared.clone(),
            channel: self.channel,
            seq: self.next_seq,
            history: self.history.last(candidate.history_len as usize),
            chunk: chunk.clone(),
            decision,
            order: self.order.clone(),
        };
        self.next_seq = self.next_seq.next();
        if candidate.codec == CodecId::RAW {
            self.history.push_raw(&chunk)
        } else {
            self.history.push(&chunk)
        }
        if job.decision.audition.is_none()
            && (candidate.codec == CodecId::RAW || chunk.len() <= INLINE_LEN)
        {
            job.run(&mut self.ws);
            self.shared.outlet.flush(true);
        } else {
            self.shared.pool.spawn(move |ws| {
                let job = job.run(ws);
                job.shared.outlet.flush(false);
                if job.decision.audition.is_some() {
                    job.slice().audition_later(0);
                }
            });
        }
        Ok(())
    }
}

impl Job {
    fn run(self, ws: &mut Workspace) -> Self {
        let mut scratch = std::mem::take(ws.get::<Scratch>());
        let candidate = self.decision.candidate;
        let history = self.history.assemble(&mut scratch.history);
        let room = self.room();
        if scratch.packed.len() < room {
            scratch.packed.resize(room, 0);
        }
        let (packed_len, outcome) = self.measure(
            candidate,
            &self.chunk,
            history,
            &mut scratch.packed[..room],
            ws,
        );
        let (codec, payload) = match packed_len {
            Some(len) => {
                let mut payload = self.shared.buffers.take(len);
                payload.copy_from_slice(&scratch.packed[..len]);
                (candidate.codec, Arc::new(payload))
            }
            None => (CodecId::RAW, self.chunk.clone()),
        };
        let (codec, payload) = if self.shared.pad {
            let mut padded = self.shared.buffers.take(padded_len(payload.len()));
            pad(codec, &payload, &mut padded);
            (CodecId::PADDED, Arc::new(padded))
        } else {
            (codec, payload)
        };
        let header = Header {
            codec,
            channel: self.channel,
            seq: self.seq,
            raw_len: self.chunk.len() as u32,
            packed_len: payload.len() as u32,
            history_len: if packed_len.is_some() {
                history.len() as u32
            } else {
                0
            },
            check: chunk_check(self.channel, self.seq, &self.chunk),
        };
        // Before the frame leaves: once the last has arrived, the program may end.
        if let Some(explain) = &self.shared.explain {
            explain(&self.decision, &outcome);
        }
        {
            // Frames leave while the order is held, else two workers could overtake each other on the way out.
            let mut order = self.order.lock();
            order.insert(self.seq.0, Frame { header, payload });
            self.shared
                .outlet
                .packed(self.channel, &mut std::iter::from_fn(|| order.pop()));
        }
        self.shared.policy.lock().learn(&outcome);
        *ws.get::<Scratch>() = scratch;
        self
    }

    /// Bytes the codec may write: one less than raw where it must shrink.
    fn room(&self) -> usize {
        if self.shared.keep_if_smaller {
            self.chunk.len() - 1
        } else {
            packed_len_max(self.chunk.len() as u32) as usize
        }
    }

    /// Packs `raw` and times it. `None` where it travels raw.
    fn measure(
        &self,
        candidate: Candidate,
        raw: &[u8],
        history: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> (Option<usize>, Outcome) {
        let clock = &self.shared.clock;
        let mut outcome = Outcome {
            seq: self.seq,
            candidate,
            ticket: self.decision.ticket,
            raw_len: raw.len() as u32,
            packed_len: raw.len() as u32,
            cpu_ns: 0,
            wall_ns: 0,
            audition: false,
        };
        if candidate.codec == CodecId::RAW {
            return (None, outcome);
        }
        let packer = self
            .shared
            .registry
            .packer(candidate.codec, candidate.level);
        let codec = &packer
            .expect("policies choose among codecs and levels that are registered")
            .codec;
        let (wall, cpu) = (clock.now_ns(), clock.thread_cpu_ns());
        // A panic is a bug in the codec; the chunk then travels raw, and the channel goes on.
        let packed_len = catch_unwind(AssertUnwindSafe(|| {
            codec.pack(raw, candidate.level, history, out, ws)
        }));
        let packed_len = packed_len.unwrap_or_else(|_| {
            *ws = Workspace::default();
            None
        });
        outcome.cpu_ns = clock.thread_cpu_ns() - cpu;
        outcome.wall_ns = clock.now_ns() - wall;
        outcome.packed_len = packed_len.map_or(outcome.raw_len, |len| len as u32);
        (packed_len, outcome)
    }

    /// What auditions need of the job: a copy of its first bytes. However long these wait, the chunk and what was
    /// before it do not.
    fn slice(self) -> Self {
        let len = self.chunk.len().min(AUDITION_LEN);
        let mut slice = self.shared.buffers.take(len);
        slice.copy_from_slice(&self.chunk[..len]);
        Self {
            chunk: Arc::new(slice),
            history: History::default(),
            ..self
        }
    }

    /// Tries other candidates on the slice, one after the other, when the workers have nothing to pack.
    fn audition_later(self, index: usize) {
        let pool = self.shared.pool.clone();
        pool.spawn_later(move |ws| {
            let candidates = self.decision.audition.as_ref().expect("asked for");
            self.audition(candidates[index], ws);
            if index + 1 < candidates.len() {
                self.audition_later(index + 1);
            }
        });
    }

    fn audition(&self, candidate: Candidate, ws: &mut Workspace) {
        let mut scratch = std::mem::take(ws.get::<Scratch>());
        let room = self.chunk.len() - 1;
        if scratch.packed.len() < room {
            scratch.packed.resize(room, 0);
        }
        let (_, mut outcome) =
            self.measure(candidate, &self.chunk, &[], &mut scratch.packed[..room], ws);
        outcome.audition = true;
        self.shared.policy.lock().learn(&outcome);
        *ws.get::<Scratch>() = scratch;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use narrows_core::{
        Backend, Codec, DecodeError, Feedback, Level, codec::Info, policy::Estimate,
    };

    use super::*;

    static INFO: Info = Info {
        id: CodecId(200),
        name: "gate",
        levels: 0..=0,
        level_default: 0,
        history: false,
        format: "one byte for as many of it; a zero waits at the gate",
    };

    #[derive(Debug)]
    struct Gate(Mutex<mpsc::Receiver<()>>);

    impl Codec for Gate {
        fn info(&self) -> &'static Info {
            &INFO
        }

        fn pack(
            &self,
            raw: &[u8],
            _: Level,
            _: &[u8],
            out: &mut [u8],
            _: &mut Workspace,
        ) -> Option<usize> {
            if raw[0] == 0 {
                self.0.lock().recv().ok()?;
            }
            out[0] = raw[0];
            Some(1)
        }

        fn unpack(
            &self,
            _: &[u8],
            _: &[u8],
            _: &mut [u8],
            _: &mut Workspace,
        ) -> Result<(), DecodeError> {
            unreachable!("nothing is received here")
        }
    }

    #[derive(Debug)]
    struct Gates(Arc<Gate>);

    impl Backend for Gates {
        fn name(&self) -> &'static str {
            "gates"
        }

        fn priority(&self) -> i32 {
            0
        }

        fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, narrows_core::Unavailable> {
            Ok(vec![self.0.clone()])
        }
    }

    #[derive(Debug)]
    struct Always;

    impl Policy for Always {
        fn name(&self) -> &'static str {
            "always"
        }

        fn chunk_len(&mut self, _: &Gauges) -> usize {
            CHUNK_LEN
        }

        fn decide(&mut self, _: &[u8], _: &Gauges) -> Decision {
            let candidate = Candidate {
                codec: INFO.id,
                level: Level(0),
                history_len: 0,
            };
            Decision {
                candidate,
                ticket: 0,
                estimate: Estimate::default(),
                audition: None,
                why: "always",
            }
        }

        fn learn(&mut self, _: &Outcome) {}

        fn feedback(&mut self, _: &Feedback) {}
    }

    #[derive(Debug)]
    struct NoTime;

    impl Clock for NoTime {
        fn now_ns(&self) -> u64 {
            0
        }

        fn thread_cpu_ns(&self) -> u64 {
            0
        }
    }

    /// Tells of each packed chunk which frames it let go.
    struct Told(mpsc::Sender<Vec<u64>>);

    impl Outlet for Told {
        fn admit(&self, _: ChannelId, _: Ahead) -> Result<Gauges, Stopped> {
            Ok(Gauges::default())
        }

        fn packed(&self, _: ChannelId, frames: &mut dyn Iterator<Item = Frame<Bytes>>) {
            self.0
                .send(frames.map(|frame| frame.header.seq.0).collect())
                .unwrap();
        }

        fn flush(&self, _: bool) {}

        fn gauges(&self) -> Gauges {
            Gauges::default()
        }
    }

    const CHUNK_LEN: usize = 2 * INLINE_LEN;

    // Goal: the outlet hears of every packed chunk at once, though frames wait for the one before them: who admits
    // chunks by how many are being packed then keeps all workers busy.
    #[test]
    fn a_slow_chunk_holds_up_frames_but_not_workers() {
        let (open, gate) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let mut registry = Registry::default();
        registry
            .add(&Gates(Arc::new(Gate(Mutex::new(gate)))))
            .unwrap();
        let shared = Packing {
            registry: Arc::new(registry),
            pool: WorkerPool::new(2),
            buffers: BufferPool::new(0),
            clock: Arc::new(NoTime),
            policy: Arc::new(Mutex::new(Box::new(Always))),
            outlet: Arc::new(Told(tell)),
            keep_if_smaller: true,
            pad: false,
            chunk_len_max: CHUNK_LEN,
            history_len_max: 0,
            explain: None,
        };
        let mut packer = ChunkPacker::new(shared.clone(), ChannelId(2));
        for seq in 0..4_u8 {
            let mut chunk = shared.buffers.take(CHUNK_LEN);
            chunk.fill(seq);
            packer.push(Bytes::new(chunk)).unwrap();
        }
        let next = || told.recv_timeout(Duration::from_secs(10)).unwrap();
        for _ in 1..4 {
            assert!(next().is_empty(), "the first chunk is at the gate");
        }
        open.send(()).unwrap();
        assert_eq!(next(), [0, 1, 2, 3]);
    }
}
