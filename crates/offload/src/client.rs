//! One job: blocks go to the server and come back, are checked, and leave in order.
//!
//! Four kinds of threads around one `Ledger`: the *feeder* reads blocks in, the *sender* gives them to the session, the
//! *receiver* takes answers, and the *hands* check answers and do what is spilled; the caller's own thread writes. All
//! overlap, so a job takes as long as the slowest of them, plus a block's way through.
//!
//! Bytes are not copied on the way out: a block is read into the chunk that travels, and stays there to be compared.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use narrows::{ChannelReader, ChannelWriter, Code, Endpoint, Error, Stats};
use narrows_core::Workspace;
use narrows_io::meter::CpuTime;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    Method, OffloadError, SERVICE,
    container::Piece,
    ledger::{Block, Counts, Done, Ledger, Rules, Task},
    message::{self, Answer, Op, Outcome, Question, Reply, Request, Summary, printable},
};

/// When this side does what the server should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spill {
    /// When the server has taken four times as long as this side would have, but not before a quarter of a second.
    #[default]
    Auto,
    /// When the server has owed a block for this long.
    After(Duration),
    /// Never: the job then fails instead. So does one whose server has owed a block for half a minute.
    Never,
}

/// What a user may set of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What files are packed with. When unpacking, the file says it.
    pub method: Method,
    /// How hard.
    pub level: i16,
    /// Bytes of a block, from [`BLOCK_LEN_MIN`](crate::BLOCK_LEN_MIN) to [`BLOCK_LEN_MAX`](crate::BLOCK_LEN_MAX); LZ4
    /// files have one of [`BLOCK_LENS`](crate::container::lz4::BLOCK_LENS).
    pub block_len: usize,
    /// Threads that check, and do what is spilled; at least 1.
    pub threads: usize,
    /// Unpack what comes back and compare it. Without, only its length is looked at, and a wrong block is found by
    /// whoever unpacks the file.
    pub verify: bool,
    /// When this side does the server's work.
    pub spill: Spill,
}

/// What a job does with blocks on this side. Shared by the hands.
pub(crate) trait Craft: Sync {
    /// What the server is asked to do.
    fn op(&self) -> Op;

    /// The outcome, if the answer is right.
    fn check(&self, block: &Block, answer: Answer, ws: &mut Workspace) -> Option<Done>;

    /// Does a block here.
    fn make(&self, block: &Block, ws: &mut Workspace) -> Result<Done, OffloadError>;

    /// Nanoseconds a byte that [`Craft::make`] takes, tried on the job's first block.
    fn pace(&self, _block: &Block, _ws: &mut Workspace) -> Option<f64> {
        None
    }
}

/// What a job took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// What the server said at the start; `None` where there was none to ask, or it refused.
    pub(crate) backend: Option<String>,
    pub(crate) level: i16,
    pub(crate) workers: u32,
    pub(crate) counts: Counts,
    pub(crate) lost: Option<String>,
    pub(crate) blocks: u64,
    pub(crate) elapsed: Duration,
    pub(crate) told: Told,
    pub(crate) stats: Option<Stats>,
    pub(crate) cpu: Duration,
}

/// A way to the server, if there is one.
pub(crate) type Way<'a> = Option<&'a Arc<Endpoint>>;

/// Where a job's blocks come from and go to.
pub(crate) struct Flow<'a> {
    /// Yields blocks of up to `block_len` bytes.
    pub(crate) source: &'a mut (dyn FnMut() -> Result<Option<Piece>, OffloadError> + Send),
    /// Takes each with its outcome, in order.
    pub(crate) sink: &'a mut dyn FnMut(&Block, &Done) -> Result<(), OffloadError>,
    /// Called once the job is to stop.
    pub(crate) abandon: &'a dyn Fn(),
}

/// What became of the question whether the server takes a job.
#[derive(Default)]
struct Asked {
    ends: Option<(ChannelWriter, ChannelReader)>,
    /// Blocks that the server takes at once.
    depth: usize,
    /// Why it does not take the job.
    lost: Option<String>,
}

/// Runs a job. Once `stop` is set [`Flow::abandon`] is called at once, since whoever set it may end the process before
/// a hand is done with its block.
pub(crate) fn run(
    way: Way<'_>,
    options: &Options,
    craft: &dyn Craft,
    flow: Flow<'_>,
    stop: &AtomicBool,
) -> Result<Tally, OffloadError> {
    let Flow {
        source,
        sink,
        abandon,
    } = flow;
    let began = Instant::now();
    let cpu = CpuTime::of_process();
    let mut tally = Tally::default();
    let Asked { ends, depth, lost } = match way {
        Some(endpoint) => apply(endpoint, options, craft, &mut tally)?,
        None => Asked::default(),
    };
    let threads = options.threads.max(1);
    let rules = Rules {
        depth,
        span: 2 * depth + threads + 2,
        patience_ns: patience(options, depth, None),
        spill: options.spill != Spill::Never || way.is_none(),
    };
    let mut ledger = Ledger::new(rules);
    if ends.is_none() {
        ledger.lose(lost.as_deref().unwrap_or("no server"));
    }
    let desk = Desk {
        ledger: Mutex::new(ledger),
        changed: Condvar::new(),
        began,
        fault: Mutex::default(),
    };
    let told = Mutex::new(Told::default());
    let result = thread::scope(|scope| {
        let desk = &desk;
        desk.start(scope, move || {
            desk.guard(|| feed(desk, options, depth, craft, source));
        });
        if let Some((writer, reader)) = ends {
            desk.start(scope, move || send(desk, writer));
            let told = &told;
            desk.start(scope, move || {
                receive(desk, reader, options.block_len, told)
            });
        }
        for _ in 0..threads {
            desk.start(scope, move || desk.guard(|| hand(desk, craft)));
        }
        let written = write(desk, sink, stop);
        let elapsed = began.elapsed();
        if let Err(fault) = &written {
            if matches!(fault, OffloadError::Interrupted) {
                abandon();
            }
            desk.with(Ledger::stop);
        }
        if let Some(endpoint) = way {
            if written.is_ok() && desk.ledger.lock().lost().is_none() {
                let until = Instant::now() + LAST_WORDS;
                desk.wait(|_| told.lock().summary.is_some().then_some(()), Some(until));
            }
            tally.stats = Some(endpoint.stats());
            // Wakes whoever waits for the session still.
            match &written {
                Ok(()) => endpoint.close(),
                Err(fault) => endpoint.fail(fault.code(), "the client's job failed"),
            }
        }
        written.map(|()| elapsed)
    });
    tally.elapsed = result?;
    let ledger = desk.ledger.into_inner();
    tally.counts = ledger.counts();
    tally.lost = lost.or_else(|| ledger.lost().filter(|_| way.is_some()).map(String::from));
    tally.blocks = u64::from(ledger.next());
    tally.told = told.into_inner();
    tally.cpu = Duration::from_nanos(CpuTime::of_process().since(cpu).total_ns());
    Ok(tally)
}

/// Asks the server to take the job; what it says goes to the tally.
fn apply(
    endpoint: &Arc<Endpoint>,
    options: &Options,
    craft: &dyn Craft,
    tally: &mut Tally,
) -> Result<Asked, OffloadError> {
    let mut asked = Asked::default();
    match within(reply_limit(options), endpoint, || {
        ask(endpoint, craft.op(), options.block_len)
    }) {
        Ok((
            Reply::Accepted {
                backend,
                level,
                workers,
                depth,
            },
            writer,
            reader,
        )) => {
            (tally.backend, tally.level, tally.workers) =
                (Some(printable(&backend)), level, workers.max(1));
            asked.depth = (depth as usize)
                .min(HELD_MAX / options.block_len)
                .clamp(1, DEPTH_MAX);
            asked.ends = Some((writer, reader));
        }
        Ok((Reply::Refused { text }, ..)) => {
            asked.lost = Some(format!("the server refused: {}", printable(&text)));
        }
        // It has too many clients, or went as we came.
        Err(end) if [Code::LIMIT, Code::FAILED, Code::CANCELLED].contains(&end.code()) => {
            asked.lost = Some(end.text().into());
        }
        Err(end) => return Err(end.into()),
    }
    match &asked.lost {
        Some(why) if options.spill == Spill::Never => Err(OffloadError::Spill(why.clone())),
        _ => Ok(asked),
    }
}

/// Opens the job's channel.
fn ask(
    endpoint: &Endpoint,
    op: Op,
    block_len: usize,
) -> Result<(Reply, ChannelWriter, ChannelReader), Error> {
    let (mut writer, mut reader) = endpoint.open(SERVICE)?;
    message::say(
        &mut writer,
        &Request {
            op,
            block_len: block_len as u32,
        },
    )?;
    Ok((message::hear(&mut reader)?, writer, reader))
}

/// Runs `work` and ends the session if it takes too long: a server that is stuck keeps a session alive all the same.
fn within<T>(limit: Duration, endpoint: &Endpoint, work: impl FnOnce() -> T) -> T {
    let (done, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // Where there is no thread for it, the session's own time limits are left.
        let _ = narrows_io::thread::spawn_scoped(scope, "offload-limit", move || {
            if wait.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                endpoint.fail(
                    Code::FAILED,
                    &format!("the server did not reply within {limit:?}"),
                );
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// How long the server may take to accept or refuse the job.
fn reply_limit(options: &Options) -> Duration {
    match options.spill {
        Spill::After(limit) => limit.max(Duration::from_secs(1)),
        Spill::Auto | Spill::Never => Duration::from_secs(10),
    }
}

/// Most blocks a server may be owed, and most bytes of them, whatever it offers: they are held here.
const DEPTH_MAX: usize = 256;
const HELD_MAX: usize = 256 << 20;
/// How long the server's summary is waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often the writing thread looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(50);

/// How long the server may owe a block, in nanoseconds.
fn patience(options: &Options, depth: usize, ns_per_byte: Option<f64>) -> u64 {
    const AT_LEAST_NS: u64 = 250_000_000;
    match options.spill {
        Spill::After(limit) => limit.as_nanos() as u64,
        Spill::Never => 30_000_000_000,
        Spill::Auto => {
            let bytes = (depth * options.block_len) as f64;
            let own_ns = ns_per_byte.unwrap_or(0.0) * bytes / options.threads.max(1) as f64;
            AT_LEAST_NS.max((own_ns * 4.0) as u64)
        }
    }
}

/// What the threads of a job share.
struct Desk {
    ledger: Mutex<Ledger>,
    changed: Condvar,
    began: Instant,
    fault: Mutex<Option<OffloadError>>,
}

impl Desk {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Changes the ledger and wakes whoever waits for that.
    fn with<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let result = change(&mut self.ledger.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `look` finds something; `None` when the job is over or the time has come.
    fn wait<T>(
        &self,
        mut look: impl FnMut(&mut Ledger) -> Option<T>,
        until: Option<Instant>,
    ) -> Option<T> {
        let mut ledger = self.ledger.lock();
        loop {
            if let Some(found) = look(&mut ledger) {
                MutexGuard::unlock_fair(ledger);
                self.changed.notify_all();
                return Some(found);
            }
            match until {
                Some(until) if self.changed.wait_until(&mut ledger, until).timed_out() => {
                    return None;
                }
                Some(_) => {}
                None if ledger.is_over() => return None,
                None => self.changed.wait(&mut ledger),
            }
        }
    }

    /// Starts a thread of the job, or ends the job.
    fn start<'scope>(
        &self,
        scope: &'scope thread::Scope<'scope, '_>,
        work: impl FnOnce() + Send + 'scope,
    ) {
        let started = narrows_io::thread::spawn_scoped(scope, "offload-job", work);
        self.guard(|| started.map(drop).map_err(|fault| Error::from(fault).into()));
    }

    /// Runs a thread's work; a fault of it ends the job.
    fn guard(&self, work: impl FnOnce() -> Result<(), OffloadError>) {
        if let Err(fault) = work() {
            self.fault.lock().get_or_insert(fault);
            self.with(Ledger::stop);
        }
    }
}

fn feed(
    desk: &Desk,
    options: &Options,
    depth: usize,
    craft: &dyn Craft,
    source: &mut (dyn FnMut() -> Result<Option<Piece>, OffloadError> + Send),
) -> Result<(), OffloadError> {
    while let Some(index) = desk.wait(|ledger| ledger.room(), None) {
        let Some(mut piece) = source()? else {
            desk.with(Ledger::end);
            return Ok(());
        };
        if index == u32::MAX {
            return Err(OffloadError::Server(
                "more blocks than a job can number; take longer ones".into(),
            ));
        }
        Question::write_head(index, piece.raw_len, &mut piece.bytes);
        let block = Block {
            bytes: Arc::new(piece.bytes),
            raw_len: piece.raw_len,
            check: piece.check,
        };
        if index == 0 && depth > 0 && options.spill == Spill::Auto {
            let ns_per_byte = craft.pace(&block, &mut Workspace::default());
            desk.with(|ledger| ledger.set_patience(patience(options, depth, ns_per_byte)));
        }
        let done = piece.stored.then(|| Done {
            bytes: None,
            check: 0,
        });
        desk.with(|ledger| ledger.add(block, done));
    }
    Ok(())
}

fn send(desk: &Desk, mut writer: ChannelWriter) {
    enum Next {
        Block(narrows::Bytes),
        NoMore,
    }
    let next = |ledger: &mut Ledger| match ledger.send(desk.now_ns()) {
        Some(block) => Some(Next::Block(block)),
        None => ledger.is_all_sent().then_some(Next::NoMore),
    };
    while let Some(Next::Block(block)) = desk.wait(next, None) {
        if let Err(end) = writer.push_shared(block) {
            return desk.with(|ledger| ledger.lose(end.text()));
        }
    }
    let whole = {
        let ledger = desk.ledger.lock();
        ledger.lost().is_none() && ledger.fault().is_none()
    };
    if whole {
        // Where it fails, the receiver knows why.
        let _ = writer.finish();
    }
}

/// What the server's answers said of its work.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    pub(crate) queue: Duration,
    pub(crate) queue_max: Duration,
    pub(crate) device: Duration,
    pub(crate) summary: Option<Summary>,
}

impl Told {
    fn add(&mut self, answer: &Answer) {
        let queue = Duration::from_micros(answer.queue_us.into());
        self.queue += queue;
        self.queue_max = self.queue_max.max(queue);
        self.device += Duration::from_micros(answer.device_us.into());
    }
}

fn receive(desk: &Desk, mut reader: ChannelReader, block_len: usize, told: &Mutex<Told>) {
    loop {
        let answer = match reader.next_shared() {
            Ok(Some(chunk)) => Answer::parse(chunk),
            Ok(None) => {
                desk.with(|ledger| {
                    if !ledger.is_answered() {
                        ledger.lose("the server ended the job before it was done");
                    }
                });
                return;
            }
            Err(end) => return desk.with(|ledger| ledger.lose(end.text())),
        };
        // Answers wait here to be checked, so none may be longer than any right one.
        let Some(answer) = answer.filter(|answer| answer.bytes().len() <= block_len) else {
            return desk.with(|ledger| ledger.lose("the server sent what is no answer"));
        };
        if answer.outcome == Outcome::Summary {
            told.lock().summary = answer.summary();
            desk.with(|_| ());
            continue;
        }
        told.lock().add(&answer);
        desk.with(|ledger| ledger.answer(answer));
    }
}

fn hand(desk: &Desk, craft: &dyn Craft) -> Result<(), OffloadError> {
    let mut ws = Workspace::default();
    loop {
        let task = {
            let mut ledger = desk.ledger.lock();
            loop {
                let now_ns = desk.now_ns();
                match ledger.take(now_ns) {
                    Task::Wait(None) => desk.changed.wait(&mut ledger),
                    Task::Wait(Some(until_ns)) => {
                        let until = desk.began + Duration::from_nanos(until_ns);
                        let _ = desk.changed.wait_until(&mut ledger, until);
                    }
                    task => break task,
                }
            }
        };
        match task {
            Task::Check(index, block, answer) => match craft.check(&block, answer, &mut ws) {
                Some(done) => desk.with(|ledger| ledger.confirm(index, done)),
                None => desk.with(|ledger| ledger.refute(index)),
            },
            Task::Do(index, block) => {
                let done = craft.make(&block, &mut ws)?;
                desk.with(|ledger| ledger.settle(index, done));
            }
            Task::Over | Task::Wait(_) => {
                // A fault that `take` found must wake the others.
                desk.changed.notify_all();
                return Ok(());
            }
        }
    }
}

/// Takes finished blocks out in order until the job is over.
fn write(
    desk: &Desk,
    sink: &mut dyn FnMut(&Block, &Done) -> Result<(), OffloadError>,
    stop: &AtomicBool,
) -> Result<(), OffloadError> {
    loop {
        let next = |ledger: &mut Ledger| match ledger.pop() {
            Some(done) => Some(Some(done)),
            None => ledger.is_over().then_some(None),
        };
        let found = desk.wait(next, Some(Instant::now() + LOOK));
        if stop.load(Relaxed) {
            return Err(OffloadError::Interrupted);
        }
        match found {
            Some(Some((block, done))) => sink(&block, &done)?,
            Some(None) => break,
            None => {}
        }
    }
    if let Some(fault) = desk.fault.lock().take() {
        return Err(fault);
    }
    match desk.ledger.lock().fault() {
        Some(fault) => Err(OffloadError::Spill(fault.into())),
        None => Ok(()),
    }
}
