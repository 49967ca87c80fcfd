//! The loops of the two ends that wait for a QEMU: [`serve`] beside the destination, [`tunnel`] beside the source.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use narrows::{Code, Error, SessionListener};
use narrows_io::{Address, Listener};

use crate::{
    destination::{self, Target},
    drive::Way,
    far,
    migration::{LinkProbe, Migration, Options},
    near,
};

/// Between two attempts to reach the destination's side.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Takes every migration that comes to `listener` to `target`, each on a thread of its own. `begun` is told of each.
///
/// # Errors
/// Nothing listens any more.
pub fn serve(
    listener: &SessionListener,
    target: &Target,
    options: Options,
    begun: &dyn Fn(&Arc<Migration>),
) -> Result<(), Error> {
    loop {
        let endpoint = listener.accept()?;
        let migration = Migration::new(Arc::new(endpoint), options, LinkProbe::default());
        begun(&migration);
        let target = target.clone();
        let attended =
            narrows_io::thread::spawn("migrate-session", move || attend(&migration, &target));
        if let Err(fault) = attended {
            tracing::warn!("a migration is dropped: {fault}");
        }
    }
}

fn attend(migration: &Arc<Migration>, target: &Target) {
    let (talk, talks) = mpsc::channel();
    let (tunnel, talking, target) = (target.tunnel(), migration.clone(), target.clone());
    let spawned = narrows_io::thread::spawn("migrate-talk", move || {
        for incoming in talks {
            if let Err(fault) = destination::attend(incoming, &target) {
                talking.fail(fault.code(), &fault.to_string());
            }
        }
    });
    match spawned {
        Ok(_) => match far::carry(migration, &tunnel, Some(&talk)) {
            Ok(()) => tracing::info!("{}", migration.status().line()),
            Err(fault) => tracing::warn!("{fault}"),
        },
        Err(fault) => migration.fail(Code::FAILED, &fault.to_string()),
    }
}

/// What a caller of [`tunnel`] may show.
#[derive(Debug)]
#[non_exhaustive]
pub enum TunnelEvent<'a> {
    /// The destination's side was reached for the first time; a QEMU may connect here.
    Ready(&'a Address),
    /// A QEMU has connected.
    Begun(&'a Arc<Migration>),
}

/// Takes every guest that a QEMU sends to `listener` to the other end of `way`, one after the other, for ever.
///
/// # Errors
/// The destination's side cannot be reached the first time, when the user is there to mend it. Later, it may be
/// restarting, and is tried again.
pub fn tunnel(
    way: &Way,
    listener: Listener,
    options: Options,
    show: &mut dyn FnMut(TunnelEvent<'_>),
) -> Result<(), Error> {
    let local = listener.local().clone();
    let (events_in, events) = mpsc::channel();
    near::accept(listener, events_in.clone());
    let mut first = true;
    loop {
        let endpoint = match way.connect() {
            Ok(endpoint) => endpoint,
            Err(end) if first => return Err(end),
            Err(end) => {
                tracing::warn!("{end}; trying again");
                thread::sleep(AGAIN_AFTER);
                continue;
            }
        };
        if std::mem::replace(&mut first, false) {
            show(TunnelEvent::Ready(&local));
        }
        let Some(socket) = near::wait_first(&endpoint, &events) else {
            continue;
        };
        let migration = Migration::new(endpoint, options, way.link().clone());
        show(TunnelEvent::Begun(&migration));
        match near::carry(&migration, Some(socket), &events, &events_in) {
            Ok(()) => {
                migration.close();
                tracing::info!("{}", migration.status().line());
            }
            Err(fault) => {
                tracing::warn!("{fault}; the guest stays where it is, and the next try is welcome");
            }
        }
    }
}
