//! Where a tree's entries go, and what may stand there already.
//!
//! Nothing is written outside the directory: paths are relative and without `..`, no directory on the way may be a link.
//! No two entries of a transfer may map to one path, whatever makes them: a file system that folds case, a sender's
//! mistake, or links.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, DirBuilder, File, Metadata, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::{Component, Path, PathBuf},
};

use narrows_io::part::{self, Part};
use xxhash_rust::xxh3::xxh3_64;

use crate::{TransferError, tree::Meta};

/// Most that is held of a tree's names until all of it has come, in bytes: tens of millions of files.
const NAMES_LEN_MAX: usize = 512 << 20;
/// What a directory or link takes beside its names.
const ENTRY_LEN: usize = 256;
/// What is remembered of a file.
const INODE_LEN: usize = 32;
/// A shorter file is not worth continuing.
const PARTIAL_LEN_MIN: u64 = 1 << 20;

/// The directory that is received into.
pub(crate) struct Places<'a> {
    dir: &'a Path,
    /// Directories seen to be real ones, so that each is looked at once.
    safe: HashSet<PathBuf>,
    /// What this transfer has made or found in place: hashes of device and inode, and of paths.
    made: HashSet<u64>,
    /// What may still be held, in bytes.
    names_left: usize,
    opened: Opened,
}

/// Directories of ours that were write-protected, and their modes; they get them back on drop.
#[derive(Default)]
struct Opened(Vec<(PathBuf, u32)>);

impl Drop for Opened {
    fn drop(&mut self) {
        for (path, mode) in self.0.drain(..).rev() {
            let _ = fs::set_permissions(path, Permissions::from_mode(mode));
        }
    }
}

/// What became of a file that was to be put in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    Placed,
    /// Of one that was newer, or write-protected.
    Replaced,
    /// A directory is there, and stays.
    Blocked,
}

impl<'a> Places<'a> {
    pub(crate) fn new(dir: &'a Path) -> Self {
        part::sweep(dir);
        Self {
            dir,
            safe: HashSet::new(),
            made: HashSet::new(),
            names_left: NAMES_LEN_MAX,
            opened: Opened::default(),
        }
    }

    /// Where an entry goes, if it may.
    pub(crate) fn of(&mut self, meta: &Meta) -> Result<PathBuf, TransferError> {
        let path = Path::new(OsStr::from_bytes(&meta.path));
        // `a/` and `a/.` have the same parts as `a`, but the system follows a link to get there.
        let plain = path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
        let mut parts = path.components();
        if !plain || parts.any(|part| !matches!(part, Component::Normal(_))) {
            let name = path.display().to_string();
            return Err(TransferError::Refused(format!(
                "the path `{}` leads elsewhere",
                name.escape_debug()
            )));
        }
        let mut on_the_way = self.dir.to_path_buf();
        let parents = path.parent().into_iter().flat_map(Path::components);
        for part in parents {
            on_the_way.push(part);
            if !self.safe.contains(&on_the_way) {
                self.enter(&on_the_way)?;
            }
        }
        Ok(self.dir.join(path))
    }

    /// Makes the directory of an entry, or takes the one that is there. A new one is closed to others until it has its
    /// own mode: files inside have theirs at once, and count on its.
    pub(crate) fn dir(&mut self, place: &Path) -> Result<(), TransferError> {
        match DirBuilder::new().mode(0o700).create(place) {
            Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {
                let found = self.enter(place)?;
                self.claim(place, &found)
            }
            Err(fault) => Err(TransferError::file("cannot make", place, fault)),
            Ok(()) => {
                let found = look_at_dir(place)?;
                self.hold(place)?;
                self.claim(place, &found)
            }
        }
    }

    /// Looks at a directory that was there before this transfer.
    fn enter(&mut self, dir: &Path) -> Result<Metadata, TransferError> {
        let found = look_at_dir(dir)?;
        let mode = found.mode() & 0o7777;
        // One of ours that we may not write to, as the last transfer left it: writable while this one lasts.
        if mode & 0o300 != 0o300
            && found.uid() == rustix::process::geteuid().as_raw()
            && !rustix::process::geteuid().is_root()
        {
            let open = Permissions::from_mode(mode | 0o700);
            fs::set_permissions(dir, open)
                .map_err(|fault| TransferError::file("cannot write to", dir, fault))?;
            self.opened.0.push((dir.to_path_buf(), mode));
        }
        part::sweep(dir);
        self.hold(dir)?;
        Ok(found)
    }

    fn hold(&mut self, dir: &Path) -> Result<(), TransferError> {
        self.remember(dir.as_os_str().len() + ENTRY_LEN)?;
        self.safe.insert(dir.to_path_buf());
        Ok(())
    }

    /// What is in place now is this transfer's: no other entry may map to it.
    pub(crate) fn claim(&mut self, place: &Path, found: &Metadata) -> Result<(), TransferError> {
        self.check_free(place, found)?;
        self.remember(INODE_LEN)?;
        self.made.insert(inode(found));
        self.made.insert(named(place));
        Ok(())
    }

    /// Whether this transfer has made or found what has this inode, under whatever name.
    pub(crate) fn has(&self, found: &Metadata) -> bool {
        self.made.contains(&inode(found))
    }

    /// Gives `part` its place, unless a directory is there.
    pub(crate) fn put(
        &mut self,
        part: Part,
        place: &Path,
        meta: &Meta,
    ) -> Result<Put, TransferError> {
        let write = |fault| TransferError::file("cannot write", place, fault);
        let mine = part.file().metadata().map_err(write)?;
        let mut precious = false;
        if let Err(part) = part.place_new(place).map_err(write)? {
            if let Ok(found) = fs::symlink_metadata(place) {
                self.check_free(place, &found)?;
                if found.is_dir() {
                    part.discard();
                    return Ok(Put::Blocked);
                }
                precious = is_precious(place, &found, meta);
            }
            part.place(place).map_err(write)?;
        }
        self.claim(place, &mine)?;
        Ok(if precious { Put::Replaced } else { Put::Placed })
    }

    /// Fails where what is at `place` was put there by this transfer. A directory may hold two names of one file, and
    /// a new file the number of one that somebody has removed: neither is this place.
    pub(crate) fn check_free(&self, place: &Path, found: &Metadata) -> Result<(), TransferError> {
        if self.has(found) && (self.made.contains(&named(place)) || !is_listed(place)) {
            return Err(twice(place));
        }
        Ok(())
    }

    /// A directory or link is held until the end, with names of `len` bytes.
    pub(crate) fn remember_entry(&mut self, len: usize) -> Result<(), TransferError> {
        self.remember(len + ENTRY_LEN)
    }

    fn remember(&mut self, len: usize) -> Result<(), TransferError> {
        self.names_left = self
            .names_left
            .checked_sub(len)
            .ok_or(TransferError::Limit("names of this tree; send it in parts"))?;
        Ok(())
    }

    /// What was opened keeps what it has now: its entries' modes were set.
    pub(crate) fn settle(&mut self, set: &HashSet<&Path>) {
        self.opened
            .0
            .retain(|(path, _)| !set.contains(path.as_path()));
    }
}

/// The name that a file of this path has while it is not whole, if it is to be continued later. Made of a hash: nothing
/// of the peer's is in it. Of the path alone, so that a file that has changed takes its older part's place; whether the
/// part is a beginning of the file, the sender finds by its hash.
pub(crate) fn partial_name(meta: &Meta, len: u64) -> Option<String> {
    (len >= PARTIAL_LEN_MIN).then(|| format!(".narrows-{:016x}.partial", xxh3_64(&meta.path)))
}

/// Opens a regular file to be read, not what a link leads to.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(flags.bits() as i32);
    options.open(path)
}

fn look_at_dir(dir: &Path) -> Result<Metadata, TransferError> {
    let found =
        fs::symlink_metadata(dir).map_err(|fault| TransferError::file("cannot use", dir, fault))?;
    if found.is_dir() {
        return Ok(found);
    }
    Err(TransferError::Refused(format!(
        "{} is here, and not a directory",
        dir.display()
    )))
}

fn inode(found: &Metadata) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&found.dev().to_le_bytes());
    bytes[8..].copy_from_slice(&found.ino().to_le_bytes());
    xxh3_64(&bytes)
}

fn named(place: &Path) -> u64 {
    xxh3_64(place.as_os_str().as_bytes())
}

/// Whether the directory shows this very name, and not another that it takes for the same.
fn is_listed(place: &Path) -> bool {
    let dir = place.parent().unwrap_or(Path::new("."));
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.any(|entry| Some(entry.file_name().as_os_str()) == place.file_name())
}

/// Whether what is to be replaced is newer or write-protected; told where it is.
pub(crate) fn is_precious(place: &Path, found: &Metadata, meta: &Meta) -> bool {
    let newer = (found.mtime(), found.mtime_nsec() as u32) > (meta.mtime_s, meta.mtime_ns);
    let precious = found.is_file() && (newer || found.mode() & 0o222 == 0);
    if precious {
        let what = if newer { "newer" } else { "write-protected" };
        tracing::warn!(path = %place.display(), "replaced, though it was {what}");
    }
    precious
}

fn twice(place: &Path) -> TransferError {
    TransferError::Refused(format!(
        "two entries that are both {}: send them apart, or into another directory",
        place.display()
    ))
}
