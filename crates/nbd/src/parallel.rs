//! Requests side by side: one thread receives, workers run the requests, and each is answered as it finishes.
//!
//! ```text
//! socket ──▶ Intake (receiving thread) ──▶ queue ──▶ worker: device ──▶ Outbox ──▶ socket
//!              payload of a write, in pieces            up to n           whoever finds nobody sending
//! ```
//!
//! Why: a device that waits (a disk, a network) is fast only with many requests in flight. Requests may finish in any
//! order; the protocol allows it. A write longer than a piece is written by pieces, possibly at the same time, and is
//! answered when the last is done; FUA is one sync then.
//!
//! Handing a request to another thread takes about as long as a fast device takes to do it. So while the device has
//! answered quickly of late ([`Pace`]), the receiving thread runs reads and writes itself.
//!
//! Memory: payloads and replies of a connection hold at most [`IN_FLIGHT_MAX`], or one request that is longer. Locks:
//! `queue`, `flight` and `outbox` are never held together, nor while the device or the socket is waited for.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use narrows_core::block::Extent;
use narrows_io::{Shutdown, Transport, TransportRead, TransportWrite, transport::Security};
use parking_lot::{Condvar, Mutex};

use crate::{
    ended::Ended,
    handshake::Agreed,
    inbox::{Inbox, ReceiveError, receive_into},
    out::Out,
    proto::{PIECE, chunk, cmd, cmd_flag},
    request::{Fault, HOLES_FROM, REQUEST_LEN, Request, Terms},
    transmission::TransmissionError,
};

/// Most bytes of payload and replies that a connection holds, unless one request alone is longer.
pub(crate) const IN_FLIGHT_MAX: usize = 64 << 20;
/// Longest piece of a write that the device sees at once, in bytes.
const PIECE_MAX: usize = 1 << 20;
/// Replies that are sent together, at most; each is two slices.
const REPLIES_AT_ONCE: usize = 256;
/// Bytes of replies that are worth a system call while more requests wait.
const SEND_FROM: usize = 64 << 10;
/// Bytes of buffers kept for the next requests.
const SPARE_BYTES: usize = 8 << 20;
/// A device whose requests take less than this is run by the receiving thread, whatever is in flight.
const QUICK: Duration = Duration::from_micros(8);
/// The same while nothing else is in flight: a worker would have to be woken for it.
const QUICK_ALONE: Duration = Duration::from_micros(40);

/// Runs a connection's requests until the client is done or gone.
///
/// # Errors
/// The connection broke, or the client sent something that is no request. What was begun is finished first.
pub(crate) fn transmit(
    transport: Transport,
    agreed: Agreed,
    workers: u16,
    inbox: Inbox,
) -> Result<(), Ended> {
    let Transport {
        mut reader,
        writer,
        shutdown,
        security,
        ..
    } = transport;
    let shared = Arc::new(Shared {
        piece: piece(agreed.export.shape().block_preferred),
        terms: Terms::new(agreed),
        workers_max: workers.max(1).into(),
        queue: Mutex::default(),
        work: Condvar::new(),
        flight: Mutex::default(),
        landed: Condvar::new(),
        outbox: Mutex::new(Outbox {
            writer: Some(writer),
            ..Outbox::default()
        }),
        spare: Mutex::default(),
        pace: Pace::default(),
        shutdown,
        broken: AtomicBool::new(false),
    });
    let mut crew = Workers {
        shared: shared.clone(),
        threads: Vec::new(),
    };
    let mut intake = Intake {
        shared: shared.clone(),
        inbox,
        under_way: UnderWay::None,
    };
    let result = intake.run(&mut *reader, security, &mut crew);
    if result
        .as_ref()
        .is_err_and(|ended| !matches!(ended, Ended::Receive(ReceiveError::Left)))
    {
        shared.broken.store(true, Ordering::Release);
    }
    drop(crew);
    let finished = shared.finish();
    result.and(finished)
}

/// Length of the pieces in which the device sees a long write.
fn piece(block_preferred: u32) -> usize {
    (block_preferred as usize).clamp(PIECE, PIECE_MAX)
}

#[derive(Debug)]
struct Shared {
    terms: Terms,
    piece: usize,
    workers_max: usize,
    queue: Mutex<Queue>,
    /// The queue has something, or is closed.
    work: Condvar,
    flight: Mutex<Flight>,
    /// Something in flight was answered.
    landed: Condvar,
    outbox: Mutex<Outbox>,
    spare: Mutex<Vec<Vec<u8>>>,
    pace: Pace,
    shutdown: Shutdown,
    /// The connection cannot be used any more: what is queued need not be done.
    broken: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Flight {
    bytes: usize,
    requests: usize,
}

#[derive(Debug)]
enum Job {
    /// Part of a write, at this offset.
    Piece(Arc<Write>, u64, Vec<u8>),
    /// Anything else.
    Request(Request),
}

/// A write whose pieces are on their way.
#[derive(Debug)]
struct Write {
    request: Request,
    /// Bytes that the device has not answered for.
    left: AtomicU32,
    fault: Mutex<Option<Fault>>,
}

/// How long the device takes for a read or write, lately. A mean that follows an eighth of each new time.
#[derive(Debug)]
struct Pace(AtomicU64);

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicU64::new(u64::from(u32::MAX)))
    }
}

impl Pace {
    fn took(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos())
            .unwrap_or(u64::MAX)
            .min(u64::from(u32::MAX));
        let before = self.0.load(Ordering::Relaxed);
        let mean = if before == u64::from(u32::MAX) {
            ns
        } else {
            before - before / 8 + ns / 8
        };
        self.0.store(mean, Ordering::Relaxed);
    }

    fn below(&self, limit: Duration) -> bool {
        u128::from(self.0.load(Ordering::Relaxed)) < limit.as_nanos()
    }
}

/// A reply: a head, and data behind it where there is any.
#[derive(Debug)]
struct Reply {
    head: Out,
    body: Vec<u8>,
}

impl Reply {
    fn head(head: Out) -> Self {
        Self {
            head,
            body: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.head.bytes().len() + self.body.len()
    }
}

/// Replies that wait, and the writing half while nobody sends.
#[derive(Default)]
struct Outbox {
    replies: Vec<Reply>,
    bytes: usize,
    /// What leaves the flight once these are sent.
    owed: Flight,
    writer: Option<Box<dyn TransportWrite>>,
    fault: Option<io::Error>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox")
            .field("replies", &self.replies.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Waits until `bytes` more may be held, and holds them.
    fn depart(&self, bytes: usize) {
        let mut flight = self.flight.lock();
        while flight.requests > 0
            && flight.bytes + bytes > IN_FLIGHT_MAX
            && !self.broken.load(Ordering::Acquire)
        {
            self.landed.wait(&mut flight);
        }
        flight.bytes += bytes;
        flight.requests += 1;
    }

    /// A buffer of this length, for a caller who overwrites it all.
    fn buffer(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.spare.lock().pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    fn give_back(&self, buffers: impl Iterator<Item = Vec<u8>>) {
        let mut spare = self.spare.lock();
        for buffer in buffers {
            if spare.len() < SPARE_BYTES / self.piece
                && (1..=self.piece).contains(&buffer.capacity())
            {
                spare.push(buffer);
            }
        }
    }

    /// Puts part of a request's answer behind what waits to be sent.
    fn answer(&self, reply: Reply) {
        let mut outbox = self.outbox.lock();
        outbox.bytes += reply.len();
        outbox.replies.push(reply);
    }

    /// The last of a request's answer: once it is sent, the request is in flight no more.
    fn answer_last(&self, reply: Reply, request: &Request) {
        let mut outbox = self.outbox.lock();
        outbox.bytes += reply.len();
        outbox.replies.push(reply);
        outbox.owed.bytes += weight(request);
        outbox.owed.requests += 1;
    }

    /// Sends what waits, unless another thread is at it: that one sends ours too.
    fn send(&self) {
        let mut outbox = self.outbox.lock();
        while !outbox.replies.is_empty() {
            let Some(mut writer) = outbox.writer.take() else {
                return;
            };
            let replies = std::mem::take(&mut outbox.replies);
            let owed = std::mem::take(&mut outbox.owed);
            outbox.bytes = 0;
            drop(outbox);
            let sent = if self.broken.load(Ordering::Acquire) {
                Ok(())
            } else {
                write(&mut *writer, &replies)
            };
            self.give_back(replies.into_iter().map(|reply| reply.body));
            self.land(owed);
            outbox = self.outbox.lock();
            outbox.writer = Some(writer);
            if let Err(fault) = sent {
                outbox.fault.get_or_insert(fault);
                drop(outbox);
                self.give_up();
                return;
            }
        }
    }

    fn land(&self, owed: Flight) {
        let mut flight = self.flight.lock();
        flight.bytes -= owed.bytes;
        flight.requests -= owed.requests;
        drop(flight);
        self.landed.notify_all();
    }

    /// Ends the connection from any thread.
    fn give_up(&self) {
        self.broken.store(true, Ordering::Release);
        self.shutdown.abort();
        let _flight = self.flight.lock();
        self.landed.notify_all();
    }

    /// After the workers ended: the end of the stream, and what went wrong.
    fn finish(&self) -> Result<(), Ended> {
        self.send();
        let mut outbox = self.outbox.lock();
        if let Some(fault) = outbox.fault.take() {
            return Err(fault.into());
        }
        if let Some(writer) = &mut outbox.writer {
            writer.finish()?;
        }
        Ok(())
    }

    fn run(&self, job: Job) {
        match job {
            Job::Piece(write, offset, data) => self.run_piece(&write, offset, data),
            Job::Request(request) if request.command == cmd::READ && request.len > 0 => {
                self.run_read(&request);
            }
            Job::Request(request) if request.command == cmd::BLOCK_STATUS => {
                let mut head = Out::default();
                if let Err(fault) = self.terms.block_status(&request, &mut head) {
                    self.terms.reply(&request, Err(fault), &mut head);
                }
                self.answer_last(Reply::head(head), &request);
            }
            Job::Request(request) => {
                let result = self.terms.perform(&request).map_err(Fault::from);
                self.reply(&request, result);
            }
        }
    }

    fn reply(&self, request: &Request, result: Result<(), Fault>) {
        let mut head = Out::default();
        self.terms.reply(request, result, &mut head);
        self.answer_last(Reply::head(head), request);
    }

    fn run_piece(&self, write: &Write, offset: u64, data: Vec<u8>) {
        let (request, device) = (&write.request, self.terms.device());
        let len = data.len() as u32;
        let whole = len == request.len;
        let begun = Instant::now();
        let mut result = device.write(offset, &data, request.fua() && whole);
        if !request.fua() {
            self.pace.took(begun.elapsed());
        }
        self.give_back([data].into_iter());
        let last = write.left.fetch_sub(len, Ordering::AcqRel) == len;
        if last && !whole && request.fua() && result.is_ok() && write.fault.lock().is_none() {
            result = device.flush();
        }
        if let Err(error) = result {
            write.fault.lock().get_or_insert(error.into());
        }
        if last {
            let fault = write.fault.lock().take();
            self.reply(request, fault.map_or(Ok(()), Err));
        }
    }

    fn run_read(&self, request: &Request) {
        let begun = Instant::now();
        if self.terms.agreed.structured {
            self.run_structured(request);
        } else {
            // A simple reply is one head and all data, so all of it is read before the first byte leaves.
            let mut body = self.buffer(request.len as usize);
            match self.terms.device().read(request.offset, &mut body) {
                Ok(()) => {
                    let mut head = Out::default();
                    head.simple(request.cookie, 0);
                    self.answer_last(Reply { head, body }, request);
                }
                Err(error) => self.reply(request, Err(error.into())),
            }
        }
        self.pace.took(begun.elapsed());
    }

    /// A read answered by chunks: data up to a piece each, or holes.
    fn run_structured(&self, request: &Request) {
        let whole = request.flags & cmd_flag::DF != 0;
        let mut extents: Vec<Extent> = Vec::new();
        let (mut offset, end) = (request.offset, request.offset + u64::from(request.len));
        while offset < end {
            let mut len = ((end - offset) as usize).min(self.piece);
            let mut hole = false;
            if !whole && len >= HOLES_FROM {
                (len, hole) = self.terms.run(offset, len, &mut extents);
            }
            let last = offset + len as u64 == end;
            let mut head = Out::default();
            let mut body = Vec::new();
            if hole {
                head.chunk(request.cookie, chunk::OFFSET_HOLE, last, 12);
                head.put(&offset.to_be_bytes());
                head.put(&(len as u32).to_be_bytes());
            } else {
                body = self.buffer(len);
                if let Err(error) = self.terms.device().read(offset, &mut body) {
                    return self.reply(request, Err(error.into()));
                }
                head.chunk(request.cookie, chunk::OFFSET_DATA, last, 8 + len);
                head.put(&offset.to_be_bytes());
            }
            let reply = Reply { head, body };
            if last {
                self.answer_last(reply, request);
            } else {
                self.answer(reply);
                self.send();
            }
            offset += len as u64;
        }
    }

    /// Runs a job and sends, unless more small ones come at once.
    fn run_and_send(&self, job: Job, more: bool) {
        // A device that panics must not leave its client waiting for an answer for ever.
        if catch_unwind(AssertUnwindSafe(|| self.run(job))).is_err() {
            return self.give_up();
        }
        if more && self.pace.below(QUICK_ALONE) && self.outbox.lock().bytes < SEND_FROM {
            return;
        }
        self.send();
    }
}

/// Bytes that a request holds while it is in flight.
fn weight(request: &Request) -> usize {
    match request.command {
        cmd::READ | cmd::WRITE => request.len as usize + REQUEST_LEN,
        _ => REQUEST_LEN,
    }
}

fn write(writer: &mut dyn TransportWrite, replies: &[Reply]) -> io::Result<()> {
    for some in replies.chunks(REPLIES_AT_ONCE) {
        let mut slices = Vec::with_capacity(2 * some.len());
        for reply in some {
            let parts = [reply.head.bytes(), &reply.body[..]];
            slices.extend(
                parts
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .map(IoSlice::new),
            );
        }
        if !slices.is_empty() {
            writer.write_slices(&mut slices)?;
        }
    }
    writer.flush()
}

/// The threads that run requests. They end with it, after what is queued.
struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Queues a job for some worker, and starts one where all are busy and there may be more.
    fn queue(&mut self, job: Job) {
        let shared = &self.shared;
        let mut queue = shared.queue.lock();
        queue.jobs.push_back(job);
        let waiting = queue.jobs.len();
        let idle = queue.idle;
        drop(queue);
        if waiting <= idle {
            shared.work.notify_one();
            return;
        }
        if self.threads.len() < shared.workers_max {
            let theirs = shared.clone();
            match narrows_io::thread::spawn("nbd-work", move || work(&theirs)) {
                Ok(thread) => self.threads.push(thread),
                Err(fault) if self.threads.is_empty() => {
                    tracing::warn!("requests run one after the other: {fault}");
                    let job = shared.queue.lock().jobs.pop_front();
                    if let Some(job) = job {
                        shared.run_and_send(job, false);
                    }
                }
                Err(fault) => tracing::debug!("no more workers: {fault}"),
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    // Another worker may have taken the job for whose sake replies were kept back.
    let mut unsent = false;
    let mut queue = shared.queue.lock();
    loop {
        if shared.broken.load(Ordering::Acquire) {
            queue.jobs.clear();
        }
        if let Some(job) = queue.jobs.pop_front() {
            let more = !queue.jobs.is_empty();
            drop(queue);
            shared.run_and_send(job, more);
            unsent = more;
            queue = shared.queue.lock();
        } else if unsent {
            drop(queue);
            shared.send();
            unsent = false;
            queue = shared.queue.lock();
        } else if queue.closed {
            return;
        } else {
            queue.idle += 1;
            shared.work.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}

/// The receiving side: bytes to jobs.
struct Intake {
    shared: Arc<Shared>,
    inbox: Inbox,
    under_way: UnderWay,
}

/// The write whose payload is not all there yet.
enum UnderWay {
    None,
    /// `buffer` is the next piece, filled up to `filled`; `done` bytes of the payload are queued.
    Write {
        write: Arc<Write>,
        buffer: Vec<u8>,
        filled: usize,
        done: u32,
    },
    /// The payload of a write that was refused.
    Skip {
        request: Request,
        fault: Fault,
        left: usize,
    },
}

impl Intake {
    fn run(
        &mut self,
        reader: &mut dyn TransportRead,
        security: Security,
        workers: &mut Workers,
    ) -> Result<(), Ended> {
        loop {
            if !self.advance(workers)? {
                return Ok(());
            }
            self.shared.send();
            if self.shared.broken.load(Ordering::Acquire) {
                return Ok(());
            }
            let lone = self.shared.flight.lock().requests == 0;
            match &mut self.under_way {
                UnderWay::Write { buffer, filled, .. } if self.inbox.bytes().is_empty() => {
                    *filled += receive_into(reader, &mut buffer[*filled..])?;
                }
                _ => self.inbox.receive(reader, security, lone)?,
            }
        }
    }

    /// Takes all that is there. False once the client is done.
    fn advance(&mut self, workers: &mut Workers) -> Result<bool, Ended> {
        loop {
            match &mut self.under_way {
                UnderWay::None => {
                    let Some(header) = self.inbox.bytes().get(..REQUEST_LEN) else {
                        return Ok(true);
                    };
                    let request = Request::parse(header).ok_or(TransmissionError::Protocol)?;
                    self.inbox.take(REQUEST_LEN);
                    if request.command == cmd::DISC {
                        return Ok(false);
                    }
                    self.begin(request, workers);
                }
                UnderWay::Skip { left, .. } => {
                    let len = (*left).min(self.inbox.bytes().len());
                    self.inbox.take(len);
                    *left -= len;
                    if *left > 0 {
                        return Ok(true);
                    }
                    let under_way = std::mem::replace(&mut self.under_way, UnderWay::None);
                    if let UnderWay::Skip { request, fault, .. } = under_way {
                        self.shared.reply(&request, Err(fault));
                    }
                }
                UnderWay::Write { buffer, filled, .. } => {
                    let bytes = self.inbox.bytes();
                    let len = bytes.len().min(buffer.len() - *filled);
                    buffer[*filled..*filled + len].copy_from_slice(&bytes[..len]);
                    *filled += len;
                    self.inbox.take(len);
                    if *filled < buffer.len() {
                        return Ok(true);
                    }
                    self.hand_over(workers);
                }
            }
        }
    }

    fn begin(&mut self, request: Request, workers: &mut Workers) {
        let held = match (request.command, self.shared.terms.check(&request)) {
            (cmd::WRITE, Err(fault)) => {
                // Its payload is passed over, not held.
                self.under_way = UnderWay::Skip {
                    request: Request { len: 0, ..request },
                    fault,
                    left: request.len as usize,
                };
                return self.depart(REQUEST_LEN);
            }
            (_, Err(fault)) => {
                self.depart(weight(&request));
                return self.shared.reply(&request, Err(fault));
            }
            (_, Ok(())) => weight(&request),
        };
        self.depart(held);
        if request.command != cmd::WRITE {
            return self.dispatch(Job::Request(request), workers);
        }
        if request.len == 0 {
            return self.shared.reply(&request, Ok(()));
        }
        self.under_way = UnderWay::Write {
            buffer: self
                .shared
                .buffer(self.piece_at(request.offset, request.len as usize)),
            write: Arc::new(Write {
                request,
                left: AtomicU32::new(request.len),
                fault: Mutex::default(),
            }),
            filled: 0,
            done: 0,
        };
    }

    /// Counts a request in. What waits to be sent goes first where there is no room: it may be all that is in flight.
    fn depart(&self, bytes: usize) {
        let flight = *self.shared.flight.lock();
        if flight.requests > 0 && flight.bytes + bytes > IN_FLIGHT_MAX {
            self.shared.send();
        }
        self.shared.depart(bytes);
    }

    /// Length of the piece at `offset`: up to the next multiple of a piece, so that later ones are aligned.
    fn piece_at(&self, offset: u64, left: usize) -> usize {
        let piece = self.shared.piece;
        (piece - (offset % piece as u64) as usize).min(left)
    }

    /// Queues the piece that is full, and goes on with the next or with the next request.
    fn hand_over(&mut self, workers: &mut Workers) {
        let under_way = std::mem::replace(&mut self.under_way, UnderWay::None);
        let UnderWay::Write {
            write,
            buffer,
            mut done,
            ..
        } = under_way
        else {
            return;
        };
        let request = write.request;
        let offset = request.offset + u64::from(done);
        done += buffer.len() as u32;
        self.dispatch(Job::Piece(write.clone(), offset, buffer), workers);
        if done < request.len {
            let next = request.offset + u64::from(done);
            let len = self.piece_at(next, (request.len - done) as usize);
            self.under_way = UnderWay::Write {
                buffer: self.shared.buffer(len),
                write,
                filled: 0,
                done,
            };
        }
    }

    fn dispatch(&self, job: Job, workers: &mut Workers) {
        let quick = match &job {
            Job::Piece(write, ..) => !write.request.fua(),
            Job::Request(request) => request.command == cmd::READ,
        };
        let alone = || self.shared.flight.lock().requests <= 1 && self.inbox.bytes().is_empty();
        let pace = &self.shared.pace;
        if quick && (pace.below(QUICK) || (pace.below(QUICK_ALONE) && alone())) {
            self.shared
                .run_and_send(job, !self.inbox.bytes().is_empty());
        } else {
            workers.queue(job);
        }
    }
}

#[cfg(test)]
mod tests;
