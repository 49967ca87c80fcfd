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
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, linkat, utimensat};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    Received, SERVICE_STREAM, SERVICE_TREE, SERVICE_TREE_2, SERVICE_TREE_3, TransferError,
    dialogue::{
        Answer, OFFERS_LEN_MAX, OFFERS_MAX, Request, Verdict, read_document, write_document,
    },
    keep::{Keep, Owners},
    place::{Places, Put, is_precious, open_plain, partial_name},
    send::{Moment, Progress, give_up, report},
    tree::{Entry, Extent, Extras, Meta, Offer},
};

/// Where what arrives goes.
pub enum Sink<'a> {
    /// Trees, into this directory; of owners and the like what may be set.
    Dir(&'a Path, Keep),
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
        (SERVICE_TREE | SERVICE_TREE_2 | SERVICE_TREE_3, Sink::Dir(dir, allowed)) => {
            let version = match service.as_str() {
                SERVICE_TREE => 1,
                SERVICE_TREE_2 => 2,
                _ => 3,
            };
            let tree = TreeWriter::new(dir, allowed, version, progress);
            tree.and_then(|tree| tree.all(&mut reader, &mut writer))
        }
        (SERVICE_STREAM, Sink::Stream(out)) => stream(&mut reader, out, progress),
        (SERVICE_TREE | SERVICE_TREE_2 | SERVICE_TREE_3, Sink::Stream(_)) => {
            Err(TransferError::Refused(
                "the sender offers files; name a directory to receive them in".into(),
            ))
        }
        (SERVICE_STREAM, Sink::Dir(..)) => Err(TransferError::Refused(
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

struct TreeWriter<'a> {
    places: Places<'a>,
    dir: &'a Path,
    /// Of the service.
    version: u8,
    /// What the user here lets senders set.
    allowed: Keep,
    request: Request,
    made: Received,
    /// Modes and times of directories, set last: earlier, a read-only one could not be filled.
    dirs: Vec<(PathBuf, Meta, Extras)>,
    links: Vec<(PathBuf, Meta, Vec<u8>, Extras)>,
    /// Other names of files: this place is to be the same file as that one.
    hard_links: Vec<(PathBuf, Meta, PathBuf)>,
    /// What was offered and is wanted.
    offers: VecDeque<(Meta, Offer, Extras)>,
    /// What the extras of those take, in bytes.
    offers_len: usize,
    /// Of the next entry.
    extras: Option<Extras>,
    owners: Owners,
    /// Verdicts that were not sent yet.
    said: Vec<u8>,
    progress: Progress<'a>,
}

impl<'a> TreeWriter<'a> {
    fn new(
        dir: &'a Path,
        allowed: Keep,
        version: u8,
        progress: Progress<'a>,
    ) -> Result<Self, TransferError> {
        fs::create_dir_all(dir).map_err(|fault| TransferError::file("cannot make", dir, fault))?;
        Ok(Self {
            places: Places::new(dir),
            dir,
            version,
            allowed,
            request: Request::default(),
            made: Received::default(),
            dirs: Vec::new(),
            links: Vec::new(),
            hard_links: Vec::new(),
            offers: VecDeque::new(),
            offers_len: 0,
            extras: None,
            owners: Owners::default(),
            said: Vec::new(),
            progress,
        })
    }

    fn all(
        mut self,
        reader: &mut ChannelReader,
        answers: &mut ChannelWriter,
    ) -> Result<Received, TransferError> {
        if self.version > 1 {
            self.request = read_document(reader).map_err(not_a_tree)?;
            if self.request.keep.is_beyond(self.allowed) {
                return Err(TransferError::Refused(
                    "owners, access lists or attributes to set: allow that here by the same of -o -g -A -X".into(),
                ));
            }
            let answer = self.answer()?;
            write_document(&mut self.said, &answer);
            self.say(answers)?;
        }
        loop {
            // The sender waits for verdicts when it has sent what it had.
            if self.version > 1 && reader.is_drained() {
                self.say(answers)?;
            }
            let entry = Entry::read(reader).map_err(not_a_tree)?;
            if let Entry::End(_) = entry {
                self.check_end(&entry)?;
                break;
            }
            if entry.version() > self.version {
                return Err(TransferError::Refused(
                    "a damaged tree: an entry of a later version".into(),
                ));
            }
            self.entry(entry, reader)?;
        }
        if !reader.fill_buf().map_err(not_a_tree)?.is_empty() {
            return Err(TransferError::Refused("bytes after the tree's end".into()));
        }
        self.end()
    }

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
        let extras = self.extras.take();
        if extras.is_some() && !entry.has_extras() {
            return Err(TransferError::Refused(
                "a damaged tree: extras of nothing".into(),
            ));
        }
        let extras = extras.unwrap_or_default();
        match entry {
            Entry::Dir(meta) => {
                let place = self.places.of(&meta)?;
                self.make_way(&place, &meta)?;
                self.places.dir(&place)?;
                self.places
                    .remember_entry(place.as_os_str().len() + meta.path.len() + extras.bytes())?;
                self.dirs.push((place, meta, extras));
                self.made.entries += 1;
            }
            Entry::File(meta) => {
                let place = self.places.of(&meta)?;
                let part = new_part(&place)?;
                let whole = Whole {
                    meta,
                    place,
                    extras,
                };
                self.file(&whole, part, 0, reader)?;
            }
            Entry::Link(meta, target) => {
                let place = self.places.of(&meta)?;
                let len = place.as_os_str().len() + meta.path.len() + target.len();
                self.places.remember_entry(len + extras.bytes())?;
                self.links.push((place, meta, target, extras));
            }
            Entry::HardLink(meta, target) => {
                let place = self.places.of(&meta)?;
                let target = self.places.of(&Meta {
                    path: target,
                    ..meta
                })?;
                let len = place.as_os_str().len() + target.as_os_str().len() + meta.path.len();
                self.places.remember_entry(len)?;
                self.hard_links.push((place, meta, target));
            }
            Entry::Extras(extras) => self.extras = Some(extras),
            Entry::Offer(meta, offer) => {
                let verdict = self.verdict(&meta, &offer, &extras)?;
                verdict.write(&mut self.said);
                if matches!(verdict, Verdict::Whole | Verdict::From { .. }) {
                    self.offers_len += extras.bytes();
                    if self.offers.len() == OFFERS_MAX || self.offers_len > OFFERS_LEN_MAX {
                        return Err(TransferError::Limit("files offered and not sent"));
                    }
                    self.offers.push_back((meta, offer, extras));
                }
            }
            Entry::Content(head, start) => {
                let (offered, offer, extras) = self.offered()?;
                let place = self.places.of(&offered)?;
                let part = self.continued(&offered, &offer, &place, start)?;
                let meta = Meta {
                    path: offered.path,
                    ..head
                };
                let whole = Whole {
                    meta,
                    place,
                    extras,
                };
                self.file(&whole, part, start, reader)?;
            }
            Entry::Withdrawn => drop(self.offered()?),
            Entry::LeftOut(files) => self.made.left_out = files,
            Entry::End(_) => {}
        }
        Ok(())
    }

    fn offered(&mut self) -> Result<(Meta, Offer, Extras), TransferError> {
        let none = || TransferError::Refused("a file that was not offered".into());
        let offered = self.offers.pop_front().ok_or_else(none)?;
        self.offers_len -= offered.2.bytes();
        Ok(offered)
    }

    /// Whether a file that is offered is wanted.
    fn verdict(
        &mut self,
        meta: &Meta,
        offer: &Offer,
        extras: &Extras,
    ) -> Result<Verdict, TransferError> {
        let place = self.places.of(meta)?;
        if let Ok(found) = fs::symlink_metadata(&place) {
            self.places.check_free(&place, &found)?;
            let verdict = if found.is_dir() {
                self.note_blocked(&place);
                Some(Verdict::Kept)
            } else if self.request.ignore_existing {
                Some(Verdict::Kept)
            } else if found.is_file()
                && is_unchanged(&place, &found, meta, offer)
                && self.bring_up(&place, &found, meta, extras)?
            {
                Some(Verdict::Unchanged)
            } else if self.is_kept(&found, meta) {
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
        if let (true, Some(name)) = (self.request.partial, partial_name(meta, offer.len))
            && let Some((len, hash)) = begun(&place.with_file_name(name), offer.len)
        {
            return Ok(Verdict::From { len, hash });
        }
        Ok(Verdict::Whole)
    }

    /// Gives a file that is there already its mode and what else is kept. `false` where it is another entry's too, which
    /// may want them different.
    fn bring_up(
        &mut self,
        place: &Path,
        found: &fs::Metadata,
        meta: &Meta,
        extras: &Extras,
    ) -> Result<bool, TransferError> {
        let mode = meta.mode & 0o777;
        let keeps = self.request.keep.extras();
        if found.mode() & 0o7777 == mode && !keeps {
            return Ok(true);
        }
        if self.places.has(found) {
            return Ok(false);
        }
        if !keeps {
            let set = fs::set_permissions(place, Permissions::from_mode(mode));
            set.map_err(|fault| TransferError::file("cannot change", place, fault))?;
            return Ok(true);
        }
        // One that we may not read is sent anew.
        let Ok(file) = open_plain(place) else {
            return Ok(false);
        };
        let set = self.owners.set(&file, mode, self.request.keep, extras);
        self.note_unset(place, set);
        Ok(true)
    }

    /// Whether what is there stays, because the sender wanted that of newer ones or of any.
    fn is_kept(&self, found: &fs::Metadata, meta: &Meta) -> bool {
        self.request.ignore_existing || self.request.update && is_newer(found, meta)
    }

    /// Removes a file that stands where a directory is to be, as a file there gives way to a file.
    fn make_way(&mut self, place: &Path, meta: &Meta) -> Result<(), TransferError> {
        let Some(found) = fs::symlink_metadata(place)
            .ok()
            .filter(|found| found.is_file())
        else {
            return Ok(());
        };
        self.places.check_free(place, &found)?;
        if self.is_kept(&found, meta) {
            return Ok(());
        }
        fs::remove_file(place)
            .map_err(|fault| TransferError::file("cannot remove", place, fault))?;
        self.made.replaced += 1;
        tracing::warn!(path = %place.display(), "replaced, a file by a directory");
        Ok(())
    }

    /// A directory is never replaced by something else: what may lie in it is not the sender's.
    fn note_blocked(&mut self, place: &Path) {
        self.made.blocked += 1;
        tracing::error!(path = %place.display(), "not put in place: a directory is there");
    }

    /// What could not be set is told and counted; content is in place.
    fn note_unset(&mut self, place: &Path, set: Result<(), String>) {
        if let Err(why) = set {
            self.made.unset += 1;
            tracing::error!(path = %place.display(), "not as it is at the sender: {why}");
        }
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
        if let (true, Some(name)) = (self.request.partial, partial_name(meta, offer.len))
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
        whole: &Whole,
        part: Part,
        start: u64,
        reader: &mut ChannelReader,
    ) -> Result<(), TransferError> {
        let Whole {
            meta,
            place,
            extras,
        } = whole;
        let write = |fault| TransferError::file("cannot write", place, fault);
        let before = (self.made.bytes, self.made.holes);
        if !self.extents(place, &part, start, reader)? {
            (self.made.bytes, self.made.holes) = before;
            part.discard();
            return Ok(());
        }
        let mode = meta.mode & 0o777;
        if self.request.keep.extras() {
            let set = self
                .owners
                .set(part.file(), mode, self.request.keep, extras);
            self.note_unset(place, set);
        } else {
            part.file()
                .set_permissions(Permissions::from_mode(mode))
                .map_err(write)?;
        }
        part.file().set_modified(mtime(meta)).map_err(write)?;
        match self.places.put(part, place, meta)? {
            Put::Placed => {}
            Put::Replaced => self.made.replaced += 1,
            Put::Blocked => self.note_blocked(place),
        }
        self.made.entries += 1;
        // A part of an earlier transfer that was to be continued has no use any more.
        if let Some(name) = partial_name(meta, self.made.bytes - before.0) {
            let _ = fs::remove_file(place.with_file_name(name));
        }
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
        let last = self.links.len() + self.hard_links.len();
        if *end != Entry::End(self.made.entries + last as u64) {
            return Err(TransferError::Refused(
                "a tree with another count of entries".into(),
            ));
        }
        if self.extras.is_some() {
            return Err(TransferError::Refused(
                "a damaged tree: extras of nothing".into(),
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
        for (place, meta, target) in std::mem::take(&mut self.hard_links) {
            self.hard_link(&place, &meta, &target)?;
            self.made.entries += 1;
        }
        for (place, meta, target, extras) in std::mem::take(&mut self.links) {
            self.link(&place, &meta, &target, &extras)?;
            self.made.entries += 1;
        }
        let dirs = std::mem::take(&mut self.dirs);
        for (place, meta, extras) in dirs.iter().rev() {
            // Another user's may not let us: what is in it is in place all the same.
            let set = self.finish_dir(place, meta, extras);
            self.note_unset(place, set);
        }
        let set: HashSet<&Path> = dirs.iter().map(|(path, ..)| path.as_path()).collect();
        self.places.settle(&set);
        Ok(self.made)
    }

    /// Gives a directory its time, its mode and what else is kept, once it is filled.
    fn finish_dir(&mut self, place: &Path, meta: &Meta, extras: &Extras) -> Result<(), String> {
        let cannot = |what: &'static str| move |fault| format!("its {what} cannot be set: {fault}");
        // Checked before it was filled, and links are made by now: look again before following the name.
        let found = fs::symlink_metadata(place).map_err(cannot("mode"))?;
        if !found.is_dir() {
            return Ok(());
        }
        // Opened before it may become unreadable.
        let dir = File::open(place).map_err(cannot("mode"))?;
        dir.set_modified(mtime(meta)).map_err(cannot("time"))?;
        // The sticky bit takes rights away: a directory that all may write to is not opened by losing it.
        let mode = meta.mode & 0o1777;
        if self.request.keep.extras() {
            return self.owners.set(&dir, mode, self.request.keep, extras);
        }
        if found.mode() & 0o7777 == mode {
            return Ok(());
        }
        dir.set_permissions(Permissions::from_mode(mode))
            .map_err(cannot("mode"))
    }

    /// Makes `place` another name of the file at `target`, which this transfer has put or found there.
    fn hard_link(&mut self, place: &Path, meta: &Meta, target: &Path) -> Result<(), TransferError> {
        let make = |fault| TransferError::file("cannot make", place, fault);
        let file = fs::symlink_metadata(target).map_err(make)?;
        if !file.is_file() || !self.places.has(&file) {
            return Err(TransferError::Refused(
                "a hard link to what is no file of this tree".into(),
            ));
        }
        if let Ok(found) = fs::symlink_metadata(place) {
            self.places.check_free(place, &found)?;
            let same = (found.dev(), found.ino()) == (file.dev(), file.ino());
            if found.is_dir() {
                self.note_blocked(place);
                return Ok(());
            }
            if same || self.is_kept(&found, meta) {
                return self.places.claim(place, &found);
            }
            self.made.replaced += u64::from(is_precious(place, &found, meta));
            fs::remove_file(place).map_err(make)?;
        }
        // Not followed where a link stands there by now.
        linkat(CWD, target, CWD, place, AtFlags::empty()).map_err(|fault| make(fault.into()))?;
        self.places.claim(place, &file)
    }

    fn link(
        &mut self,
        place: &Path,
        meta: &Meta,
        target: &[u8],
        extras: &Extras,
    ) -> Result<(), TransferError> {
        let make = |fault| TransferError::file("cannot make", place, fault);
        let mut there = false;
        if let Ok(found) = fs::symlink_metadata(place) {
            self.places.check_free(place, &found)?;
            if found.is_dir() {
                self.note_blocked(place);
                return Ok(());
            }
            if self.is_kept(&found, meta) {
                return self.places.claim(place, &found);
            }
            let leads = fs::read_link(place);
            there = leads.is_ok_and(|leads| leads.as_os_str().as_bytes() == target);
            if !there {
                self.made.replaced += u64::from(is_precious(place, &found, meta));
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
        let set = self.owners.set_link(place, &made, extras);
        self.note_unset(place, set);
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

/// A file to be, and where.
struct Whole {
    meta: Meta,
    place: PathBuf,
    extras: Extras,
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
