//! Streams: queues of work, each done in order by a thread of its own, and what waits for what.
//!
//! Every wait is for work that was submitted before, so no two streams can wait for each other. The legacy stream waits
//! for all blocking ones and they for it (CUDA C++ Programming Guide, "Default Stream").
//!
//! The first failure ends the session's work as it ends a context's: what follows is skipped, but bytes of copies still
//! travel, since the client counts on them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    thread::JoinHandle,
    time::Instant,
};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::ids::LEGACY_STREAM;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    Failure,
    device::{Done, Faults, Until},
};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// Work of a stream that may wait before its client is made to wait.
const QUEUE_LEN: usize = 16 << 10;
/// The same while a stream waits for a function of the client, which may come through the same door.
const QUEUE_LEN_MAX: usize = 1 << 20;

/// One piece of work. It is given the failure that ended the session's work, if there was one.
pub(super) type Work = Box<dyn FnOnce(Option<&Failure>) -> Result<(), Failure> + Send>;
/// A stream, and how much of its work counts.
type Point = (u64, u64);

struct Op {
    after: Vec<Point>,
    work: Work,
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<Op>,
    submitted: u64,
    done: u64,
    busy: bool,
    blocking: bool,
    closing: bool,
    thread: bool,
}

impl Stream {
    /// Whether somebody waits for what other work may change: its thread, or one that adds work to it.
    fn awaits_a_change(&self) -> bool {
        !self.queue.is_empty() || self.closing
    }
}

#[derive(Default)]
struct Event {
    record: Option<Point>,
    at: Option<Instant>,
}

#[derive(Default)]
struct State {
    streams: HashMap<u64, Stream>,
    events: HashMap<u64, Event>,
    waiters: Vec<(Vec<Point>, Done)>,
    poison: Option<Failure>,
    stopping: bool,
    callbacks: usize,
    threads: Vec<JoinHandle<()>>,
}

impl State {
    fn is_done(&self, points: &[Point]) -> bool {
        points.iter().all(|(id, seq)| {
            self.streams
                .get(id)
                .is_none_or(|stream| stream.done >= *seq)
        })
    }

    fn stream(&mut self, id: u64) -> Result<&mut Stream, Failure> {
        self.streams
            .get_mut(&id)
            .ok_or_else(|| Failure::from(Status::INVALID_HANDLE))
    }

    /// What work on `id` that is submitted now has to wait for besides its own stream.
    fn order(&self, id: u64) -> Vec<Point> {
        let open = |(id, stream): (&u64, &Stream)| {
            (stream.submitted > stream.done).then_some((*id, stream.submitted))
        };
        if id == LEGACY_STREAM {
            let others = self.streams.iter();
            return others
                .filter(|(other, stream)| **other != id && stream.blocking)
                .filter_map(open)
                .collect();
        }
        let blocking = self.streams.get(&id).is_some_and(|stream| stream.blocking);
        let legacy = self.streams.get_key_value(&LEGACY_STREAM);
        legacy
            .filter(|_| blocking)
            .and_then(open)
            .into_iter()
            .collect()
    }

    fn points(&self, until: Until) -> Vec<Point> {
        match until {
            Until::Stream(id) => {
                let mut points = self.order(id);
                points.extend(self.streams.get(&id).map(|stream| (id, stream.submitted)));
                points
            }
            Until::All => {
                let streams = self.streams.iter();
                streams
                    .map(|(id, stream)| (*id, stream.submitted))
                    .collect()
            }
            Until::Event(id) => {
                let event = self.events.get(&id);
                event.and_then(|event| event.record).into_iter().collect()
            }
        }
    }

    /// Waiters whose time has come, with what they are told.
    fn due(&mut self) -> Vec<(Done, Result<(), Failure>)> {
        let waiters = std::mem::take(&mut self.waiters);
        let (due, rest) = waiters
            .into_iter()
            .partition(|(points, _)| self.stopping || self.is_done(points));
        self.waiters = rest;
        let result = self.result();
        due.into_iter()
            .map(|(_, done)| (done, result.clone()))
            .collect()
    }

    fn result(&self) -> Result<(), Failure> {
        self.poison.clone().map_or(Ok(()), Err)
    }
}

/// The streams and events of a session.
pub(super) struct Streams {
    state: Mutex<State>,
    changed: Condvar,
    faults: Faults,
}

impl Streams {
    /// With the legacy stream only.
    #[must_use]
    pub(super) fn new(faults: Faults) -> Arc<Self> {
        let streams = Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            faults,
        };
        streams
            .state
            .lock()
            .streams
            .insert(LEGACY_STREAM, Stream::default());
        Arc::new(streams)
    }

    /// Adds a stream.
    pub(super) fn create(&self, id: u64, flags: u32) {
        let stream = Stream {
            blocking: flags & NON_BLOCKING == 0,
            ..Stream::default()
        };
        self.state.lock().streams.insert(id, stream);
    }

    /// Removes a stream once its work is done.
    pub(super) fn destroy(&self, id: u64) {
        let mut state = self.state.lock();
        let Some(stream) = state.streams.get_mut(&id) else {
            return;
        };
        stream.closing = true;
        if !stream.thread && stream.queue.is_empty() && !stream.busy {
            state.streams.remove(&id);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Adds an event.
    pub(super) fn event_create(&self, id: u64) {
        self.state.lock().events.insert(id, Event::default());
    }

    /// Forgets an event; work that waits for its record still does.
    pub(super) fn event_destroy(&self, id: u64) {
        self.state.lock().events.remove(&id);
    }

    /// Records an event behind the stream's work.
    ///
    /// # Errors
    /// As [`Streams::submit`].
    pub(super) fn record(self: &Arc<Self>, event: u64, stream: u64) -> Result<(), Failure> {
        let point = {
            let mut state = self.state.lock();
            let point = (stream, state.stream(stream)?.submitted + 1);
            let noted = state.events.entry(event).or_default();
            *noted = Event {
                record: Some(point),
                at: None,
            };
            point
        };
        let streams = self.clone();
        let note: Work = Box::new(move |_| {
            let mut state = streams.state.lock();
            if let Some(noted) = state.events.get_mut(&event)
                && noted.record == Some(point)
            {
                noted.at = Some(Instant::now());
            }
            Ok(())
        });
        self.submit(stream, true, note)
    }

    /// Holds the stream until the event's last record.
    ///
    /// # Errors
    /// As [`Streams::submit`].
    pub(super) fn wait_event(self: &Arc<Self>, stream: u64, event: u64) -> Result<(), Failure> {
        let after = self.state.lock().points(Until::Event(event));
        if after.is_empty() {
            return Ok(());
        }
        self.submit_after(stream, after, true, Box::new(|_| Ok(())))
    }

    /// Milliseconds between two records.
    ///
    /// # Errors
    /// [`Status::NOT_READY`] where one is to come, [`Status::INVALID_HANDLE`] where one was never asked for.
    pub(super) fn elapsed(&self, start: u64, end: u64) -> Result<f32, Failure> {
        let state = self.state.lock();
        let at = |id: u64| {
            let event = state.events.get(&id);
            match event.map(|event| (event.record, event.at)) {
                Some((Some(_), Some(at))) => Ok(at),
                Some((Some(_), None)) => Err(Failure::from(Status::NOT_READY)),
                _ => Err(Failure::new(
                    Status::INVALID_HANDLE,
                    "an event without a record",
                )),
            }
        };
        let (start, end) = (at(start)?, at(end)?);
        let ms = |later: Instant, sooner| later.duration_since(sooner).as_secs_f32() * 1e3;
        Ok(if end >= start {
            ms(end, start)
        } else {
            -ms(start, end)
        })
    }

    /// Whether it has come.
    ///
    /// # Errors
    /// [`Status::NOT_READY`], or what ended the session's work.
    pub(super) fn query(&self, until: Until) -> Result<(), Failure> {
        let state = self.state.lock();
        state.result()?;
        let done = state.is_done(&state.points(until));
        if done {
            Ok(())
        } else {
            Err(Failure::from(Status::NOT_READY))
        }
    }

    /// Tells `done` when it has come.
    pub(super) fn wait(&self, until: Until, done: Done) {
        let mut state = self.state.lock();
        let points = state.points(until);
        if !state.is_done(&points) {
            state.waiters.push((points, done));
            return;
        }
        let result = state.result();
        drop(state);
        done(result);
    }

    /// Adds work to a stream. What is `quick` may be done at once, by the caller.
    ///
    /// # Errors
    /// The stream is unknown, has too much to do, or no thread can be had.
    pub(super) fn submit(
        self: &Arc<Self>,
        id: u64,
        quick: bool,
        work: Work,
    ) -> Result<(), Failure> {
        self.submit_after(id, Vec::new(), quick, work)
    }

    fn submit_after(
        self: &Arc<Self>,
        id: u64,
        mut after: Vec<Point>,
        quick: bool,
        work: Work,
    ) -> Result<(), Failure> {
        let mut state = self.state.lock();
        while state.stream(id)?.queue.len() >= QUEUE_LEN && state.callbacks == 0 {
            self.changed.wait(&mut state);
        }
        after.extend(state.order(id));
        after.retain(|point| !state.is_done(&[*point]));
        let stream = state.stream(id)?;
        if stream.queue.len() >= QUEUE_LEN_MAX {
            return Err(Failure::new(
                Status::OUT_OF_MEMORY,
                "too much work waits in a stream",
            ));
        }
        stream.submitted += 1;
        if quick && after.is_empty() && stream.queue.is_empty() && !stream.busy {
            stream.busy = true;
            drop(self.run(state, id, work));
            return Ok(());
        }
        stream.queue.push_back(Op { after, work });
        if !std::mem::replace(&mut stream.thread, true) {
            let streams = self.clone();
            let thread = narrows_io::thread::spawn("gpu-stream", move || streams.work(id));
            match thread {
                Ok(thread) => {
                    state.threads.retain(|thread| !thread.is_finished());
                    state.threads.push(thread);
                }
                Err(fault) => {
                    let stream = state.stream(id)?;
                    stream.thread = false;
                    stream.queue.pop_back();
                    stream.submitted -= 1;
                    return Err(Failure::new(Status::OUT_OF_MEMORY, fault.to_string()));
                }
            }
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Does one piece of work without the lock; the stream is marked busy.
    fn run<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: u64,
        work: Work,
    ) -> MutexGuard<'a, State> {
        let poison = state.poison.clone();
        let result = MutexGuard::unlocked(&mut state, || work(poison.as_ref()));
        if let Err(failure) = result
            && state.poison.is_none()
        {
            state.poison = Some(failure.clone());
            MutexGuard::unlocked(&mut state, || (self.faults)(failure));
        }
        if let Some(stream) = state.streams.get_mut(&id) {
            stream.done += 1;
            stream.busy = false;
        }
        let due = state.due();
        if !due.is_empty() {
            MutexGuard::unlocked(&mut state, || {
                due.into_iter().for_each(|(done, result)| done(result));
            });
        }
        // Idle streams' threads would be woken for nothing, and take a processor from whoever sends the answer.
        if state.streams.values().any(Stream::awaits_a_change) {
            self.changed.notify_all();
        }
        state
    }

    fn work(&self, id: u64) {
        let mut state = self.state.lock();
        loop {
            let stopping = state.stopping;
            let Some(stream) = state.streams.get_mut(&id) else {
                return;
            };
            match stream.queue.front() {
                None if stream.closing && !stream.busy => {
                    state.streams.remove(&id);
                    return;
                }
                None if stopping => return,
                Some(op) if !stream.busy => {
                    let after = op.after.clone();
                    if stopping || state.is_done(&after) {
                        let stream = state.streams.get_mut(&id).expect("it was there");
                        stream.busy = true;
                        let op = stream.queue.pop_front().expect("it was there");
                        state = self.run(state, id, op.work);
                        continue;
                    }
                }
                _ => {}
            }
            self.changed.wait(&mut state);
        }
    }

    /// Counts streams that wait for a function of the client.
    pub(super) fn in_callback(&self, begins: bool) {
        let mut state = self.state.lock();
        state.callbacks = if begins {
            state.callbacks + 1
        } else {
            state.callbacks - 1
        };
        drop(state);
        self.changed.notify_all();
    }

    /// Ends all work: what runs is waited for, what waits is skipped. Streams and events are gone then, but for the
    /// legacy stream; says how many there were.
    pub(super) fn clear(&self) -> (usize, usize) {
        let mut state = self.state.lock();
        state.stopping = true;
        let ended = || Failure::new(Status::CONTEXT_IS_DESTROYED, "the session has ended");
        state.poison.get_or_insert_with(ended);
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.changed.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
        let mut state = self.state.lock();
        let due = state.due();
        let counts = (state.streams.len() - 1, state.events.len());
        *state = State::default();
        state.streams.insert(LEGACY_STREAM, Stream::default());
        drop(state);
        due.into_iter().for_each(|(done, result)| done(result));
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    fn log() -> (Arc<Mutex<Vec<u32>>>, impl Fn(u32, u64) -> Work) {
        let log = Arc::new(Mutex::new(Vec::new()));
        let shared = log.clone();
        let note = move |what: u32, ms: u64| -> Work {
            let log = shared.clone();
            Box::new(move |_| {
                std::thread::sleep(Duration::from_millis(ms));
                log.lock().push(what);
                Ok(())
            })
        };
        (log, note)
    }

    fn finish(streams: &Arc<Streams>) -> Result<(), Failure> {
        let (told, wait) = mpsc::channel();
        streams.wait(
            Until::All,
            Box::new(move |result| told.send(result).unwrap()),
        );
        wait.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    // Goal: order is what CUDA promises. Method: slow work first, in streams that the later work must wait for.
    #[test]
    fn streams_wait_for_the_legacy_stream_and_for_events() {
        let streams = Streams::new(Arc::new(|_| {}));
        let (log, note) = log();
        streams.create(16, 0);
        streams.create(17, NON_BLOCKING);
        streams.event_create(20);
        streams.submit(16, false, note(1, 60)).unwrap();
        streams.submit(LEGACY_STREAM, true, note(2, 20)).unwrap();
        streams.submit(16, true, note(3, 0)).unwrap();
        streams.record(20, 16).unwrap();
        streams.wait_event(17, 20).unwrap();
        streams.submit(17, true, note(4, 0)).unwrap();
        finish(&streams).unwrap();
        assert_eq!(*log.lock(), [1, 2, 3, 4]);
        assert!(streams.elapsed(20, 20).unwrap() == 0.0);
    }

    #[test]
    fn a_stream_that_does_not_block_runs_beside_the_legacy_stream() {
        let streams = Streams::new(Arc::new(|_| {}));
        let (log, note) = log();
        streams.create(17, NON_BLOCKING);
        streams.submit(LEGACY_STREAM, false, note(1, 60)).unwrap();
        streams.submit(17, true, note(2, 0)).unwrap();
        assert_eq!(
            streams.query(Until::All).unwrap_err().status,
            Status::NOT_READY
        );
        finish(&streams).unwrap();
        assert_eq!(*log.lock(), [2, 1]);
    }

    #[test]
    fn a_failure_is_told_once_and_ends_the_work() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let streams = Streams::new(Arc::new(move |failure| heard.lock().push(failure)));
        for _ in 0..2 {
            let fail: Work = Box::new(|poison| match poison {
                Some(_) => Ok(()),
                None => Err(Failure::new(Status::ILLEGAL_ADDRESS, "no")),
            });
            streams.submit(LEGACY_STREAM, false, fail).unwrap();
        }
        assert_eq!(
            finish(&streams).unwrap_err().status,
            Status::ILLEGAL_ADDRESS
        );
        assert_eq!(told.lock().len(), 1);
        assert_eq!(streams.clear(), (0, 0));
        finish(&streams).unwrap();
    }

    #[test]
    fn clearing_ends_threads_and_waiters() {
        let streams = Streams::new(Arc::new(|_| {}));
        let (log, note) = log();
        streams.create(16, 0);
        streams.submit(16, false, note(1, 50)).unwrap();
        streams.submit(16, false, note(2, 0)).unwrap();
        let (told, wait) = mpsc::channel();
        streams.wait(
            Until::All,
            Box::new(move |result| told.send(result).unwrap()),
        );
        assert_eq!(streams.clear(), (1, 0));
        assert!(wait.recv().unwrap().is_err());
        assert_eq!(log.lock().len(), 2);
    }
}
