//! The server: jobs of many clients, one queue, fair.
//!
//! A job has two threads, which mostly wait: one takes questions in, one sends answers; so a client that does not read
//! holds up nobody else. Its questions stand in a line of their own (`queue`), and the workers take from
//! the lines in turn.
//!
//! Memory: [`ServerOptions::job_bytes`] is what a job can come to hold, and a job is refused where that does not fit
//! any more. Sessions are bounded by number, and each may fill its window of 4 MiB before it has asked for anything.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use narrows::{
    Buf, Bytes, ChannelReader, ChannelWriter, Code, Endpoint, Engine, Error, Incoming, Plan,
    Settings,
};
use narrows_core::{Limits, Workspace};
use narrows_io::meter::{CpuTime, thread_cpu_ns};
use parking_lot::{Condvar, Mutex};

use crate::{
    BLOCK_LEN_MAX, BLOCK_LEN_MIN, SERVICE,
    message::{self, Answer, Op, Outcome, Question, Reply, Request, Summary},
    method::{Worker, packed_len_max},
    queue::Queue,
    room::Rooms,
};

/// What a server allows.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// Blocks worked on at once. More than processors where a device does the work.
    pub workers: usize,
    /// Blocks that a job may have without an answer.
    pub depth: usize,
    /// Most bytes that all jobs together may hold, the workers' large contexts included.
    pub memory_max: usize,
    /// Clients connected at once.
    pub clients_max: usize,
    /// A block that has waited this long for a worker goes back undone, for its client to pack.
    pub queue_max: Duration,
}

impl ServerOptions {
    /// For `workers` blocks at once: so many under way for a client alone that the link and the workers overlap.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            depth: 2 * workers + 4,
            memory_max: 1 << 30,
            clients_max: 32,
            queue_max: Duration::from_secs(1),
        }
    }

    /// Most bytes that a job with blocks of `block_len` bytes holds: `depth` blocks, as many answers that are being
    /// made, as many that its client has not consumed, each at its longest; and a window of those.
    #[must_use]
    pub fn job_bytes(&self, block_len: usize) -> usize {
        3 * self.depth * chunk_len_max(block_len) + WINDOW_LEN
    }
}

/// How a session of this service is set up, on either side: raw, since raw is what the server wants, and no history.
#[must_use]
pub fn settings() -> Settings {
    let limits = Limits {
        chunk_len_max: chunk_len_max(BLOCK_LEN_MAX),
        history_len_max: 0,
        window_len: WINDOW_LEN,
        channels_max: 1,
        depth: 64,
    };
    Settings::builder()
        .plan(Plan::None)
        .history(false)
        .limits(limits)
        .resume_within(Duration::from_secs(3))
        .build()
}

/// Question or answer for a block of this many bytes, at its longest.
fn chunk_len_max(block_len: usize) -> usize {
    packed_len_max(block_len) + Answer::HEAD_LEN
}

/// Bytes that a side sends ahead of the other's consumption; one block may always go. Enough for 10 Gbit/s over 3 ms,
/// and short since every client may fill it before it has asked for anything.
const WINDOW_LEN: usize = 4 << 20;
/// Bytes of a copy's pieces, below what `memcpy` leaves to `rep movsb`.
const COPY_PIECE: usize = 1 << 10;

/// A server. Its workers end when it is dropped.
#[derive(Debug)]
pub struct Server {
    engine: Engine,
    options: ServerOptions,
    queue: Arc<Queue<Work>>,
    rooms: Arc<Rooms>,
    clients: AtomicUsize,
    next_job: AtomicU64,
}

/// A block in its job's line.
struct Work {
    job: Arc<Job>,
    question: Bytes,
    arrived: Instant,
}

/// What the threads that serve a job share.
struct Job {
    task: Task,
    block_len: usize,
    context_len: usize,
    engine: Engine,
    slots: Slots,
    answers: mpsc::Sender<Buf>,
    work_cpu_ns: AtomicU64,
}

/// What a job needs, in bytes.
struct Need {
    block_len: usize,
    bytes: usize,
    /// What its blocks leave in each worker.
    context_len: usize,
}

/// What is done with a job's blocks.
enum Task {
    Pack(Worker),
    Unpack(Worker),
    Copy { back: u32 },
}

impl Server {
    /// Starts the workers.
    ///
    /// # Errors
    /// The system's, where it has no more threads.
    pub fn start(engine: Engine, options: ServerOptions) -> std::io::Result<Arc<Self>> {
        let server = Self {
            engine,
            options,
            queue: Arc::new(Queue::new()),
            rooms: Rooms::new(options.memory_max, options.workers),
            clients: AtomicUsize::new(0),
            next_job: AtomicU64::new(0),
        };
        for index in 0..options.workers.max(1) {
            let (queue, rooms) = (server.queue.clone(), server.rooms.clone());
            narrows_io::thread::spawn(&format!("offload-{index}"), move || {
                let (mut ws, mut heard) = (Workspace::default(), 0);
                while let Some(work) = queue.pop(&mut heard) {
                    if rooms.shall_drop(index) {
                        ws = Workspace::default();
                    }
                    if let Some(work) = work {
                        rooms.keep(index, work.job.context_len);
                        work.run(&mut ws, options.queue_max);
                    }
                }
            })?;
        }
        Ok(Arc::new(server))
    }

    /// What it allows.
    #[must_use]
    pub fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// Does the jobs of a client, one after the other, until its session ends.
    ///
    /// # Errors
    /// [`Error`] when the session ended otherwise than well.
    pub fn attend(&self, endpoint: &Endpoint) -> Result<(), Error> {
        let clients = self.clients.fetch_add(1, Relaxed) + 1;
        let leave = Leave(&self.clients, 1);
        if clients > self.options.clients_max {
            // It has a moment to hear why, in which it takes nobody's place.
            drop(leave);
            let text = format!(
                "this server has its {} clients; try again later",
                self.options.clients_max
            );
            endpoint.fail(Code::LIMIT, &text);
            return Err(Error::new(Code::LIMIT, text));
        }
        while let Some(incoming) = endpoint.accept()? {
            if let Err(end) = self.serve(incoming) {
                tracing::info!("a job ended early: {end}");
            }
        }
        Ok(())
    }

    fn serve(&self, incoming: Incoming) -> Result<(), Error> {
        let Incoming {
            service,
            mut writer,
            mut reader,
        } = incoming;
        if service != SERVICE {
            let text = format!(
                "this server offers {SERVICE}, not `{}`",
                service.escape_debug()
            );
            writer.abort(Code::PROTOCOL, &text);
            return Err(Error::new(Code::PROTOCOL, text));
        }
        let request: Request = message::hear(&mut reader)?;
        let (task, need) = match self.plan(&request) {
            Ok(plan) => plan,
            Err(text) => {
                message::say(&mut writer, &Reply::Refused { text: text.clone() })?;
                writer.finish()?;
                writer.wait_consumed()?;
                return Err(Error::new(Code::LIMIT, text));
            }
        };
        let (backend, level) = match &task {
            Task::Pack(worker) | Task::Unpack(worker) => (worker.backend, worker.level.0),
            Task::Copy { .. } => ("none", 0),
        };
        let (workers, depth) = (self.options.workers as u32, self.options.depth as u32);
        message::say(
            &mut writer,
            &Reply::Accepted {
                backend: backend.into(),
                level,
                workers,
                depth,
            },
        )?;
        self.carry(task, need, writer, &mut reader)
    }

    /// What is to be done, and what it needs; or why not.
    fn plan(&self, request: &Request) -> Result<(Task, Need), String> {
        let block_len = request.block_len as usize;
        if !(BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&block_len) {
            return Err(format!(
                "blocks of {block_len} bytes; this server takes {BLOCK_LEN_MIN} to {BLOCK_LEN_MAX}"
            ));
        }
        let registry = &self.engine.registry;
        let task = match request.op {
            Op::Pack { method, level } => Task::Pack(
                method
                    .packer(registry, level)
                    .map_err(|fault| fault.to_string())?,
            ),
            Op::Unpack { method } => Task::Unpack(
                method
                    .unpacker(registry)
                    .ok_or("this server has no backend for that")?,
            ),
            Op::Copy { back } => Task::Copy { back },
        };
        let context_len = match &task {
            Task::Pack(worker) => worker.context_len(block_len),
            Task::Unpack(_) | Task::Copy { .. } => 0,
        };
        let need = Need {
            block_len,
            bytes: self.options.job_bytes(block_len),
            context_len,
        };
        // Taken when the first block comes; so late, it may be another's by then.
        self.rooms.look(need.bytes, need.context_len)?;
        Ok((task, need))
    }

    fn carry(
        &self,
        task: Task,
        need: Need,
        writer: ChannelWriter,
        reader: &mut ChannelReader,
    ) -> Result<(), Error> {
        let block_len = need.block_len;
        let id = self.next_job.fetch_add(1, Relaxed);
        let cpu = CpuTime::of_process();
        let (answers, outgoing) = mpsc::channel();
        let job = Arc::new(Job {
            task,
            block_len,
            context_len: need.context_len,
            engine: self.engine.clone(),
            slots: Slots::new(self.options.depth),
            answers,
            work_cpu_ns: AtomicU64::new(0),
        });
        thread::scope(|scope| {
            let (slots, answered) = (job.clone(), outgoing);
            let unconsumed_max =
                (self.options.depth * chunk_len_max(block_len) + WINDOW_LEN) as u64;
            let sending = narrows_io::thread::spawn_scoped(scope, "offload-answers", move || {
                send_answers(writer, &answered, &slots.slots, unconsumed_max)
            })?;
            let mut room = None;
            let taken = loop {
                job.slots.take();
                match reader.next_shared() {
                    Ok(Some(question)) if question.len() > chunk_len_max(block_len) => {
                        let text = "a block longer than the job's";
                        reader.abort(Code::PROTOCOL, text);
                        break Err(Error::new(Code::PROTOCOL, text));
                    }
                    Ok(Some(question)) => {
                        if room.is_none() {
                            room = self.rooms.take(need.bytes, need.context_len).ok();
                        }
                        if room.is_none() {
                            // Others have the room by now: its client packs the block itself.
                            let index = Question::parse(&question).map_or(0, |asked| asked.index);
                            let busy = job.answer(index, Outcome::Busy, 0, 0, &[]);
                            let _ = job.answers.send(busy);
                            continue;
                        }
                        let work = Work {
                            job: job.clone(),
                            question,
                            arrived: Instant::now(),
                        };
                        self.queue.push(id, work);
                    }
                    Ok(None) => break Ok(()),
                    Err(end) => break Err(end),
                }
            };
            job.slots.give();
            if taken.is_ok() {
                job.slots.wait_all();
                let process_cpu_ns = CpuTime::of_process().since(cpu).total_ns();
                let summary = Summary {
                    work_cpu_ns: job.work_cpu_ns.load(Relaxed),
                    process_cpu_ns,
                };
                let text = serde_json::to_vec(&summary).expect("numbers are JSON");
                let _ = job
                    .answers
                    .send(job.answer(0, Outcome::Summary, 0, 0, &text));
            } else {
                self.queue.forget(id);
            }
            // An empty chunk, which no answer is, ends the sending: senders live in works that are being done, too.
            let _ = job.answers.send(job.engine.buffer(0));
            let sent = sending.join().expect("the sender does not panic");
            drop(room);
            // Workers that wait drop what only this job needed.
            self.queue.call();
            taken.and(sent)
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Sends answers until the empty one. Where the client is gone, goes on freeing the slots of what is still being done.
fn send_answers(
    mut writer: ChannelWriter,
    answers: &mpsc::Receiver<Buf>,
    slots: &Slots,
    unconsumed_max: u64,
) -> Result<(), Error> {
    let mut sent = Ok(());
    for answer in answers {
        if answer.is_empty() {
            break;
        }
        if sent.is_ok() {
            sent = writer
                .push(answer)
                .and_then(|()| writer.wait_unconsumed(unconsumed_max));
        }
        slots.give();
    }
    sent?;
    writer.finish()?;
    writer.wait_consumed()
}

impl Work {
    fn run(self, ws: &mut Workspace, queue_max: Duration) {
        let Self {
            job,
            question,
            arrived,
        } = self;
        let queued = arrived.elapsed();
        let began = (Instant::now(), thread_cpu_ns());
        let answer = match Question::parse(&question) {
            Some(question) if queued > queue_max => {
                job.answer(question.index, Outcome::Busy, micros(queued), 0, &[])
            }
            Some(question) => {
                // A panic is a bug in a codec; the block goes back undone and the worker goes on with fresh memory.
                let done = catch_unwind(AssertUnwindSafe(|| job.work(&question, ws)));
                let (outcome, mut chunk) = done.unwrap_or_else(|_| {
                    *ws = Workspace::default();
                    (Outcome::Failed, job.engine.buffer(Answer::HEAD_LEN))
                });
                Answer::write_head(
                    question.index,
                    outcome,
                    micros(queued),
                    micros(began.0.elapsed()),
                    &mut chunk,
                );
                chunk
            }
            None => job.answer(0, Outcome::Failed, micros(queued), 0, &[]),
        };
        job.work_cpu_ns
            .fetch_add(thread_cpu_ns() - began.1, Relaxed);
        // Whoever sends may be gone with its client.
        let _ = job.answers.send(answer);
    }
}

impl Job {
    fn answer(
        &self,
        index: u32,
        outcome: Outcome,
        queue_us: u32,
        device_us: u32,
        bytes: &[u8],
    ) -> Buf {
        let mut chunk = self.engine.buffer(Answer::HEAD_LEN + bytes.len());
        Answer::write_head(index, outcome, queue_us, device_us, &mut chunk);
        chunk[Answer::HEAD_LEN..].copy_from_slice(bytes);
        chunk
    }

    /// The answer's bytes, behind room for its head.
    fn work(&self, question: &Question<'_>, ws: &mut Workspace) -> (Outcome, Buf) {
        let (raw_len, bytes) = (question.raw_len as usize, question.bytes);
        let packed = matches!(self.task, Task::Unpack(_));
        let fits = raw_len <= self.block_len
            && if packed {
                bytes.len() <= packed_len_max(raw_len)
            } else {
                bytes.len() == raw_len
            };
        let mut chunk = self
            .engine
            .buffer(Answer::HEAD_LEN + if fits { raw_len } else { 0 });
        let out = &mut chunk[Answer::HEAD_LEN..];
        let (outcome, len) = match &self.task {
            _ if !fits => (Outcome::Failed, 0),
            Task::Pack(worker) => match worker.pack(bytes, out, ws) {
                Some(len) => (Outcome::Done, len),
                None => (Outcome::NoSmaller, 0),
            },
            Task::Unpack(worker) if worker.unpack(bytes, out, ws) => (Outcome::Done, raw_len),
            Task::Unpack(_) => (Outcome::Failed, 0),
            Task::Copy { back } => {
                let len = copied_len(raw_len, *back);
                // In short pieces: the heads put the two 8 bytes apart, at which Zen 3 copies long ones ten times
                // slower (`rep movsb`).
                for (out, bytes) in out[..len]
                    .chunks_mut(COPY_PIECE)
                    .zip(bytes[..len].chunks(COPY_PIECE))
                {
                    out.copy_from_slice(bytes);
                }
                (Outcome::Done, len)
            }
        };
        chunk.truncate(Answer::HEAD_LEN + len);
        (outcome, chunk)
    }
}

/// How much of a block of `raw_len` bytes comes back of a copy.
pub(crate) fn copied_len(raw_len: usize, back: u32) -> usize {
    ((raw_len as u64 * u64::from(back)) >> 16).min(raw_len as u64) as usize
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// The blocks that a job may have without an answer.
struct Slots {
    free: Mutex<usize>,
    all: usize,
    changed: Condvar,
}

impl Slots {
    fn new(all: usize) -> Self {
        Self {
            free: Mutex::new(all),
            all,
            changed: Condvar::new(),
        }
    }

    fn take(&self) {
        let mut free = self.free.lock();
        while *free == 0 {
            self.changed.wait(&mut free);
        }
        *free -= 1;
    }

    fn give(&self) {
        *self.free.lock() += 1;
        self.changed.notify_all();
    }

    fn wait_all(&self) {
        let mut free = self.free.lock();
        while *free < self.all {
            self.changed.wait(&mut free);
        }
    }
}

/// Gives back what was taken of a counter.
struct Leave<'a>(&'a AtomicUsize, usize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}
