//! An image in a Ceph cluster. The binding is `narrows-backends`'; this says how a log is best laid out on it.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use narrows_backends::rbd::{Image, ImageName, PIECE_LEN, RbdError};

use super::{Backing, BackingError, Geometry, check_range};

/// An RBD image, whose exclusive lock is held as long as this lives.
#[derive(Debug)]
pub struct RbdBacking {
    image: Image,
    size: AtomicU64,
}

impl RbdBacking {
    /// Opens an image that is there. `name` is `POOL/IMAGE[:id=USER][:conf=FILE]`.
    ///
    /// # Errors
    /// [`BackingError::Busy`] if another client holds it; else see [`BackingError`].
    pub fn open(name: &str) -> Result<Self, BackingError> {
        let name: ImageName = name.parse().map_err(|error| refused(&error))?;
        let image = Image::open(&name).map_err(|error| refused(&error))?;
        let size = image
            .size()
            .map_err(|error| BackingError::from_io("open", 0, 0, &error))?;
        Ok(Self {
            image,
            size: AtomicU64::new(size),
        })
    }

    /// Makes an image of `size` bytes and opens it. Fails if one is there.
    ///
    /// # Errors
    /// See [`BackingError`].
    pub fn create(name: &str, size: u64) -> Result<Self, BackingError> {
        let parsed: ImageName = name.parse().map_err(|error| refused(&error))?;
        Image::create(&parsed, size).map_err(|error| refused(&error))?;
        Self::open(name)
    }
}

fn refused(error: &RbdError) -> BackingError {
    match error {
        RbdError::InUse(name) => BackingError::Busy {
            name: format!("rbd:{name}"),
        },
        RbdError::Cluster { source, .. } | RbdError::Io { source, .. } => BackingError::Io {
            call: "open",
            offset: 0,
            len: 0,
            code: source.raw_os_error().unwrap_or(0),
            reason: error.to_string(),
        },
        _ => BackingError::Io {
            call: "open",
            offset: 0,
            len: 0,
            code: match error {
                RbdError::Missing { .. } => rustix::io::Errno::NOENT.raw_os_error(),
                _ => 0,
            },
            reason: error.to_string(),
        },
    }
}

impl Backing for RbdBacking {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            write_preferred: PIECE_LEN as u32,
            // A segment that is whole objects goes away with its objects.
            segment_alignment: u32::try_from(self.image.object_len())
                .ok()
                .filter(|len| len.is_power_of_two())
                .unwrap_or(4 << 20),
            ..Geometry::default()
        }
    }

    fn name(&self) -> String {
        format!("rbd:{}", self.image.name())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        let len = out.len() as u64;
        check_range(offset, len, self.size())?;
        self.image
            .read_at(offset, out)
            .map_err(|error| BackingError::from_io("read", offset, len, &error))
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<(), BackingError> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        check_range(offset, len, self.size())?;
        // One operation costs a replica more than copying a batch costs here.
        let gathered;
        let data = match parts {
            [one] => one,
            several => {
                gathered = several.concat();
                gathered.as_slice()
            }
        };
        self.image
            .write_at(offset, data)
            .map_err(|error| BackingError::from_io("write", offset, len, &error))
    }

    fn flush(&self) -> Result<(), BackingError> {
        self.image
            .flush()
            .map_err(|error| BackingError::from_io("flush", 0, 0, &error))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), BackingError> {
        check_range(offset, len, self.size())?;
        self.image
            .discard(offset, len)
            .map_err(|error| BackingError::from_io("discard", offset, len, &error))
    }

    fn grow(&self, size: u64) -> Result<(), BackingError> {
        if size <= self.size() {
            return Ok(());
        }
        self.image
            .grow(size)
            .map_err(|error: io::Error| BackingError::from_io("grow", 0, size, &error))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }
}
