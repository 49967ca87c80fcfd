//! Backings by the names that users write: a path, or `rbd:POOL/IMAGE[:id=USER][:conf=FILE]`.

use std::{ffi::OsStr, path::Path, sync::Arc};

use super::{Backing, BackingError, DirectBacking, FileBacking, RbdBacking, ahead::ReadAhead};

/// What names of images begin with.
const RBD: &str = "rbd:";

/// Whether `name` is one of an image rather than a path.
#[must_use]
pub fn is_image(name: impl AsRef<OsStr>) -> bool {
    image(name.as_ref()).is_some()
}

/// Opens what is there, as its only writer.
///
/// # Errors
/// [`BackingError::Busy`] if another writer holds it; else see [`BackingError`].
pub fn open(name: impl AsRef<OsStr>) -> Result<Arc<dyn Backing>, BackingError> {
    let name = name.as_ref();
    match image(name) {
        Some(image) => Ok(Arc::new(ReadAhead::new(RbdBacking::open(image)?))),
        None => Ok(of_file(FileBacking::open(Path::new(name))?)),
    }
}

/// Makes a file or an image of `size` bytes and opens it. Fails if one is there.
///
/// # Errors
/// See [`BackingError`].
pub fn create(name: impl AsRef<OsStr>, size: u64) -> Result<Arc<dyn Backing>, BackingError> {
    let name = name.as_ref();
    match image(name) {
        Some(image) => Ok(Arc::new(ReadAhead::new(RbdBacking::create(image, size)?))),
        None => Ok(of_file(FileBacking::create(Path::new(name), size)?)),
    }
}

/// What follows `rbd:`.
fn image(name: &OsStr) -> Option<&str> {
    name.to_str()?.strip_prefix(RBD)
}

fn of_file(plain: FileBacking) -> Arc<dyn Backing> {
    match DirectBacking::open(plain) {
        Ok(direct) => Arc::new(direct),
        Err((plain, why)) => {
            tracing::info!(%why, name = plain.name(), "written through the page cache");
            Arc::new(plain)
        }
    }
}
