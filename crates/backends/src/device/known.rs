//! The devices that this process has opened.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use narrows_core::Unavailable;

use super::{Device, Engine, Usage};

/// Where a device's library is, and how it is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// None for wherever it is found.
    pub(crate) path: Option<PathBuf>,
    /// Whether its software may do the work.
    pub(crate) software: bool,
}

impl Place {
    /// The library at `path`, for its device.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: Some(path.into()),
            software: false,
        }
    }
}

/// Devices opened so far by this process, so that each is probed once.
pub(crate) struct Known<E: Engine>(Mutex<BTreeMap<Place, Found<E>>>);

type Found<E> = Result<&'static Device<E>, Unavailable>;

impl<E: Engine> Known<E> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The device of the library at `place`, opened by `open` if it is asked for the first time.
    pub(crate) fn device(
        &self,
        place: &Place,
        open: impl FnOnce(&Place) -> Result<E, Unavailable>,
    ) -> Found<E> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(place) {
            return found.clone();
        }
        let found = open(place).and_then(Device::open);
        known.insert(place.clone(), found.clone());
        found
    }

    /// What became of its packed and of its unpacked chunks; `None` where it was not probed or is not there.
    pub(crate) fn usage(&self, place: &Place) -> Option<(Usage, Usage)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(place)?.as_ref().ok().map(|device| device.usage())
    }
}
