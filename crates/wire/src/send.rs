//! Reads paths or a stream into a channel.
//!
//! File bytes are read straight into the chunk that will travel; heads of entries are put between them.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
};

use narrows::{Buf, ChannelReader, ChannelWriter, Code, Endpoint};
use rustix::{
    fs::{OFlags, SeekFrom, seek},
    io::Errno,
};

use crate::{
    Received, SERVICE_STREAM, SERVICE_TREE, TransferError,
    tree::{EXTENT_LEN_MAX, Entry, Extent, Meta},
};

/// Told how many content bytes have been read so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

/// A stream that pauses this long is sent as far as it is.
const FLUSH_AFTER_MS: i32 = 5;

/// Fails where one of `paths` cannot be opened: worth knowing before anybody is dialled.
///
/// # Errors
/// [`TransferError`] with the path and the system's reason.
pub fn check(paths: &[PathBuf]) -> Result<(), TransferError> {
    paths.iter().try_for_each(|path| {
        let opened = fs::metadata(path).and_then(|meta| match meta.file_type() {
            kind if kind.is_dir() => fs::read_dir(path).map(drop),
            kind if kind.is_file() => File::open(path).map(drop),
            // Opening a pipe would wait for its writer; it is left out with a warning later.
            _ => Ok(()),
        });
        opened.map_err(|fault| TransferError::file("cannot read", path, fault))
    })
}

/// Sends `paths`, directories with all they hold, and waits until the receiver has them in place. Each arrives under
/// its last name: `send a/b` makes `b`.
///
/// # Errors
/// [`TransferError`]; the receiver is told and keeps nothing that is not whole.
pub fn paths(
    endpoint: &Endpoint,
    paths: &[PathBuf],
    progress: Progress<'_>,
) -> Result<Received, TransferError> {
    let (writer, reader) = endpoint.open(SERVICE_TREE)?;
    let mut sender = Sender {
        out: Filler::new(writer),
        head: Vec::new(),
        entries: 0,
        bytes: 0,
        progress,
    };
    match paths
        .iter()
        .try_for_each(|path| sender.root(path))
        .and_then(|()| sender.end())
    {
        Ok(()) => answer(reader),
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
    let (writer, reader) = endpoint.open(SERVICE_STREAM)?;
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
                progress(bytes);
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
    answer(reader)
}

/// The receiver's report, which comes when everything is in place.
fn answer(mut reader: ChannelReader) -> Result<Received, TransferError> {
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

/// What is at a path, opened before anything of it is told.
enum Found {
    /// With what it holds, in order.
    Dir(Metadata, Vec<OsString>),
    /// With its target.
    Link(Metadata, Vec<u8>),
    File(Metadata, File),
    /// In words.
    Other(&'static str),
}

impl Found {
    fn at(path: &Path, meta: Metadata, flags: OFlags) -> io::Result<Self> {
        let kind = meta.file_type();
        if kind.is_dir() {
            // Names and not entries, each of which keeps the directory open.
            let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
            let mut names = names.collect::<io::Result<Vec<_>>>()?;
            names.sort();
            Ok(Self::Dir(meta, names))
        } else if kind.is_symlink() {
            Ok(Self::Link(
                meta,
                fs::read_link(path)?.into_os_string().into_vec(),
            ))
        } else if kind.is_file() {
            // Were it a pipe by now, opening it would wait for a writer.
            let flags = (flags | OFlags::NONBLOCK).bits() as i32;
            Ok(Self::File(
                meta,
                OpenOptions::new()
                    .read(true)
                    .custom_flags(flags)
                    .open(path)?,
            ))
        } else {
            Ok(Self::Other(if kind.is_socket() {
                "a socket"
            } else {
                "a device or pipe"
            }))
        }
    }
}

struct Sender<'a> {
    out: Filler,
    head: Vec<u8>,
    entries: u64,
    bytes: u64,
    progress: Progress<'a>,
}

impl Sender<'_> {
    fn root(&mut self, path: &Path) -> Result<(), TransferError> {
        // `.`, `a/.`, `..` and `/` have no name of their own: what they hold goes into the receiver's directory itself.
        let name = match path
            .file_name()
            .filter(|_| !path.as_os_str().as_bytes().ends_with(b"/."))
        {
            Some(name) => PathBuf::from(name),
            None => PathBuf::new(),
        };
        // What the user names may be a link to what is meant; below it, links travel as links.
        let found = fs::metadata(path).and_then(|meta| Found::at(path, meta, OFlags::empty()));
        self.entry(
            path,
            &name,
            found.map_err(|fault| TransferError::file("cannot read", path, fault))?,
        )
    }

    fn entry(&mut self, path: &Path, name: &Path, found: Found) -> Result<(), TransferError> {
        match found {
            Found::Dir(meta, names) => {
                if !name.as_os_str().is_empty() {
                    self.head(&Entry::Dir(describe(&meta, name)))?;
                }
                names
                    .iter()
                    .try_for_each(|below| self.below(&path.join(below), &name.join(below)))
            }
            Found::Link(meta, target) => self.head(&Entry::Link(describe(&meta, name), target)),
            Found::File(meta, file) => {
                self.head(&Entry::File(describe(&meta, name)))?;
                self.content(file, path)
            }
            Found::Other(what) => {
                tracing::warn!(path = %path.display(), "not sent: it is {what}");
                Ok(())
            }
        }
    }

    /// An entry of a directory that was read a while ago.
    fn below(&mut self, path: &Path, name: &Path) -> Result<(), TransferError> {
        // What was put in its place since is not followed out of the tree.
        match fs::symlink_metadata(path).and_then(|meta| Found::at(path, meta, OFlags::NOFOLLOW)) {
            Ok(found) => self.entry(path, name, found),
            // In a tree in use, files come and go.
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), "not sent: it was removed meanwhile");
                Ok(())
            }
            Err(fault) => Err(TransferError::file("cannot read", path, fault)),
        }
    }

    fn content(&mut self, mut file: File, path: &Path) -> Result<(), TransferError> {
        let read = |fault: io::Error| TransferError::file("cannot read", path, fault);
        let mut at = 0;
        loop {
            // Asked for before the data: what is appended in between is read, and no hole.
            let len = file.metadata().map_err(read)?.len();
            let (data, end) = match seek(&file, SeekFrom::Data(at)) {
                Ok(data) => (
                    data,
                    seek(&file, SeekFrom::Hole(data)).map_err(|fault| read(fault.into()))?,
                ),
                Err(Errno::NXIO) => (len.max(at), len.max(at)),
                // No file system has to know of holes: then all of a file is data.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => (at, len.max(at)),
                Err(fault) => return Err(read(fault.into())),
            };
            if data > at {
                self.extent(Extent::Hole(data - at))?;
                self.count(data - at);
            }
            if data == end {
                return self.extent(Extent::End);
            }
            seek(&file, SeekFrom::Start(data)).map_err(|fault| read(fault.into()))?;
            at = data + self.data(&mut file, end - data, path)?;
            if at < end {
                return Err(read(io::Error::other("it shrank while it was read")));
            }
        }
    }

    /// Sends `len` bytes of `file` from where it stands; fewer where it ends.
    fn data(&mut self, file: &mut File, len: u64, path: &Path) -> Result<u64, TransferError> {
        let mut sent = 0;
        while sent < len {
            // The head says how many bytes follow before they are read, so it promises no more than fit this chunk.
            if self.out.room()?.len() <= Extent::LEN_MAX {
                self.out.flush()?;
            }
            let fits = self.out.room()?.len() - 5;
            let now = (len - sent).min(fits as u64).min(EXTENT_LEN_MAX.into()) as usize;
            let mut got = 0;
            while got < now {
                match file.read(&mut self.out.room()?[5 + got..5 + now]) {
                    Ok(0) => break,
                    Ok(read) => got += read,
                    Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                    Err(fault) => return Err(TransferError::file("cannot read", path, fault)),
                }
            }
            if got == 0 {
                return Ok(sent);
            }
            let room = self.out.room()?;
            room[0] = 1;
            room[1..5].copy_from_slice(&(got as u32).to_le_bytes());
            self.out.advance(5 + got)?;
            sent += got as u64;
            self.count(got as u64);
        }
        Ok(sent)
    }

    fn end(&mut self) -> Result<(), TransferError> {
        let entries = self.entries;
        self.head(&Entry::End(entries))?;
        self.out.flush()?;
        Ok(self.out.writer.finish()?)
    }

    fn head(&mut self, entry: &Entry) -> Result<(), TransferError> {
        self.entries += 1;
        self.head.clear();
        entry.write(&mut self.head);
        self.out.put(&self.head)
    }

    fn extent(&mut self, extent: Extent) -> Result<(), TransferError> {
        self.head.clear();
        extent.write(&mut self.head);
        self.out.put(&self.head)
    }

    fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
        (self.progress)(self.bytes);
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
