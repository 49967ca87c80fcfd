//! What a back end does for one session.

use std::{fmt, sync::Arc};

use narrows::Error;
use narrows_gpu_abi::Status;
use narrows_gpu_wire::{DeviceInfo, KernelInfo, KernelRef, Launch, Span, Texture};

use crate::lane::{Sink, Source};

/// Why something did not work: the number a program gets, and words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `CUresult`.
    pub status: Status,
    /// In words.
    pub text: String,
}

impl Failure {
    /// A failure with words.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::new(status, status.name().unwrap_or("unknown error"))
    }
}

impl From<Error> for Failure {
    fn from(end: Error) -> Self {
        Self::new(Status::UNKNOWN, end.text())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.status.0)
    }
}

impl std::error::Error for Failure {}

/// Told once, when something has been done or cannot be.
pub type Done = Box<dyn FnOnce(Result<(), Failure>) + Send>;
/// Told of failures of work that nobody waits for.
pub type Faults = Arc<dyn Fn(Failure) + Send + Sync>;

/// What a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// All work of a stream so far.
    Stream(u64),
    /// All work so far.
    All,
    /// An event's last record.
    Event(u64),
}

/// What the end of a session freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    /// Allocations that the client had left, those of its modules included.
    pub allocations: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Modules.
    pub modules: usize,
    /// Textures.
    pub textures: usize,
}

/// One session's part of a device. Calls come from the session's thread in the client's order; those that take a
/// stream return at once and their work is done in that stream's order. A failure that a method returns is the
/// client's from the next synchronising call on, as are those told to [`Faults`].
#[allow(clippy::missing_errors_doc, reason = "all fail alike: see above")]
pub trait Device: Send + Sync {
    /// What clients are told at the start.
    fn info(&self) -> DeviceInfo;
    /// Memory of `len` bytes, more than none.
    fn alloc(&self, len: u64) -> Result<u64, Failure>;
    /// Frees memory when `stream` has come so far, or all streams have.
    fn free(&self, address: u64, stream: Option<u64>) -> Result<(), Failure>;
    /// Free and total bytes.
    fn memory(&self) -> (u64, u64);
    /// A stream of this id.
    fn stream_create(&self, id: u64, flags: u32, priority: i32) -> Result<(), Failure>;
    /// Ends it when its work is done.
    fn stream_destroy(&self, id: u64) -> Result<(), Failure>;
    /// An event of this id.
    fn event_create(&self, id: u64, flags: u32) -> Result<(), Failure>;
    /// Forgets it.
    fn event_destroy(&self, id: u64) -> Result<(), Failure>;
    /// Notes when the stream has come so far.
    fn event_record(&self, event: u64, stream: u64) -> Result<(), Failure>;
    /// Holds the stream until the event's last record has come.
    fn stream_wait(&self, stream: u64, event: u64) -> Result<(), Failure>;
    /// Milliseconds between two records.
    fn event_elapsed(&self, start: u64, end: u64) -> Result<f32, Failure>;
    /// Whether it has come: [`Status::NOT_READY`] where not.
    fn query(&self, until: Until) -> Result<(), Failure>;
    /// Tells `done` when it has come.
    fn wait(&self, until: Until, done: Done);
    /// Fills elements of 1, 2 or 4 bytes.
    fn memset(&self, stream: u64, dst: Span, element: u32, value: u32) -> Result<(), Failure>;
    /// Copies within the device; both spans have as many bytes.
    fn copy(&self, stream: u64, dst: Span, src: Span) -> Result<(), Failure>;
    /// Copies from the client. Takes all of the source's bytes, whatever happens.
    fn write(&self, stream: u64, dst: Span, source: Source) -> Result<(), Failure>;
    /// Copies to the client. Fills the sink, whatever happens.
    fn read(&self, stream: u64, src: Span, sink: Sink) -> Result<(), Failure>;
    /// Loads a module.
    fn load(&self, id: u64, image: &[u8]) -> Result<Vec<KernelInfo>, Failure>;
    /// Forgets it when all work so far is done.
    fn unload(&self, id: u64) -> Result<(), Failure>;
    /// Address and length of a module's variable.
    fn global(&self, module: u64, name: &str) -> Result<(u64, u64), Failure>;
    /// Starts a kernel.
    fn launch(&self, launch: Launch) -> Result<(), Failure>;
    /// Holds the stream at this point: calls `reached`, and goes on when the flag it returns is raised.
    fn callback(
        &self,
        stream: u64,
        reached: Box<dyn FnOnce() -> Gate + Send>,
    ) -> Result<(), Failure>;
    /// A texture; its handle is what kernels are given.
    fn texture_create(&self, texture: Texture) -> Result<u64, Failure>;
    /// Forgets it when all work so far is done.
    fn texture_destroy(&self, handle: u64) -> Result<(), Failure>;
    /// Sets an attribute of a kernel.
    fn kernel_set_attribute(
        &self,
        kernel: KernelRef,
        attribute: u32,
        value: i32,
    ) -> Result<(), Failure>;
    /// Blocks of a kernel that one multiprocessor holds.
    fn occupancy(&self, kernel: KernelRef, block: u32, shared: u64) -> Result<u32, Failure>;
    /// Stops what runs and frees everything. The session ends, or begins anew.
    fn clear(&self) -> Freed;
}

/// A flag that one thread waits for and another raises.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(parking_lot::Mutex<bool>, parking_lot::Condvar)>);

impl Gate {
    /// Lets go whoever waits.
    pub fn raise(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    /// Waits until it is raised.
    pub fn wait(&self) {
        let mut raised = self.0.0.lock();
        while !*raised {
            self.0.1.wait(&mut raised);
        }
    }
}
