//! The end beside the source: takes QEMU's sockets and opens a lane for each, in the order of their coming.
//!
//! Migrations follow one another on one listening socket, one virtual machine's. A migration begins with the first
//! socket after a session stands, and is over when every lane of it is. The session is made before, so that QEMU finds
//! an authenticated way to the other side when it comes: between its connecting and its first byte nothing may be
//! missing.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use narrows::Endpoint;
use narrows_io::{Listener, Transport};

use crate::{
    MigrateError, SERVICE_LANE,
    lane::{self, Side},
    migration::Migration,
    thread::spawn,
};

/// What the thread that carries a migration waits for.
#[derive(Debug)]
pub enum Event {
    /// QEMU connected.
    Socket(Transport),
    /// A lane is over.
    LaneOver,
    /// Whoever asked for the migration wants it to be over now.
    Stop,
}

/// Accepts on `listener` for as long as somebody takes what comes.
pub fn accept(listener: Listener, events: mpsc::Sender<Event>) {
    spawn("migrate-accept", move || {
        for local in listener.incoming() {
            if events.send(Event::Socket(local)).is_err() {
                return;
            }
        }
    });
}

/// Waits for the first socket of a migration; `None` when nobody can send one any more, or the session ended meanwhile.
/// A socket whose QEMU gave up while there was no session is none: at the destination it would be taken for a
/// migration, and QEMU there takes one only.
pub fn wait_first(endpoint: &Endpoint, events: &mpsc::Receiver<Event>) -> Option<Transport> {
    loop {
        match events.recv_timeout(Duration::from_millis(250)) {
            Ok(Event::Socket(local)) if local.probe.is_hung_up() => {}
            Ok(Event::Socket(local)) => return Some(local),
            // Of the migration before.
            Ok(Event::LaneOver) => {}
            Ok(Event::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) if endpoint.ended().is_some() => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Carries one migration from its first socket until its last lane is over, or [`Event::Stop`]. The session still
/// stands then, for whoever has something to say on it.
///
/// # Errors
/// [`MigrateError::Session`] with the reason where the session ended otherwise than well.
pub fn carry(
    migration: &Arc<Migration>,
    first: Option<Transport>,
    events: &mpsc::Receiver<Event>,
    tell: &mpsc::Sender<Event>,
) -> Result<(), MigrateError> {
    let mut open = 0_usize;
    let mut next = first;
    loop {
        if let Some(local) = next.take() {
            match migration.endpoint.open(SERVICE_LANE) {
                Ok((writer, reader)) => {
                    open += 1;
                    let tell = tell.clone();
                    lane::join(migration, Side::Source, local, writer, reader, move || {
                        let _ = tell.send(Event::LaneOver);
                    });
                }
                Err(end) => {
                    // Half of a migration's sockets are none.
                    local.shutdown.abort();
                    migration.fail(end.code(), end.text());
                    if open == 0 {
                        break;
                    }
                }
            }
        }
        match events.recv() {
            Ok(Event::Socket(local)) => next = Some(local),
            Ok(Event::LaneOver) => open -= 1,
            Ok(Event::Stop) | Err(mpsc::RecvError) => break,
        }
        if open == 0 && next.is_none() {
            break;
        }
    }
    match migration.endpoint.ended() {
        Some(end) => Err(end.into()),
        None => Ok(()),
    }
}
