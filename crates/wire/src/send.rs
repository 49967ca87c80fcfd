//! Reads paths or a stream into a channel.
//!
//! File bytes are read straight into the chunk that will travel; heads of entries are put between them. What cannot be
//! read is told, counted and left out; the rest is sent.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry as Slot},
    ffi::OsString,
    fs::{self, File, Metadata},
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
};

use narrows::{Buf, ChannelReader, ChannelWriter, Code, Endpoint};
use narrows_io::input::Input;
use rustix::{
    fs::{SeekFrom as Look, seek},
    io::Errno,
};

use crate::{
    Received, SERVICE_STREAM, SERVICE_TREE, SERVICE_TREE_2, SERVICE_TREE_3, TransferError,
    dialogue::{
        Answer, OFFERS_LEN_MAX, OFFERS_MAX, Request, Verdict, read_document, write_document,
    },
    keep::Owners,
    recv::hash_of,
    source::{Found, Source},
    tree::{EXTENT_LEN_MAX, Entry, Extent, Extras, Meta, Offer, PATH_LEN_MAX},
};

/// How far a transfer is.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// Content bytes so far, holes included.
    pub bytes: u64,
    /// Entries that are done.
    pub entries: u64,
    /// What is at work.
    pub path: &'a Path,
}

/// Told how far a transfer is.
pub type Progress<'a> = &'a mut dyn FnMut(&Moment<'_>);

/// A stream that pauses this long is sent as far as it is.
const FLUSH_AFTER_MS: i32 = 5;

/// What a sender wants beside sending.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// What the receiver is asked.
    pub request: Request,
    /// Files are compared by their content and not by their time.
    pub checksum: bool,
    /// Owners are kept by number, and not by name.
    pub numeric_ids: bool,
}

impl Wishes {
    /// Whether a receiver of the first version does not do.
    fn need_answers(&self) -> bool {
        let Request {
            update,
            ignore_existing,
            partial,
            keep,
            ask: _,
        } = self.request;
        update || ignore_existing || partial || self.checksum || keep.any()
    }
}

/// What became of a tree.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// The receiver's report.
    pub received: Received,
    /// Files, directories and links that could not be read, or were gone when it was their turn.
    pub left_out: u64,
}

/// Sends what `source` names and waits until the receiver has it in place.
///
/// # Errors
/// [`TransferError`]; the receiver is told and keeps nothing that is not whole. What could not be read is no error: see
/// [`Sent::left_out`].
pub fn paths(
    endpoint: &Endpoint,
    source: &Source,
    wishes: &Wishes,
    progress: Progress<'_>,
) -> Result<Sent, TransferError> {
    // A naive sender says nothing before the end, so nothing can be answered.
    let answers = endpoint.peer_takes(SERVICE_TREE_2) && !endpoint.is_naive();
    if wishes.need_answers() && !answers {
        return Err(TransferError::Refused(
            "a transfer that cannot compare or continue files: the receiver is of an older version, or the policy naive"
                .into(),
        ));
    }
    let keeps = wishes.request.keep.any();
    if keeps && !endpoint.peer_takes(SERVICE_TREE_3) {
        return Err(TransferError::Refused(
            "a transfer that keeps hard links, owners, access lists or attributes: the receiver is of an older version"
                .into(),
        ));
    }
    let service = match (answers, keeps) {
        (true, true) => SERVICE_TREE_3,
        (true, false) => SERVICE_TREE_2,
        (false, _) => SERVICE_TREE,
    };
    let (writer, reader) = endpoint.open(service)?;
    let mut sender = Sender {
        source,
        wishes,
        out: Filler::new(writer),
        reader,
        answers,
        ask: false,
        offers: VecDeque::new(),
        offers_len: 0,
        not_into: None,
        owners: Owners::numbered(wishes.numeric_ids),
        firsts: HashMap::new(),
        links: Vec::new(),
        head: Vec::new(),
        made: Received::default(),
        left_out: 0,
        progress,
    };
    match sender.all(endpoint) {
        Ok(()) => {
            let mut received = answer(&mut sender.reader)?;
            sender.check(&received)?;
            // A receiver of the first version does not tell.
            received.holes = sender.made.holes;
            received.left_out = sender.left_out;
            Ok(Sent {
                received,
                left_out: sender.left_out,
            })
        }
        Err(fault) => {
            sender.out.writer.abort(fault.code(), &fault.to_string());
            Err(fault)
        }
    }
}

/// Sends what `from` yields until its end. What is there leaves within milliseconds when `from` pauses.
///
/// # Errors
/// [`TransferError`]; the receiver is told.
pub fn stream(
    endpoint: &Endpoint,
    from: &mut (impl Read + AsFd),
    progress: Progress<'_>,
) -> Result<Received, TransferError> {
    let (writer, mut reader) = endpoint.open(SERVICE_STREAM)?;
    let mut out = Filler::new(writer);
    let mut bytes = 0;
    loop {
        if out.filled > 0 && !is_readable(from, FLUSH_AFTER_MS) {
            out.flush()?;
        }
        match from.read(out.room()?) {
            Ok(0) => break,
            Ok(len) => {
                out.advance(len)?;
                bytes += len as u64;
                progress(&Moment {
                    bytes,
                    entries: 0,
                    path: Path::new("-"),
                });
            }
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) => {
                let fault = TransferError::file("cannot read", Path::new("the input"), fault);
                out.writer.abort(fault.code(), &fault.to_string());
                return Err(fault);
            }
        }
    }
    out.flush()?;
    out.writer.finish()?;
    let received = answer(&mut reader)?;
    if (received.entries, received.bytes) == (1, bytes) {
        Ok(received)
    } else {
        Err(another_report())
    }
}

/// The receiver's report, which comes when everything is in place.
fn answer(reader: &mut ChannelReader) -> Result<Received, TransferError> {
    let mut report = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        report.extend_from_slice(chunk);
        if report.len() > 4096 {
            return Err(TransferError::Refused(
                "a report of over 4,096 bytes".into(),
            ));
        }
    }
    serde_json::from_slice(&report)
        .map_err(|fault| TransferError::Refused(format!("an unreadable report: {fault}")))
}

fn another_report() -> TransferError {
    TransferError::Refused("a report of something else than was sent".into())
}

fn is_readable(fd: &impl AsFd, wait_ms: i32) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(wait_ms) * 1_000_000,
    };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&wait)).is_ok_and(|ready| ready > 0)
}

/// Fills chunks from reads of any length.
struct Filler {
    writer: ChannelWriter,
    buf: Option<Buf>,
    filled: usize,
}

impl Filler {
    fn new(writer: ChannelWriter) -> Self {
        Self {
            writer,
            buf: None,
            filled: 0,
        }
    }

    /// Free space of the chunk being filled, never empty.
    fn room(&mut self) -> Result<&mut [u8], TransferError> {
        let writer = &self.writer;
        let filled = self.filled;
        Ok(&mut self.buf.get_or_insert_with(|| writer.buffer())[filled..])
    }

    /// `len` bytes of [`Filler::room`] were filled.
    fn advance(&mut self, len: usize) -> Result<(), TransferError> {
        self.filled += len;
        if self
            .buf
            .as_ref()
            .is_some_and(|buf| self.filled == buf.len())
        {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), TransferError> {
        while !bytes.is_empty() {
            let len = self.room()?.write(bytes).expect("slices take bytes");
            bytes = &bytes[len..];
            self.advance(len)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        if let Some(mut buf) = self.buf.take() {
            buf.truncate(std::mem::take(&mut self.filled));
            self.writer.push(buf)?;
        }
        Ok(())
    }
}

/// A file that was offered.
struct Offered {
    path: PathBuf,
    follows: bool,
    meta: Meta,
}

struct Sender<'a> {
    source: &'a Source,
    wishes: &'a Wishes,
    out: Filler,
    reader: ChannelReader,
    /// The receiver takes `tree/2`.
    answers: bool,
    /// Files are offered first.
    ask: bool,
    offers: VecDeque<Offered>,
    /// What the extras of those take, in bytes.
    offers_len: usize,
    /// Device and inode of the receiver's directory, where that is on this machine.
    not_into: Option<(u64, u64)>,
    owners: Owners,
    /// Of files with several names, by device and inode: the first one's path here, and its name there.
    firsts: HashMap<(u64, u64), (PathBuf, PathBuf)>,
    /// Their other names, path and name each, and whether a link may lead there: told last, when it is known which first ones have arrived.
    links: Vec<(PathBuf, PathBuf, bool)>,
    head: Vec<u8>,
    made: Received,
    left_out: u64,
    progress: Progress<'a>,
}

impl Sender<'_> {
    fn all(&mut self, endpoint: &Endpoint) -> Result<(), TransferError> {
        if self.answers {
            let request = Request {
                ask: true,
                ..self.wishes.request
            };
            self.head.clear();
            write_document(&mut self.head, &request);
            self.out.put(&self.head)?;
            self.out.flush()?;
            let answer: Answer = read_document(&mut self.reader).map_err(unreadable)?;
            self.not_into = endpoint.shares_host().then_some(answer.directory);
            self.ask = !answer.empty || self.wishes.request.partial;
        }
        for root in self.source.roots() {
            let found = Found::named(&root.path);
            self.found(&root.path, &root.name, root.below, found)?;
        }
        self.settle(0)?;
        for (path, name, follows) in std::mem::take(&mut self.links) {
            self.link(&path, &name, follows)?;
        }
        if self.answers && self.left_out > 0 {
            self.put_entry(&Entry::LeftOut(self.left_out))?;
        }
        self.put_entry(&Entry::End(self.made.entries))?;
        self.out.flush()?;
        Ok(self.out.writer.finish()?)
    }

    fn check(&self, received: &Received) -> Result<(), TransferError> {
        let of = |it: &Received| (it.entries, it.bytes, it.unchanged, it.kept);
        if of(received) == of(&self.made) {
            Ok(())
        } else {
            Err(another_report())
        }
    }

    /// What is not sent is told and counted.
    fn leave_out(&mut self, path: &Path, why: &dyn std::fmt::Display) {
        self.left_out += 1;
        tracing::error!(path = %path.display(), "not sent: {why}");
    }

    /// Whether somebody asked for this very path.
    fn is_named(&self, path: &Path) -> bool {
        self.source.roots().iter().any(|root| root.path == path)
    }

    fn found(
        &mut self,
        path: &Path,
        name: &Path,
        below: bool,
        found: io::Result<Found>,
    ) -> Result<(), TransferError> {
        match found {
            Ok(found) => self.entry(path, name, below, found),
            // In a tree in use, files come and go.
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => {
                let why = match self.is_named(path) {
                    true => "it is not there, or leads nowhere",
                    false => "it was removed meanwhile",
                };
                self.leave_out(path, &why);
                Ok(())
            }
            Err(fault) => {
                self.leave_out(path, &format!("cannot read it: {fault}"));
                Ok(())
            }
        }
    }

    fn entry(
        &mut self,
        path: &Path,
        name: &Path,
        below: bool,
        found: Found,
    ) -> Result<(), TransferError> {
        if name.as_os_str().len() > PATH_LEN_MAX {
            self.leave_out(path, &"its path is longer than 4,096 bytes");
            return Ok(());
        }
        match found {
            Found::Dir(meta, names) => self.dir(path, name, &meta, below.then_some(names)),
            Found::Link(meta, target) => {
                tracing::info!("{}", name.display());
                self.put_extras(path, &meta, None)?;
                self.made.entries += 1;
                self.put_entry(&Entry::Link(describe(&meta, name), target))
            }
            Found::File(meta, _, follows) if self.is_another_name(path, name, &meta, follows) => {
                Ok(())
            }
            Found::File(meta, input, follows) if self.ask => {
                let offered = Offered {
                    path: path.to_path_buf(),
                    follows,
                    meta: describe(&meta, name),
                };
                self.offer(offered, &meta, &input)
            }
            Found::File(meta, input, _) => {
                self.put_extras(path, &meta, Some(input.file()))?;
                self.put_entry(&Entry::File(describe(&meta, name)))?;
                self.content(input, path, 0)
            }
            // Somebody named it.
            Found::Other(what) if self.is_named(path) => {
                self.leave_out(path, &format!("it is {what}"));
                Ok(())
            }
            Found::Other(what) => {
                tracing::warn!(path = %path.display(), "not sent: it is {what}");
                Ok(())
            }
        }
    }

    fn dir(
        &mut self,
        path: &Path,
        name: &Path,
        meta: &Metadata,
        names: Option<io::Result<Vec<OsString>>>,
    ) -> Result<(), TransferError> {
        if self.not_into == Some((meta.dev(), meta.ino())) {
            if name.as_os_str().is_empty() {
                self.leave_out(path, &"the receiver writes into it");
            } else {
                tracing::warn!(path = %path.display(), "not sent: the receiver writes into it");
            }
            return Ok(());
        }
        if !name.as_os_str().is_empty() {
            if self.wishes.request.keep.extras() {
                let same = |file: &File| {
                    let found = file.metadata();
                    found.is_ok_and(|found| (found.dev(), found.ino()) == (meta.dev(), meta.ino()))
                };
                let file = File::open(path).ok().filter(same);
                self.put_extras(path, meta, file.as_ref())?;
            }
            self.made.entries += 1;
            self.put_entry(&Entry::Dir(describe(meta, name)))?;
        }
        match names {
            None => Ok(()),
            Some(Ok(names)) => names
                .iter()
                .try_for_each(|below| self.below(&path.join(below), &name.join(below))),
            Some(Err(fault)) => {
                self.leave_out(path, &format!("cannot read it: {fault}"));
                Ok(())
            }
        }
    }

    /// An entry of a directory that was read a while ago.
    fn below(&mut self, path: &Path, name: &Path) -> Result<(), TransferError> {
        let meta = fs::symlink_metadata(path);
        if let Ok(meta) = &meta
            && self.source.is_excluded(name, meta.is_dir())
        {
            return Ok(());
        }
        // What was put in its place since is not followed out of the tree.
        self.found(
            path,
            name,
            true,
            meta.and_then(|meta| Found::below(path, meta)),
        )
    }

    /// Whether the file has another name that was found before. This one is told at the end.
    fn is_another_name(
        &mut self,
        path: &Path,
        name: &Path,
        meta: &Metadata,
        follows: bool,
    ) -> bool {
        if !self.wishes.request.keep.hard_links || meta.nlink() < 2 {
            return false;
        }
        let first = (path.to_path_buf(), name.to_path_buf());
        match self.firsts.entry((meta.dev(), meta.ino())) {
            Slot::Vacant(slot) => {
                slot.insert(first);
                false
            }
            // Itself, when the first one did not arrive and this one stands in for it.
            Slot::Occupied(slot) if *slot.get() == first => false,
            Slot::Occupied(_) => {
                self.links.push((first.0, first.1, follows));
                true
            }
        }
    }

    /// Another name of a file. Where the first one has not arrived, it is a file itself.
    fn link(&mut self, path: &Path, name: &Path, follows: bool) -> Result<(), TransferError> {
        let meta = if follows {
            fs::metadata(path)
        } else {
            fs::symlink_metadata(path)
        };
        let meta = match meta {
            Ok(meta) => meta,
            Err(fault) => return self.found(path, name, false, Err(fault)),
        };
        match self.firsts.get(&(meta.dev(), meta.ino())) {
            Some((_, target)) if meta.is_file() => {
                let target = target.as_os_str().as_bytes().to_vec();
                tracing::info!("{}", name.display());
                self.made.entries += 1;
                self.put_entry(&Entry::HardLink(describe(&meta, name), target))
            }
            _ => {
                self.found(path, name, false, Found::again(path, follows))?;
                self.settle(0)
            }
        }
    }

    /// A file has not arrived: no other name of it can be a link to it.
    fn forget_first(&mut self, path: &Path) {
        if self.wishes.request.keep.hard_links {
            self.firsts.retain(|_, (first, _)| first != path);
        }
    }

    /// What is kept of the entry that comes next; its length in bytes.
    fn put_extras(
        &mut self,
        path: &Path,
        meta: &Metadata,
        file: Option<&File>,
    ) -> Result<usize, TransferError> {
        let keep = self.wishes.request.keep;
        if !keep.extras() {
            return Ok(0);
        }
        let unread = file.is_none() && meta.is_dir() && (keep.acls || keep.attributes);
        let extras = match self.owners.read(keep, meta, file) {
            Ok(extras) if extras.is_too_long() => {
                self.leave_out(path, &"its attributes are longer than 256 KiB");
                Extras {
                    attributes: None,
                    ..extras
                }
            }
            Ok(extras) => {
                if unread {
                    self.leave_out(path, &"cannot read its attributes");
                }
                extras
            }
            Err(fault) => {
                self.leave_out(path, &format!("cannot read its attributes: {fault}"));
                Extras::default()
            }
        };
        let len = extras.bytes();
        self.put_entry(&Entry::Extras(extras))?;
        Ok(len)
    }

    /// Offers a file, and sends of those offered before what is wanted when they are many.
    fn offer(
        &mut self,
        offered: Offered,
        meta: &Metadata,
        input: &Input,
    ) -> Result<(), TransferError> {
        let (mut hash, len) = (None, meta.len());
        if self.wishes.checksum {
            match File::open(&offered.path).and_then(|file| hash_of(file, len)) {
                Ok((_, found)) => hash = Some(found),
                Err(fault) => {
                    self.leave_out(&offered.path, &format!("cannot read it: {fault}"));
                    self.forget_first(&offered.path);
                    return Ok(());
                }
            }
        }
        self.offers_len += self.put_extras(&offered.path, meta, Some(input.file()))?;
        self.put_entry(&Entry::Offer(offered.meta.clone(), Offer { len, hash }))?;
        self.offers.push_back(offered);
        if self.offers_len > OFFERS_LEN_MAX / 2 {
            self.settle(0)?;
        } else if self.offers.len() == OFFERS_MAX {
            self.settle(OFFERS_MAX / 2)?;
        }
        Ok(())
    }

    /// Hears of offers, and sends what is wanted, until no more than `left` are under way.
    fn settle(&mut self, left: usize) -> Result<(), TransferError> {
        if self.offers.len() > left {
            self.out.flush()?;
        }
        while self.offers.len() > left {
            let verdict = Verdict::read(&mut self.reader).map_err(unreadable)?;
            let Some(offered) = self.offers.pop_front() else {
                break;
            };
            match verdict {
                Verdict::Unchanged => {
                    self.made.entries += 1;
                    self.made.unchanged += 1;
                }
                Verdict::Kept => {
                    tracing::info!("{}: kept", offered.path.display());
                    self.made.entries += 1;
                    self.made.kept += 1;
                }
                Verdict::Whole => self.wanted(&offered, None)?,
                Verdict::From { len, hash } => self.wanted(&offered, Some((len, hash)))?,
            }
        }
        if self.offers.is_empty() {
            self.offers_len = 0;
        }
        Ok(())
    }

    /// Sends an offered file, from behind what is there if that is how it begins.
    fn wanted(
        &mut self,
        offered: &Offered,
        there: Option<(u64, u128)>,
    ) -> Result<(), TransferError> {
        let (meta, input) = match Found::again(&offered.path, offered.follows) {
            Ok(Found::File(meta, input, _)) => (meta, input),
            other => {
                let why = other.map_or_else(|fault| fault.to_string(), |_| "no file now".into());
                self.leave_out(&offered.path, &why);
                self.forget_first(&offered.path);
                return self.put_entry(&Entry::Withdrawn);
            }
        };
        let head = describe(&meta, Path::new(""));
        let same = (head.mtime_s, head.mtime_ns) == (offered.meta.mtime_s, offered.meta.mtime_ns);
        let begins = |(len, hash): &(u64, u128)| {
            let found = File::open(&offered.path).and_then(|file| hash_of(file, *len));
            found.is_ok_and(|found| found == (*len, *hash))
        };
        let start = there
            .filter(|(len, _)| same && *len <= meta.len())
            .filter(begins)
            .map_or(0, |(len, _)| len);
        self.put_entry(&Entry::Content(head, start))?;
        self.content(input, &offered.path, start)
    }

    /// Sends a file's extents from byte `start` on.
    fn content(&mut self, mut input: Input, path: &Path, start: u64) -> Result<(), TransferError> {
        let before = (self.made.bytes, self.made.holes);
        match self.extents(&mut input, path, start) {
            Ok(()) => {
                tracing::info!("{}", path.display());
                self.made.entries += 1;
                self.put_extent(Extent::End)
            }
            Err(TransferError::File { fault, .. }) if self.answers => {
                (self.made.bytes, self.made.holes) = before;
                self.leave_out(path, &fault);
                self.forget_first(path);
                self.put_extent(Extent::Abandoned)
            }
            Err(TransferError::File { path, fault, .. }) => {
                Err(TransferError::Torn { path, fault })
            }
            Err(fault) => Err(fault),
        }
    }

    fn extents(&mut self, input: &mut Input, path: &Path, start: u64) -> Result<(), TransferError> {
        let read = |fault: io::Error| TransferError::file("cannot read", path, fault);
        let (len, mut at) = (input.claimed_len(), start);
        let mut stands = 0;
        while at < len {
            let (data, end) = next_data(input, at, len).map_err(read)?;
            if data > at {
                self.put_extent(Extent::Hole(data - at))?;
                self.made.holes += data - at;
                self.count(data - at, path);
                at = data;
            }
            // Looking for holes moves where the file stands.
            if stands != at || input.is_sparse() {
                input.file().seek(SeekFrom::Start(at)).map_err(read)?;
            }
            while at < end {
                match self.piece(input, at, end - at, path)? {
                    0 => return Ok(()),
                    got => at += got,
                }
            }
            stands = at;
        }
        if stands != at || input.is_sparse() {
            input.file().seek(SeekFrom::Start(at)).map_err(read)?;
        }
        loop {
            match self.piece(input, at, u64::MAX, path)? {
                0 => return Ok(()),
                got => at += got,
            }
        }
    }

    /// Sends up to `most` bytes of a file as one extent; 0 at its end.
    fn piece(
        &mut self,
        input: &mut Input,
        at: u64,
        most: u64,
        path: &Path,
    ) -> Result<u64, TransferError> {
        // The head says how many bytes follow before they are read, so it promises no more than fit this chunk.
        if self.out.room()?.len() <= Extent::LEN_MAX {
            self.out.flush()?;
        }
        let room = self.out.room()?;
        let fits = (room.len() - 5) as u64;
        let now = fits.min(most).min(EXTENT_LEN_MAX.into()) as usize;
        let got = input
            .read(at, &mut room[5..5 + now])
            .map_err(|fault| TransferError::file("cannot read", path, fault))?;
        if got > 0 {
            room[0] = 1;
            room[1..5].copy_from_slice(&(got as u32).to_le_bytes());
            self.out.advance(5 + got)?;
            self.count(got as u64, path);
        }
        Ok(got as u64)
    }

    fn put_entry(&mut self, entry: &Entry) -> Result<(), TransferError> {
        self.head.clear();
        entry.write(&mut self.head);
        self.out.put(&self.head)
    }

    fn put_extent(&mut self, extent: Extent) -> Result<(), TransferError> {
        self.head.clear();
        extent.write(&mut self.head);
        self.out.put(&self.head)
    }

    fn count(&mut self, bytes: u64, path: &Path) {
        self.made.bytes += bytes;
        (self.progress)(&Moment {
            bytes: self.made.bytes,
            entries: self.made.entries,
            path,
        });
    }
}

/// Where the next data of a file are, from `at` on and before `len`: their begin and end. A hole reaches to `len` where
/// there are none.
fn next_data(input: &Input, at: u64, len: u64) -> io::Result<(u64, u64)> {
    if !input.is_sparse() {
        return Ok((at, len));
    }
    match seek(input.file(), Look::Data(at)) {
        Ok(data) if data >= len => Ok((len, len)),
        Ok(data) => Ok((data, seek(input.file(), Look::Hole(data))?.min(len))),
        Err(Errno::NXIO) => Ok((len, len)),
        // No file system has to know of holes: then all of a file is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((at, len)),
        Err(fault) => Err(fault.into()),
    }
}

fn describe(meta: &Metadata, name: &Path) -> Meta {
    Meta {
        mode: meta.permissions().mode() & 0o7777,
        mtime_s: meta.mtime(),
        mtime_ns: meta.mtime_nsec() as u32,
        path: name.as_os_str().as_bytes().to_vec(),
    }
}

/// A fault while reading what the receiver says: the session's own, or bytes that are none of it.
fn unreadable(fault: io::Error) -> TransferError {
    match fault.downcast::<narrows::Error>() {
        Ok(end) => TransferError::Session(end),
        Err(fault) => TransferError::Refused(format!("an unreadable answer: {fault}")),
    }
}

/// Tells the sender that everything is in place.
pub(crate) fn report(writer: &mut ChannelWriter, received: Received) -> Result<(), TransferError> {
    let report = serde_json::to_vec(&received).expect("numbers are JSON");
    writer
        .write_all(&report)
        .map_err(|fault| TransferError::file("cannot report to", Path::new("the sender"), fault))?;
    writer.finish()?;
    Ok(writer.wait_consumed()?)
}

/// For a receiver that gives up: says why and returns it.
pub(crate) fn give_up(writer: ChannelWriter, fault: TransferError) -> TransferError {
    let code = if fault.code() == Code::DONE {
        Code::FAILED
    } else {
        fault.code()
    };
    writer.abort(code, &fault.to_string());
    fault
}
