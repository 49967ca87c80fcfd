//! What the threads of an endpoint share: links, channels, packers and the session monitor.
//!
//! | module | holds |
//! |---|---|
//! | `sending` | what packers and channels that send do |
//! | `receiving` | what becomes of what the peer sent |
//! | `ending` | how channels and the session end |
//!
//! Invariant: `state` is held for moments only, never while a thread waits for a socket. Whoever changes what others
//! wait for notifies the [`Signals`] that name it.

mod ending;
mod receiving;
mod sending;

use std::{fmt, sync::Arc};

use narrows_core::ChannelId;
use narrows_io::transport::Identity;
use narrows_pipeline::ChunkUnpacker;
use parking_lot::{Condvar, Mutex};

pub(crate) use self::{
    ending::LAST_WORDS,
    receiving::Receiving,
    sending::{Sending, WeakOutlet},
};
use crate::{ChannelReader, ChannelWriter, Engine, Settings, state::State, tallies::Tallies};

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    /// Who opened the session, where that was proved to this side.
    pub(crate) identity: Option<Identity>,
    pub(crate) settings: Settings,
    pub(crate) began_ns: u64,
    pub(crate) state: Mutex<State>,
    pub(crate) signals: Signals,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) tallies: Tallies,
}

/// What threads wait for, each with the lock of [`Inner::state`].
#[derive(Default)]
pub(crate) struct Signals {
    /// A link may have something to send.
    pub(crate) to_send: Condvar,
    /// A frame left, credit came, a channel or the session ended.
    pub(crate) changed: Condvar,
    /// The peer opened a channel, or the session ended. Apart from `changed`, which small messages touch all the time.
    pub(crate) arrived: Condvar,
    /// The session monitor should look now.
    pub(crate) monitor_wake: Condvar,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn ends(
        self: &Arc<Self>,
        channel: ChannelId,
        unpacker: ChunkUnpacker,
    ) -> (ChannelWriter, ChannelReader) {
        (
            ChannelWriter::new(self.clone(), channel),
            ChannelReader::new(self.clone(), channel, unpacker),
        )
    }
}
