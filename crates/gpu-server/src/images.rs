//! Images by the hash of their contents: what one program sent, the next need not send again.
//!
//! Kept on disk, in one file each under its hash, oldest removed first. The hash is SHA-256 and computed here, so a
//! client can neither give an image a name that is not its own, nor be given another's. What it can learn is whether
//! somebody loaded an image before that it has itself.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha2::{Digest, Sha256};

/// A folder of images, or none.
#[derive(Debug)]
pub struct Images {
    dir: Option<PathBuf>,
    bytes_max: u64,
}

impl Images {
    /// Keeps up to `bytes_max` bytes in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(dir: Option<PathBuf>, bytes_max: u64) -> io::Result<Self> {
        if let Some(dir) = &dir {
            fs::create_dir_all(dir)?;
        }
        Ok(Self { dir, bytes_max })
    }

    /// The image of this hash and length, if it is here and whole.
    #[must_use]
    pub fn get(&self, hash: &[u8; 32], len: u64) -> Option<Vec<u8>> {
        let path = self.path(hash)?;
        if fs::metadata(&path).ok()?.len() != len {
            return None;
        }
        let bytes = fs::read(&path).ok()?;
        (hash_of(&bytes) == *hash).then_some(bytes)
    }

    /// Keeps an image. Failing to is no reason to fail.
    pub fn keep(&self, hash: &[u8; 32], bytes: &[u8]) {
        let Some(path) = self.path(hash) else { return };
        if bytes.len() as u64 > self.bytes_max || path.exists() {
            return;
        }
        let part = path.with_extension(format!("part-{}", std::process::id()));
        let kept = fs::write(&part, bytes).and_then(|()| fs::rename(&part, &path));
        if let Err(fault) = kept.and_then(|()| self.trim()) {
            let _ = fs::remove_file(&part);
            tracing::warn!("an image is not kept in {}: {fault}", path.display());
        }
    }

    fn trim(&self) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_file() && is_ours(&entry.path()) {
                files.push((meta.modified()?, meta.len(), entry.path()));
            }
        }
        files.sort();
        let mut held: u64 = files.iter().map(|(_, len, _)| len).sum();
        for (_, len, path) in files {
            if held <= self.bytes_max {
                break;
            }
            fs::remove_file(path)?;
            held -= len;
        }
        Ok(())
    }

    fn path(&self, hash: &[u8; 32]) -> Option<PathBuf> {
        let name: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(self.dir.as_ref()?.join(name))
    }
}

/// Only files named by a hash are ever removed.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// What names an image.
#[must_use]
pub fn hash_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the folder stays within its bound and gives back what it was given. Method: three images, room for two.
    #[test]
    fn images_are_kept_by_their_hash_and_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let images = Images::open(Some(dir.path().join("made")), 25).unwrap();
        let hashes: Vec<_> = (0..3_u8)
            .map(|fill| {
                let bytes = [fill; 10];
                images.keep(&hash_of(&bytes), &bytes);
                std::thread::sleep(std::time::Duration::from_millis(15));
                hash_of(&bytes)
            })
            .collect();
        assert_eq!(images.get(&hashes[0], 10), None);
        assert_eq!(images.get(&hashes[2], 10), Some(vec![2; 10]));
        assert_eq!(images.get(&hashes[2], 11), None);
        fs::write(images.path(&hashes[2]).unwrap(), [9; 10]).unwrap();
        assert_eq!(images.get(&hashes[2], 10), None, "changed on disk");
    }
}
