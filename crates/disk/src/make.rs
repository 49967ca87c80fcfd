//! Making a disk from nothing but names and sizes: the backing, where there is none yet, and the store on it.

use std::{fs, io, path::Path, sync::Arc};

use crate::{
    Creation, Disk, DiskError,
    backing::{self, Backing, BackingError, is_image},
    disk::guaranteed_max,
};

/// Bytes of a segment that the length of a new backing is rounded up to.
const SEGMENT: u64 = 8 << 20;
/// The shortest backing that is made unasked.
const PHYSICAL_MIN: u64 = 16 << 20;

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The backing, as messages name it.
    pub backing: String,
    /// Bytes of the device.
    pub logical: u64,
    /// Bytes of the backing.
    pub physical: u64,
}

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// The backing cannot be made or opened.
    #[error("cannot use {name}: {source}")]
    Backing {
        /// The backing, as it was named.
        name: String,
        /// Why.
        source: BackingError,
    },
    /// The store cannot be made on it.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Makes a disk on the backing `name`: a path, or `rbd:POOL/IMAGE`. A file or image that is not there is made, of
/// `physical` bytes, or long enough for data that does not pack; it takes room only as it is written. What is there is
/// used as it is.
///
/// # Errors
/// See [`MakeError`]. A file that was made is removed again; an image stays, empty.
pub fn make(
    name: impl AsRef<Path>,
    physical: Option<u64>,
    creation: &Creation,
) -> Result<Made, MakeError> {
    let name = name.as_ref();
    let failed = |source| MakeError::Backing {
        name: name.display().to_string(),
        source,
    };
    if creation.logical == 0 {
        return Err(DiskError::Settings("a device of size 0 would hold nothing".into()).into());
    }
    let (backing, is_new) = match backing::open(name) {
        Ok(backing) => (backing, false),
        Err(error) if error.is_missing() => {
            let physical = physical.unwrap_or_else(|| enough_for(creation.logical));
            (backing::create(name, physical).map_err(failed)?, true)
        }
        Err(error) => return Err(failed(error)),
    };
    let made = on(&backing, physical.filter(|_| !is_new), creation);
    if made.is_err() && is_new && !is_image(name) {
        drop(backing);
        // The reason is in `made`; that an empty file of ours stays would be the smaller trouble.
        let _: io::Result<()> = fs::remove_file(name);
    }
    made
}

fn on(
    backing: &Arc<dyn Backing>,
    physical: Option<u64>,
    creation: &Creation,
) -> Result<Made, MakeError> {
    // An empty file stands for one that is not there.
    if let Some(physical) = physical.filter(|physical| *physical > backing.size()) {
        backing
            .grow(physical)
            .map_err(|source| MakeError::Backing {
                name: backing.name(),
                source,
            })?;
    }
    Disk::create(&**backing, creation)?;
    Ok(Made {
        backing: backing.name(),
        logical: creation.logical,
        physical: backing.size(),
    })
}

/// Bytes of a backing on which `logical` bytes fit even if nothing packs.
fn enough_for(logical: u64) -> u64 {
    let mut physical = (logical / 93 * 100)
        .max(PHYSICAL_MIN)
        .next_multiple_of(SEGMENT);
    loop {
        let segments = physical / SEGMENT;
        let fits = u32::try_from(segments)
            .is_ok_and(|segments| segments > 16 && guaranteed_max(segments, SEGMENT) >= logical);
        // What is beyond any store is refused with better words by the store.
        if fits || physical >= 1 << 60 {
            return physical;
        }
        physical += (physical / 64).next_multiple_of(SEGMENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_long_enough_for_what_does_not_pack() {
        let dir = tempfile::tempdir().unwrap();
        for logical in [4096, 1 << 20, 100 << 20, 5 << 30, 3 << 40] {
            let path = dir.path().join(logical.to_string());
            let creation = Creation::new(logical).provision(crate::Provision::Guaranteed);
            let made = make(path.to_str().unwrap(), None, &creation).unwrap();
            assert!(
                made.physical >= logical && made.physical < logical + logical / 4 + (256 << 20)
            );
        }
    }

    #[test]
    fn a_file_that_was_made_for_nothing_is_gone_and_one_that_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let name = path.to_str().unwrap();
        for (physical, creation) in [
            (Some(64 << 10), Creation::new(1 << 30)),
            (None, Creation::new(0)),
            (
                Some(64 << 20),
                Creation::new(1 << 30).provision(crate::Provision::Guaranteed),
            ),
        ] {
            make(name, physical, &creation).unwrap_err();
            assert!(!path.exists());
        }
        fs::write(&path, "precious").unwrap();
        make(name, Some(64 << 20), &Creation::new(1 << 20)).unwrap_err();
        assert!(fs::read(&path).unwrap().starts_with(b"precious"));
        fs::write(&path, "").unwrap();
        make(name, Some(64 << 20), &Creation::new(1 << 20)).unwrap();
        let again = make(name, None, &Creation::new(1 << 20)).unwrap_err();
        assert!(again.to_string().contains("not empty"), "{again}");
    }
}
