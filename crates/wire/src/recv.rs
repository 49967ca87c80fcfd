//! Writes a channel into a directory or to a stream.
//!
//! A file is written beside its place as `.narrows-*.part` and renamed when it is whole; what is not whole when the
//! transfer fails is removed. Nothing is written outside the directory: paths are relative and without `..`, no
//! directory on the way may be a link, and links that the sender sends are made last.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, BufRead, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Component, Path, PathBuf},
    time::{Duration, SystemTime},
};

use narrows::{ChannelReader, Incoming};

use crate::{
    Received, SERVICE_STREAM, SERVICE_TREE, TransferError,
    send::{Progress, give_up, report},
    tree::{Entry, Extent, Meta},
};

/// Where what arrives goes.
pub enum Sink<'a> {
    /// Trees, into this directory.
    Dir(&'a Path),
    /// A stream's bytes, to this writer.
    Stream(&'a mut dyn Write),
}

/// Receives one transfer and tells the sender when everything is in place.
///
/// # Errors
/// [`TransferError`]; the sender is told, and nothing is left under a final name that is not whole.
pub fn incoming(
    incoming: Incoming,
    sink: Sink<'_>,
    progress: Progress<'_>,
) -> Result<Received, TransferError> {
    let Incoming {
        service,
        mut writer,
        mut reader,
    } = incoming;
    let received = match (service.as_str(), sink) {
        (SERVICE_TREE, Sink::Dir(dir)) => tree(&mut reader, dir, progress),
        (SERVICE_STREAM, Sink::Stream(out)) => stream(&mut reader, out, progress),
        (SERVICE_TREE, Sink::Stream(_)) => Err(TransferError::Refused(
            "the sender offers files; name a directory to receive them in".into(),
        )),
        (SERVICE_STREAM, Sink::Dir(_)) => Err(TransferError::Refused(
            "the sender offers a stream; receive it with `narrows recv -`".into(),
        )),
        (other, _) => Err(TransferError::Refused(format!(
            "an offer of `{}`",
            other.escape_debug()
        ))),
    };
    match received {
        Ok(received) => {
            // What is in place is received, whether or not the sender lives to hear it.
            if let Err(fault) = report(&mut writer, received) {
                tracing::warn!("everything is in place, but the sender may not know: {fault}");
            }
            Ok(received)
        }
        Err(fault) => Err(give_up(writer, fault)),
    }
}

fn stream(
    reader: &mut ChannelReader,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Received, TransferError> {
    let mut bytes = 0;
    let write = |fault| TransferError::file("cannot write", Path::new("the output"), fault);
    while let Some(chunk) = reader.next_chunk()? {
        // Flushed each time: whoever reads the output waits for it.
        out.write_all(chunk)
            .and_then(|()| out.flush())
            .map_err(write)?;
        bytes += chunk.len() as u64;
        progress(bytes);
    }
    Ok(Received { entries: 1, bytes })
}

fn tree(
    reader: &mut ChannelReader,
    dir: &Path,
    progress: Progress<'_>,
) -> Result<Received, TransferError> {
    fs::create_dir_all(dir).map_err(|fault| TransferError::file("cannot make", dir, fault))?;
    let mut writer = TreeWriter {
        dir,
        made: Received::default(),
        safe: HashSet::new(),
        dirs: Vec::new(),
        links: Vec::new(),
        names_left: NAMES_LEN_MAX,
        progress,
        serial: 0,
    };
    loop {
        match Entry::read(reader).map_err(not_a_tree)? {
            Entry::Dir(meta) => writer.dir(meta)?,
            Entry::File(meta) => writer.file(&meta, reader)?,
            Entry::Link(meta, target) => {
                let place = writer.place(&meta)?;
                writer.remember(place.as_os_str().len() + target.len())?;
                writer.links.push((place, target));
            }
            Entry::End(entries) if entries == writer.made.entries + writer.links.len() as u64 => {
                break;
            }
            Entry::End(_) => {
                return Err(TransferError::Refused(
                    "a tree with another count of entries".into(),
                ));
            }
        }
    }
    writer.end()
}

/// Most that is held of the directories and links of a tree until all of it has come, in bytes: millions.
const NAMES_LEN_MAX: usize = 512 << 20;
/// What one of them takes beside its names.
const ENTRY_LEN: usize = 256;

struct TreeWriter<'a> {
    dir: &'a Path,
    made: Received,
    /// Directories seen to be real ones, so that each is looked at once.
    safe: HashSet<PathBuf>,
    /// Modes and times of directories, set last: earlier, a read-only one could not be filled.
    dirs: Vec<(PathBuf, Meta)>,
    links: Vec<(PathBuf, Vec<u8>)>,
    /// What may still be held of those three, in bytes.
    names_left: usize,
    progress: Progress<'a>,
    serial: u64,
}

/// A file being written; removed unless it was put in its place.
struct Part {
    file: File,
    path: PathBuf,
    placed: bool,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl TreeWriter<'_> {
    fn dir(&mut self, meta: Meta) -> Result<(), TransferError> {
        let place = self.place(&meta)?;
        // Closed to others until it has its own mode: files inside have theirs at once, and count on its.
        match DirBuilder::new().mode(0o700).create(&place) {
            Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(|fault| TransferError::file("cannot make", &place, fault))?,
        }
        self.check_dir(&place)?;
        self.remember(2 * place.as_os_str().len() + meta.path.len())?;
        self.dirs.push((place, meta));
        self.made.entries += 1;
        Ok(())
    }

    fn file(&mut self, meta: &Meta, reader: &mut ChannelReader) -> Result<(), TransferError> {
        let place = self.place(meta)?;
        let write = |fault| TransferError::file("cannot write", &place, fault);
        let mut part = self
            .part(place.parent().unwrap_or(self.dir))
            .map_err(write)?;
        let mut at = 0_u64;
        loop {
            match Extent::read(reader).map_err(not_a_tree)? {
                Extent::End => break,
                Extent::Hole(len) => {
                    at = at
                        .checked_add(len)
                        .filter(|at| *at <= i64::MAX as u64)
                        .ok_or_else(too_long)?;
                    part.file.set_len(at).map_err(write)?;
                    self.count(len);
                }
                Extent::Data(len) => {
                    let mut left = len as usize;
                    while left > 0 {
                        let bytes = reader.fill_buf().map_err(not_a_tree)?;
                        if bytes.is_empty() {
                            return Err(TransferError::Refused(
                                "a tree that ends within a file".into(),
                            ));
                        }
                        let now = bytes.len().min(left);
                        part.file.write_all_at(&bytes[..now], at).map_err(write)?;
                        reader.consume(now);
                        at = at.checked_add(now as u64).ok_or_else(too_long)?;
                        left -= now;
                        self.count(now as u64);
                    }
                }
            }
        }
        part.file
            .set_permissions(Permissions::from_mode(meta.mode & 0o777))
            .map_err(write)?;
        part.file.set_modified(mtime(meta)).map_err(write)?;
        fs::rename(&part.path, &place).map_err(write)?;
        part.placed = true;
        self.made.entries += 1;
        Ok(())
    }

    /// A new file in `dir`. A name may be taken: in a container every receiver has the same process number, and one
    /// that was killed left its file.
    fn part(&mut self, dir: &Path) -> io::Result<Part> {
        loop {
            self.serial += 1;
            let path = dir.join(format!(
                ".narrows-{}-{}.part",
                std::process::id(),
                self.serial
            ));
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => {
                    return Ok(Part {
                        file,
                        path,
                        placed: false,
                    });
                }
                Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    fn end(mut self) -> Result<Received, TransferError> {
        for (place, target) in std::mem::take(&mut self.links) {
            let make = |fault| TransferError::file("cannot make", &place, fault);
            if fs::symlink_metadata(&place).is_ok_and(|meta| !meta.is_dir()) {
                fs::remove_file(&place).map_err(make)?;
            }
            symlink(OsStr::from_bytes(&target), &place).map_err(make)?;
            self.made.entries += 1;
        }
        for (place, meta) in self.dirs.iter().rev() {
            let set = |fault| TransferError::file("cannot set the mode of", place, fault);
            // Checked before it was filled, and links are made by now: look again before following the name.
            if fs::symlink_metadata(place).map_err(set)?.is_dir() {
                // Opened before it may become unreadable.
                let dir = File::open(place).map_err(set)?;
                dir.set_modified(mtime(meta)).map_err(set)?;
                // The sticky bit takes rights away: a directory that all may write to is not opened by losing it.
                dir.set_permissions(Permissions::from_mode(meta.mode & 0o1777))
                    .map_err(set)?;
            }
        }
        Ok(self.made)
    }

    /// A directory or link is held until the end, with names of `len` bytes.
    fn remember(&mut self, len: usize) -> Result<(), TransferError> {
        match self.names_left.checked_sub(len + ENTRY_LEN) {
            Some(left) => self.names_left = left,
            None => {
                return Err(TransferError::Limit(
                    "directories and links of this tree; send it in parts",
                ));
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.made.bytes = self.made.bytes.saturating_add(bytes);
        (self.progress)(self.made.bytes);
    }

    /// Where an entry goes, if it may.
    fn place(&mut self, meta: &Meta) -> Result<PathBuf, TransferError> {
        let path = Path::new(OsStr::from_bytes(&meta.path));
        let name = path.display().to_string();
        // `a/` and `a/.` have the same parts as `a`, but the system follows a link to get there.
        let plain = path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
        if !plain
            || path
                .components()
                .any(|part| !matches!(part, Component::Normal(_)))
        {
            return Err(TransferError::Refused(format!(
                "the path `{}` leads elsewhere",
                name.escape_debug()
            )));
        }
        let mut on_the_way = self.dir.to_path_buf();
        let parents = path.parent().into_iter().flat_map(Path::components);
        for part in parents {
            on_the_way.push(part);
            self.check_dir(&on_the_way)?;
        }
        Ok(self.dir.join(path))
    }

    fn check_dir(&mut self, dir: &Path) -> Result<(), TransferError> {
        if self.safe.contains(dir) {
            return Ok(());
        }
        let meta = fs::symlink_metadata(dir)
            .map_err(|fault| TransferError::file("cannot use", dir, fault))?;
        if !meta.is_dir() {
            return Err(TransferError::Refused(format!(
                "{} is here, and not a directory",
                dir.display()
            )));
        }
        self.safe.insert(dir.to_path_buf());
        Ok(())
    }
}

fn mtime(meta: &Meta) -> SystemTime {
    let (whole, part) = (
        Duration::from_secs(meta.mtime_s.unsigned_abs()),
        Duration::from_nanos(meta.mtime_ns.into()),
    );
    let base = if meta.mtime_s >= 0 {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    };
    base.and_then(|base| base.checked_add(part))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn too_long() -> TransferError {
    TransferError::Refused("a file longer than any can be".into())
}

/// A fault while reading the tree: the session's own, or bytes that are no tree.
fn not_a_tree(fault: io::Error) -> TransferError {
    match fault.downcast::<narrows::Error>() {
        Ok(end) => TransferError::Session(end),
        Err(fault) => TransferError::Refused(format!("a damaged tree: {fault}")),
    }
}
