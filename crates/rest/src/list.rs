//! What is in a file, and whether it is sound.

use std::io::{Read, Seek};

use crate::{
    FileError,
    read::Reader,
    seek::SeekReader,
    summary::{FrameInfo, Loss, Summary},
};

/// What is in a file, by its index; no chunk is unpacked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listing {
    /// In sum.
    pub summary: Summary,
    /// Frames in the order of the content.
    pub frames: Vec<FrameInfo>,
}

/// What is in a file, by its index.
///
/// # Errors
/// [`FileError`], also where the index is damaged or missing: [`verify`] goes through such a file.
pub fn list(file: impl Read + Seek) -> Result<Listing, FileError> {
    let reader = SeekReader::new(file)?;
    let frames: Vec<_> = reader.frames().collect();
    Ok(Listing {
        summary: reader.summary(),
        frames,
    })
}

/// What going through a whole file showed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// What it holds.
    pub summary: Summary,
    /// What is damaged; nothing if the file is sound.
    pub losses: Vec<Loss>,
}

/// Unpacks all of a file on so many threads (0: one for each processor), checks it, and keeps nothing.
///
/// # Errors
/// Those of reading, and [`FileError::NotNarrows`]; damage is an answer.
pub fn verify(file: impl Read, threads: usize) -> Result<Verified, FileError> {
    let mut reader = Reader::new(file).threads(threads).skip_damaged();
    loop {
        let len = reader.fill()?.len();
        if len == 0 {
            break;
        }
        reader.consume(len);
        reader.leave_out_zeros();
    }
    Ok(Verified {
        summary: reader.summary().clone(),
        losses: reader.losses().to_vec(),
    })
}
