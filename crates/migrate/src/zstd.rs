//! QEMU's own zstd within its multifd channels, for a QEMU that connects without a tunnel.
//!
//! Off unless that is so: what QEMU packed, nobody can pack better. Both sides must have it on, the destination before
//! it listens.

use serde_json::{Value, json};

use crate::{monitor::Monitor, qmp::QmpError};

/// What is known of a QEMU's zstd.
#[derive(Debug, Default)]
pub(crate) struct Zstd {
    /// The level it had, where it can pack.
    level_held: Option<u8>,
    /// The level it was given.
    level: Option<u8>,
}

impl Zstd {
    /// Switches any packing off, and finds out whether QEMU could pack by zstd: one that was built without, or shall
    /// send without copying, refuses it.
    pub(crate) fn switched_off(monitor: &mut Monitor) -> Result<Self, QmpError> {
        let is_possible = set(monitor, &json!({ "multifd-compression": "zstd" })).is_ok();
        set(monitor, &json!({ "multifd-compression": "none" }))?;
        Ok(Self {
            level_held: level_of(monitor)?.filter(|_| is_possible),
            level: None,
        })
    }

    pub(crate) fn is_possible(&self) -> bool {
        self.level_held.is_some()
    }

    /// By which it packs, if it does.
    pub(crate) fn level(&self) -> Option<u8> {
        self.level
    }

    /// QEMU 7.2 takes a level without a word, and keeps its own: so what it has is asked.
    pub(crate) fn switch_on(&mut self, monitor: &mut Monitor, level: u8) -> Result<(), QmpError> {
        self.level = Some(level);
        set(
            monitor,
            &json!({ "multifd-compression": "zstd", "multifd-zstd-level": level }),
        )?;
        self.level = level_of(monitor)?.or(self.level);
        Ok(())
    }

    /// Leaves QEMU as it was before [`Self::switch_on`]. One that does not answer any more has nothing to be left with.
    pub(crate) fn put_back(&mut self, monitor: &mut Monitor) {
        if self.level.take().is_some() {
            let _ = set(
                monitor,
                &json!({ "multifd-compression": "none", "multifd-zstd-level": self.level_held }),
            );
        }
    }
}

fn level_of(monitor: &mut Monitor) -> Result<Option<u8>, QmpError> {
    let held = monitor.ask("query-migrate-parameters", &Value::Null)?;
    Ok(held["multifd-zstd-level"]
        .as_u64()
        .and_then(|level| level.try_into().ok()))
}

fn set(monitor: &mut Monitor, parameters: &Value) -> Result<(), QmpError> {
    monitor.ask("migrate-set-parameters", parameters).map(drop)
}
