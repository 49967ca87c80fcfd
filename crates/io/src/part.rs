//! Files that get their name when they are whole: written beside their place as `.narrows-PID-N.part`, then renamed.
//!
//! A part is locked (`flock`) while it is written, and removed when its writer gives up. What a killed process left is
//! removed by the next one that writes into the directory ([`sweep`]): its process is gone and nobody holds the lock.
//! Both are asked, since the writer may run in a container, where process numbers mean something else.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, test_kill_process},
};

/// A file being written; removed on drop unless it was put in its place.
#[derive(Debug)]
pub struct Part {
    file: File,
    path: PathBuf,
    keep: bool,
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

impl Part {
    /// A new file in `dir`, of this mode.
    ///
    /// # Errors
    /// The system's.
    pub fn create(dir: &Path, mode: u32) -> io::Result<Self> {
        loop {
            // In a container every process may have the same number, and one that was killed left its file.
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!(".narrows-{}-{serial}.part", std::process::id()));
            let opened = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&path);
            match opened {
                Ok(file) => {
                    // A file system without locks has no sweeping either.
                    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
                    return Ok(Self {
                        file,
                        path,
                        keep: false,
                    });
                }
                Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// A file of that name in `dir` which stays there when its writer gives up, to be continued; `None` where another
    /// process is writing it. What it holds already is kept.
    ///
    /// # Errors
    /// The system's, also where something else than a file of ours has the name.
    pub fn resume(dir: &Path, name: &str) -> io::Result<Option<Self>> {
        let path = dir.join(name);
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nofollow)
            .open(&path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            _ => Ok(Some(Self {
                file,
                path,
                keep: true,
            })),
        }
    }

    /// What is written to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is until it has its name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, in place of what has that.
    ///
    /// # Errors
    /// The system's; the part is removed then.
    pub fn place(mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.path, place)?;
        self.keep = true;
        Ok(())
    }

    /// Gives it its name where nothing has that; the part comes back where something has.
    ///
    /// # Errors
    /// The system's; the part is removed then.
    pub fn place_new(mut self, place: &Path) -> io::Result<Result<(), Self>> {
        use rustix::{
            fs::{CWD, RenameFlags, renameat_with},
            io::Errno,
        };
        match renameat_with(CWD, &self.path, CWD, place, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.keep = true;
                Ok(Ok(()))
            }
            // Not every file system knows the flag: then the caller looks itself.
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS) => Ok(Err(self)),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Removes it though it is one that stays.
    pub fn discard(mut self) {
        self.keep = false;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the parts in `dir` of processes that are gone. What cannot be read or removed is left.
pub fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(writer_of) else {
            continue;
        };
        if test_kill_process(process) != Err(rustix::io::Errno::SRCH) {
            continue;
        }
        let nofollow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(nofollow.bits() as i32)
            .open(entry.path());
        if let Ok(file) = opened
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && fs::remove_file(entry.path()).is_ok()
        {
            tracing::info!(path = %entry.path().display(), "removed what a killed process left");
        }
    }
}

/// Whether a file of this name is a part: of a process, or one that is to be continued.
#[must_use]
pub fn is_part(name: &std::ffi::OsStr) -> bool {
    let name = name.to_str().unwrap_or_default();
    let hash = name
        .strip_prefix(".narrows-")
        .and_then(|rest| rest.strip_suffix(".partial"));
    writer_of(name).is_some() || hash.is_some_and(|hash| u64::from_str_radix(hash, 16).is_ok())
}

/// The process that `.narrows-PID-N.part` names.
fn writer_of(name: &str) -> Option<Pid> {
    let inner = name.strip_prefix(".narrows-")?.strip_suffix(".part")?;
    let (process, serial) = inner.split_once('-')?;
    serial.parse::<u64>().ok()?;
    Pid::from_raw(process.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: only parts of processes that are gone are removed. Method: one of a process that ended, one of ours, one
    // that somebody holds a lock on, and names that are nearly parts.
    #[test]
    fn only_what_nobody_writes_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let names = [
            format!(".narrows-{gone}-3.part"),
            format!(".narrows-{gone}-4.part"),
            format!(".narrows-{gone}-x.part"),
            format!("narrows-{gone}-3.part"),
        ];
        for name in &names {
            fs::write(dir.path().join(name), b"x").unwrap();
        }
        let held = File::open(dir.path().join(&names[1])).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let ours = Part::create(dir.path(), 0o600).unwrap();
        sweep(dir.path());
        assert!(!dir.path().join(&names[0]).exists());
        for name in &names[1..] {
            assert!(dir.path().join(name).exists(), "{name}");
        }
        let path = ours.path().to_path_buf();
        assert!(path.exists());
        drop(ours);
        assert!(!path.exists(), "given up");
    }

    #[test]
    fn a_new_name_is_not_taken_from_another() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("f");
        let part = Part::create(dir.path(), 0o600).unwrap();
        assert!(part.place_new(&place).unwrap().is_ok());
        let part = Part::create(dir.path(), 0o600).unwrap();
        let part = part.place_new(&place).unwrap().unwrap_err();
        part.place(&place).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn one_that_stays_is_continued_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Part::resume(dir.path(), ".p").unwrap().unwrap();
        io::Write::write_all(&mut first.file(), b"abc").unwrap();
        assert!(Part::resume(dir.path(), ".p").unwrap().is_none());
        drop(first);
        let again = Part::resume(dir.path(), ".p").unwrap().unwrap();
        assert_eq!(again.file().metadata().unwrap().len(), 3);
        again.discard();
        assert!(!dir.path().join(".p").exists());
    }
}
