//! The end beside the destination: connects each lane to QEMU, one after the other, in the order of their opening.
//!
//! Why in order: up to QEMU 8 the first connection it accepts is the main channel, whatever it carries. Why without
//! waiting for a lane's first bytes: the channel for urgent pages (postcopy-preempt) has none until a page faults.

use std::sync::{Arc, mpsc};

use narrows::{Code, Incoming};
use narrows_io::{Address, Tuning, transport};

use crate::{
    MigrateError, SERVICE_CONTROL, SERVICE_LANE,
    direct::{self, SERVICE_PROBE},
    lane::{self, Side},
    migration::Migration,
    thread::spawn,
};

/// Carries one migration to the QEMU that listens at `target`, until its session ends. A channel of `run` is given to
/// `control` on a thread of its own; without one it is refused.
///
/// # Errors
/// [`MigrateError::Session`] with the reason where the session ended otherwise than well.
pub fn carry(
    migration: &Arc<Migration>,
    target: &Address,
    control: Option<&mpsc::Sender<Incoming>>,
) -> Result<(), MigrateError> {
    while let Some(incoming) = migration.endpoint.accept()? {
        match (incoming.service.as_str(), control) {
            (SERVICE_LANE, _) => {
                let Incoming { writer, reader, .. } = incoming;
                match transport::connect(target, &Tuning::default()) {
                    Ok(local) => {
                        lane::join(migration, Side::Destination, local, writer, reader, || {})
                    }
                    Err(fault) => {
                        let text =
                            format!("the destination's QEMU does not take the migration: {fault}");
                        migration.fail(Code::FAILED, &text);
                    }
                }
            }
            (SERVICE_CONTROL, Some(control)) => drop(control.send(incoming)),
            (SERVICE_PROBE, _) => spawn("migrate-probe", move || direct::drain(incoming)),
            _ => incoming
                .writer
                .abort(Code::PROTOCOL, "this end carries migrations"),
        }
    }
    Ok(())
}
