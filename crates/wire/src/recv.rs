//! Writes a channel into a directory or to a stream.
//!
//! A file is written beside its place as `.narrows-*.part` and renamed when it is whole; what is not whole when the
//! transfer fails is removed, or kept under a name of its own where the sender wants to continue it. Links that the
//! sender sends are made last. Where entries may go: `place`.

use std::{
    collections::{HashSet, VecDeque},
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, BufRead, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use narrows::{ChannelReader, ChannelWriter, Incoming};
use narrows_io::part::Part;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    Received, SERVICE_STREAM, SERVICE_TREE, SERVICE_TREE_2, TransferError,
    dialogue::{Answer, OFFERS_MAX, Request, Verdict, read_document, write_document},
    place::{Places, open_plain, partial_name},
    send::{Moment, Progress, give_up, report},
    tree::{Entry, Extent, Meta, Offer},
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
        (SERVICE_TREE, Sink::Dir(dir)) => tree(&mut reader, dir, progress, None),
        (SERVICE_TREE_2, Sink::Dir(dir)) => tree(&mut reader, dir, progress, Some(&mut writer)),
        (SERVICE_STREAM, Sink::Stream(out)) => stream(&mut reader, out, progress),
        (SERVICE_TREE | SERVICE_TREE_2, Sink::Stream(_)) => Err(TransferError::Refused(
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
        progress(&Moment {
            bytes,
            entries: 0,
            path: Path::new("-"),
        });
    }
    Ok(Received {
        entries: 1,
        bytes,
        ..Received::default()
    })
}

/// `answers` is there for `tree/2`.
fn tree(
    reader: &mut ChannelReader,
    dir: &Path,
    progress: Progress<'_>,
    mut answers: Option<&mut ChannelWriter>,
) -> Result<Received, TransferError> {
    fs::create_dir_all(dir).map_err(|fault| TransferError::file("cannot make", dir, fault))?;
    let mut writer = TreeWriter {
        places: Places::new(dir),
        dir,
        request: Request::default(),
        made: Received::default(),
        dirs: Vec::new(),
        links: Vec::new(),
        offers: VecDeque::new(),
        said: Vec::new(),
        progress,
    };
    if let Some(answers) = &mut answers {
        writer.request = read_document(reader).map_err(not_a_tree)?;
        let answer = writer.answer()?;
        write_document(&mut writer.said, &answer);
        writer.say(answers)?;
    }
    loop {
        // The sender waits for verdicts when it has sent what it had.
        if let Some(answers) = &mut answers
            && reader.is_drained()
        {
            writer.say(answers)?;
        }
        let entry = Entry::read(reader).map_err(not_a_tree)?;
        match entry {
            Entry::End(_) => {
                writer.check_end(&entry)?;
                break;
            }
            entry if answers.is_some() => writer.entry(entry, reader)?,
            Entry::Dir(_) | Entry::File(_) | Entry::Link(..) => writer.entry(entry, reader)?,
            _ => {
                return Err(TransferError::Refused(
                    "a damaged tree: an entry of a later version".into(),
                ));
            }
        }
    }
    if !reader.fill_buf().map_err(not_a_tree)?.is_empty() {
        return Err(TransferError::Refused("bytes after the tree's end".into()));
    }
    writer.end()
}

struct TreeWriter<'a> {
    places: Places<'a>,
    dir: &'a Path,
    request: Request,
    made: Received,
    /// Modes and times of directories, set last: earlier, a read-only one could not be filled.
    dirs: Vec<(PathBuf, Meta)>,
    links: Vec<(PathBuf, Meta, Vec<u8>)>,
    /// What was offered and is wanted.
    offers: VecDeque<(Meta, Offer)>,
    /// Verdicts that were not sent yet.
    said: Vec<u8>,
    progress: Progress<'a>,
}

impl TreeWriter<'_> {
    fn answer(&self) -> Result<Answer, TransferError> {
        let cannot = |fault| TransferError::file("cannot use", self.dir, fault);
        let found = fs::metadata(self.dir).map_err(cannot)?;
        let mut names = fs::read_dir(self.dir).map_err(cannot)?;
        Ok(Answer {
            empty: names.next().is_none(),
            directory: (found.dev(), found.ino()),
        })
    }

    fn say(&mut self, answers: &mut ChannelWriter) -> Result<(), TransferError> {
        if !self.said.is_empty() {
            answers.push(answers.buffer_of(&self.said))?;
            self.said.clear();
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry, reader: &mut ChannelReader) -> Result<(), TransferError> {
        match entry {
            Entry::Dir(meta) => {
                let place = self.places.of(&meta)?;
                self.places.dir(&place)?;
                self.places
                    .remember_entry(place.as_os_str().len() + meta.path.len())?;
                self.dirs.push((place, meta));
                self.made.entries += 1;
            }
            Entry::File(meta) => {
                let place = self.places.of(&meta)?;
                let part = new_part(&place)?;
                self.file(&meta, &place, part, 0, reader)?;
            }
            Entry::Link(meta, target) => {
                let place = self.places.of(&meta)?;
                self.places
                    .remember_entry(place.as_os_str().len() + meta.path.len() + target.len())?;
                self.links.push((place, meta, target));
            }
            Entry::Offer(meta, offer) => {
                let verdict = self.verdict(&meta, &offer)?;
                verdict.write(&mut self.said);
                if matches!(verdict, Verdict::Whole | Verdict::From { .. }) {
                    if self.offers.len() == OFFERS_MAX {
                        return Err(TransferError::Limit("files offered and not sent"));
                    }
                    self.offers.push_back((meta, offer));
                }
            }
            Entry::Content(head, start) => {
                let (offered, offer) = self.offered()?;
                let place = self.places.of(&offered)?;
                let part = self.continued(&offered, &offer, &place, start)?;
                let meta = Meta {
                    path: offered.path,
                    ..head
                };
                self.file(&meta, &place, part, start, reader)?;
            }
            Entry::Withdrawn => drop(self.offered()?),
            Entry::LeftOut(files) => self.made.left_out = files,
            Entry::End(_) => {}
        }
        Ok(())
    }

    fn offered(&mut self) -> Result<(Meta, Offer), TransferError> {
        let none = || TransferError::Refused("a file that was not offered".into());
        self.offers.pop_front().ok_or_else(none)
    }

    /// Whether a file that is offered is wanted.
    fn verdict(&mut self, meta: &Meta, offer: &Offer) -> Result<Verdict, TransferError> {
        let place = self.places.of(meta)?;
        if let Ok(found) = fs::symlink_metadata(&place)
            && found.is_file()
        {
            self.places.check_free(&place, &found)?;
            let verdict = if self.request.ignore_existing {
                Some(Verdict::Kept)
            } else if is_unchanged(&place, &found, meta, offer) {
                let mode = meta.mode & 0o777;
                if found.mode() & 0o7777 != mode {
                    let set = fs::set_permissions(&place, Permissions::from_mode(mode));
                    set.map_err(|fault| TransferError::file("cannot change", &place, fault))?;
                }
                Some(Verdict::Unchanged)
            } else if self.request.update && is_newer(&found, meta) {
                Some(Verdict::Kept)
            } else {
                None
            };
            if let Some(verdict) = verdict {
                self.places.claim(&place, &found)?;
                self.made.entries += 1;
                if verdict == Verdict::Kept {
                    self.made.kept += 1;
                } else {
                    self.made.unchanged += 1;
                }
                return Ok(verdict);
            }
        }
        if let (true, Some(name)) = (self.request.partial, partial_name(meta, offer))
            && let Some((len, hash)) = begun(&place.with_file_name(name), offer.len)
        {
            return Ok(Verdict::From { len, hash });
        }
        Ok(Verdict::Whole)
    }

    /// Where an offered file's content goes, of which `start` bytes are there.
    fn continued(
        &self,
        meta: &Meta,
        offer: &Offer,
        place: &Path,
        start: u64,
    ) -> Result<Part, TransferError> {
        let write = |fault| TransferError::file("cannot write", place, fault);
        let dir = place.parent().unwrap_or(self.dir);
        if let (true, Some(name)) = (self.request.partial, partial_name(meta, offer))
            && let Some(part) = Part::resume(dir, &name).map_err(write)?
        {
            if part.file().metadata().map_err(write)?.len() < start {
                return Err(TransferError::Refused(
                    "the rest of what is not here".into(),
                ));
            }
            part.file().set_len(start).map_err(write)?;
            return Ok(part);
        }
        if start > 0 {
            return Err(write(io::Error::other("another transfer is writing it")));
        }
        new_part(place)
    }

    fn file(
        &mut self,
        meta: &Meta,
        place: &Path,
        part: Part,
        start: u64,
        reader: &mut ChannelReader,
    ) -> Result<(), TransferError> {
        let write = |fault| TransferError::file("cannot write", place, fault);
        let before = (self.made.bytes, self.made.holes);
        if !self.extents(place, &part, start, reader)? {
            (self.made.bytes, self.made.holes) = before;
            part.discard();
            return Ok(());
        }
        part.file()
            .set_permissions(Permissions::from_mode(meta.mode & 0o777))
            .map_err(write)?;
        part.file().set_modified(mtime(meta)).map_err(write)?;
        self.made.replaced += u64::from(self.places.put(part, place, meta)?);
        self.made.entries += 1;
        Ok(())
    }

    /// Writes a file's extents from byte `at` on; whether it is whole.
    fn extents(
        &mut self,
        place: &Path,
        part: &Part,
        mut at: u64,
        reader: &mut ChannelReader,
    ) -> Result<bool, TransferError> {
        let write = |fault| TransferError::file("cannot write", place, fault);
        loop {
            match Extent::read(reader).map_err(not_a_tree)? {
                Extent::End => return Ok(true),
                Extent::Abandoned => return Ok(false),
                Extent::Hole(len) => {
                    at = at
                        .checked_add(len)
                        .filter(|at| *at <= i64::MAX as u64)
                        .ok_or_else(too_long)?;
                    part.file().set_len(at).map_err(write)?;
                    self.made.holes = self.made.holes.saturating_add(len);
                    self.count(len, place);
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
                        part.file().write_all_at(&bytes[..now], at).map_err(write)?;
                        reader.consume(now);
                        at = at.checked_add(now as u64).ok_or_else(too_long)?;
                        left -= now;
                        self.count(now as u64, place);
                    }
                }
            }
        }
    }

    fn check_end(&self, end: &Entry) -> Result<(), TransferError> {
        if *end != Entry::End(self.made.entries + self.links.len() as u64) {
            return Err(TransferError::Refused(
                "a tree with another count of entries".into(),
            ));
        }
        if !self.offers.is_empty() {
            return Err(TransferError::Refused(
                "a tree that ends without files it offered".into(),
            ));
        }
        Ok(())
    }

    fn end(mut self) -> Result<Received, TransferError> {
        for (place, meta, target) in std::mem::take(&mut self.links) {
            self.link(&place, &meta, &target)?;
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
        let set: HashSet<&Path> = self.dirs.iter().map(|(path, _)| path.as_path()).collect();
        self.places.settle(&set);
        Ok(self.made)
    }

    fn link(&mut self, place: &Path, meta: &Meta, target: &[u8]) -> Result<(), TransferError> {
        let make = |fault| TransferError::file("cannot make", place, fault);
        let mut there = false;
        if let Ok(found) = fs::symlink_metadata(place) {
            self.places.check_free(place, &found)?;
            let leads = fs::read_link(place);
            there = leads.is_ok_and(|leads| leads.as_os_str().as_bytes() == target);
            if !there && !found.is_dir() {
                fs::remove_file(place).map_err(make)?;
            }
        }
        if !there {
            symlink(OsStr::from_bytes(target), place).map_err(make)?;
        }
        let time = Timespec {
            tv_sec: meta.mtime_s,
            tv_nsec: meta.mtime_ns.into(),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|fault| TransferError::file("cannot set the time of", place, fault.into()))?;
        let made = fs::symlink_metadata(place).map_err(make)?;
        self.places.claim(place, &made)
    }

    fn count(&mut self, bytes: u64, path: &Path) {
        self.made.bytes = self.made.bytes.saturating_add(bytes);
        (self.progress)(&Moment {
            bytes: self.made.bytes,
            entries: self.made.entries,
            path,
        });
    }
}

fn new_part(place: &Path) -> Result<Part, TransferError> {
    let dir = place.parent().unwrap_or(Path::new("."));
    Part::create(dir, 0o600).map_err(|fault| TransferError::file("cannot write", place, fault))
}

/// Whether the file that is there is the one that is offered: by content where the sender says so, else by time. A file
/// system that keeps whole seconds has cut the rest off.
fn is_unchanged(place: &Path, found: &fs::Metadata, meta: &Meta, offer: &Offer) -> bool {
    if found.len() != offer.len {
        return false;
    }
    match offer.hash {
        Some(hash) => open_plain(place)
            .and_then(|file| hash_of(file, offer.len))
            .is_ok_and(|(_, found)| found == hash),
        None => {
            let ns = found.mtime_nsec() as u32;
            found.mtime() == meta.mtime_s && (ns == meta.mtime_ns || ns == 0)
        }
    }
}

fn is_newer(found: &fs::Metadata, meta: &Meta) -> bool {
    (found.mtime(), found.mtime_nsec() as u32) > (meta.mtime_s, meta.mtime_ns)
}

/// What is there of a file that was cut short: length and hash. Nothing where it is empty, too long, or not ours.
fn begun(path: &Path, len_max: u64) -> Option<(u64, u128)> {
    let file = open_plain(path).ok()?;
    let len = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
    if len == 0 || len > len_max {
        return None;
    }
    hash_of(file, len).ok().filter(|(read, _)| *read == len)
}

/// Length and XXH3-128 of the first `len` bytes of a file, as far as they are there.
pub(crate) fn hash_of(file: File, len: u64) -> io::Result<(u64, u128)> {
    let (mut hash, mut piece) = (Xxh3::new(), vec![0; 128 << 10]);
    let (mut from, mut read) = (file.take(len), 0);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok((read, hash.digest128())),
            Ok(now) => {
                hash.update(&piece[..now]);
                read += now as u64;
            }
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) => return Err(fault),
        }
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
