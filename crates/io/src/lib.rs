//! Byte streams between hosts, and what they cost.
//!
//! Floor: engine. The only crate that waits: blocking calls on plain threads, no async runtime.
//!
//! | module | holds |
//! |---|---|
//! | [`address`] | [`Address`]: `HOST[:PORT]`, `unix:/path`, `-` |
//! | [`transport`] | [`Transport`], a connected stream in two halves for two threads |
//! | [`listener`] | [`Listener`], accepts transports until stopped |
//! | [`deadline`](mod@deadline) | cuts a connection whose peer takes too long |
//! | [`limits`] | what the system allows this process |
//! | [`input`] | where a file ends that is being read |
//! | [`part`] | files that get their name when they are whole |
//! | [`lobby`] | where connections wait until their peer has shown who it is |
//! | [`secure`] | TLS or a pre-shared key around a transport, before any application byte |
//! | [`emulator`] | a relay with the rate, delay and faults of a chosen link |
//! | [`answer`] | a socket that gives a document to whoever asks |
//! | [`metrics`] | counters for Prometheus |
//! | [`meter`] | clock, CPU time, memory, `TCP_INFO` |
//! | [`blockdev`] | discarding blocks of a device |
//! | [`histogram`] | how long requests took |
//! | [`background`] | a thread that works in shifts, is woken and ends with its owner |
//! | [`helper_pool`] | threads that lend a hand with borrowed work |
//! | [`allocator`] | the C library's, told to give memory back |
//! | [`thread`] | starting a thread, or saying what allows more |
//! | [`region`] | memory that is paid for by the page and given back at once |
//! | [`uring`] | reads and writes of a file by io_uring, in pieces that are under way together |
//! | [`watch`] | looking for a moment before sleeping |

pub mod address;
pub mod allocator;
pub mod answer;
pub mod background;
pub mod blockdev;
pub mod deadline;
pub mod emulator;
pub mod helper_pool;
#[cfg(test)]
mod helper_pool_tests;
pub mod histogram;
pub mod input;
pub mod limits;
pub mod listener;
pub mod lobby;
pub mod meter;
pub mod metrics;
pub mod part;
pub mod region;
pub mod secure;
pub mod service;
mod sync;
mod sys;
pub mod thread;
pub mod transport;
// The crate for io_uring builds for these architectures alone.
#[cfg_attr(
    not(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )),
    path = "no_uring.rs"
)]
pub mod uring;
pub mod watch;

pub use address::Address;
pub use listener::{Listener, Stop};
pub use lobby::{Lobby, Stranger};
pub use transport::{Shutdown, Transport, TransportRead, TransportWrite, Tuning};
