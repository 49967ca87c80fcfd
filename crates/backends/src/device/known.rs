//! The devices that this process has opened.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use narrows_core::Unavailable;

use super::{Device, Engine, Usage};

/// Devices opened so far by this process, so that each is probed once: by the library's path, or none for wherever it is
/// found, and whether software may do the work.
pub(crate) struct Known<E: Engine>(Mutex<BTreeMap<Key, Found<E>>>);

/// Names a library and how it is used.
pub(crate) type Key = (Option<PathBuf>, bool);

type Found<E> = Result<&'static Device<E>, Unavailable>;

impl<E: Engine> Known<E> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The device of `key`, opened by `open` if it is asked for the first time.
    pub(crate) fn device(&self, key: &Key, open: impl FnOnce() -> Result<E, Unavailable>) -> Found<E> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(key) {
            return found.clone();
        }
        let found = open().and_then(Device::open);
        known.insert(key.clone(), found.clone());
        found
    }

    /// What became of its packed and of its unpacked chunks; `None` where it was not probed or is not there.
    pub(crate) fn usage(&self, key: &Key) -> Option<(Usage, Usage)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key)?.as_ref().ok().map(|device| device.usage())
    }
}
