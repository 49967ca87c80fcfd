//! Jobs on files. What is written is beside its place as `.narrows-*.part` until it is whole; a job that fails leaves
//! nothing behind.

use std::{
    fs::{self, File, FileTimes, Metadata, Permissions},
    io::{self, BufWriter, Write},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use narrows::{Endpoint, Engine};
use narrows_core::Workspace;
use narrows_io::{
    input::Input,
    part::{self, Part},
};
use xxhash_rust::xxh32::Xxh32;

use crate::{
    Method, OffloadError, Options, Report,
    client::{self, Craft, Flow},
    container::{self, Out, Piece, Pieces},
    inflated::{self, Codes},
    ledger::{Block, Done},
    message::{Answer, Op, Outcome, Question},
    method::Worker,
    server::copied_len,
};

/// Where a job is done, and until when.
#[derive(Debug)]
pub struct Job<'a> {
    /// Codecs and buffers of this side.
    pub engine: &'a Engine,
    /// The server; `None` does everything here. One job ends the session.
    pub server: Option<&'a Arc<Endpoint>>,
    /// What the user set.
    pub options: &'a Options,
    /// Set to end the job.
    pub stop: &'a AtomicBool,
}

/// Packs `from` into `to`, a file that the method's own program reads.
///
/// # Errors
/// [`OffloadError`]; `to` is not there then, or as it was.
pub fn pack(job: &Job<'_>, from: &Path, to: &Path) -> Result<Report, OffloadError> {
    let Job {
        engine, options, ..
    } = *job;
    let method = options.method;
    let none = || OffloadError::Server(format!("there is no codec for {} here", method.name()));
    let craft = Packing {
        op: Op::Pack {
            method,
            level: options.level,
        },
        packer: method
            .packer(&engine.registry, options.level)
            .map_err(|fault| OffloadError::Server(fault.to_string()))?,
        checker: method.checker(&engine.registry).ok_or_else(none)?,
        method,
        verify: options.verify,
        engine,
    };
    let mut input = Blocks::open(from, options.block_len)?;
    let mut target = Target::make(to, from)?;
    let abandon = target.abandon();
    let mut writer = container::writer(method, options.block_len);
    let (mut raw_bytes, mut stored) = (0, 0);
    let tally = {
        let mut sink = |block: &Block, done: &Done| {
            let raw = &block.bytes[Question::HEAD_LEN..];
            raw_bytes += raw.len() as u64;
            stored += u64::from(done.bytes.is_none());
            let packed = done.bytes.as_ref().map(|(bytes, at)| &bytes[*at..]);
            writer
                .block(raw, packed, done.check, &mut target)
                .map_err(|fault| target_fault(to, fault))
        };
        client::run(
            job.server,
            options,
            &craft,
            Flow {
                source: &mut || input.next(engine),
                sink: &mut sink,
                abandon: &abandon,
            },
            job.stop,
        )?
    };
    writer
        .end(&mut target)
        .map_err(|fault| target_fault(to, fault))?;
    let packed_bytes = target.place()?;
    let mut report = Report::new("pack", options, &tally, raw_bytes, packed_bytes);
    report.stored_blocks = stored;
    report.own_backend = craft.packer.backend.into();
    report.verified = options.verify && tally.backend.is_some();
    Ok(report)
}

/// Unpacks `from`, a file of blocks, into `to`.
///
/// # Errors
/// [`OffloadError`]; `to` is not there then, or as it was.
pub fn unpack(job: &Job<'_>, from: &Path, to: &Path) -> Result<Report, OffloadError> {
    let engine = job.engine;
    let (method, pieces) = container::open(from)?;
    let mut pieces = Ahead::new(pieces, engine, from)?;
    let none = || OffloadError::Server(format!("there is no codec for {} here", method.name()));
    let options = Options {
        method,
        block_len: pieces.block_len(),
        ..*job.options
    };
    let craft = Unpacking {
        method,
        unpacker: method.checker(&engine.registry).ok_or_else(none)?,
        verify: options.verify,
        is_checked: pieces.inner.is_checked(),
        path: from,
        engine,
    };
    let mut target = Target::make(to, from)?;
    let abandon = target.abandon();
    let (mut raw_bytes, mut content) = (0, (method == Method::Lz4).then(|| Xxh32::new(0)));
    let tally = {
        let mut sink = |block: &Block, done: &Done| {
            let raw = match &done.bytes {
                Some((bytes, at)) => &bytes[*at..],
                None => &block.bytes[Question::HEAD_LEN..],
            };
            raw_bytes += raw.len() as u64;
            if let Some(content) = &mut content {
                content.update(raw);
            }
            target.append(raw).map_err(|fault| target_fault(to, fault))
        };
        client::run(
            job.server,
            &options,
            &craft,
            Flow {
                source: &mut || pieces.next(engine),
                sink: &mut sink,
                abandon: &abandon,
            },
            job.stop,
        )?
    };
    let claimed = pieces.inner.content_check();
    if options.verify
        && let (Some(claimed), Some(content)) = (claimed, content)
        && claimed != content.digest()
    {
        return Err(OffloadError::Damaged(format!(
            "{}: the checksum of all its content is another; the file is damaged, or what came back from the server was: \
             --local tells which",
            from.display()
        )));
    }
    let packed_bytes = fs::metadata(from)
        .map_err(|fault| OffloadError::file("cannot read", from, fault))?
        .len();
    target.place()?;
    let mut report = Report::new("unpack", &options, &tally, raw_bytes, packed_bytes);
    report.verified = options.verify;
    report.own_backend = craft.unpacker.backend.into();
    Ok(report)
}

/// Sends `from` to the server and takes the first `back` of it again, nothing being packed: what a job's copying takes
/// alone.
///
/// # Errors
/// [`OffloadError`].
pub fn copy(job: &Job<'_>, from: &Path, back: f64) -> Result<Report, OffloadError> {
    let craft = Copying {
        back: (back.clamp(0.0, 1.0) * 65_536.0) as u32,
    };
    let mut input = Blocks::open(from, job.options.block_len)?;
    let (mut raw_bytes, mut back_bytes) = (0, 0);
    let mut sink = |block: &Block, done: &Done| {
        raw_bytes += u64::from(block.raw_len);
        back_bytes += done
            .bytes
            .as_ref()
            .map_or(0, |(bytes, at)| bytes.len() - at) as u64;
        Ok(())
    };
    let options = Options {
        spill: client::Spill::Never,
        ..*job.options
    };
    let flow = Flow {
        source: &mut || input.next(job.engine),
        sink: &mut sink,
        abandon: &|| (),
    };
    let tally = client::run(job.server, &options, &craft, flow, job.stop);
    // Nobody else can do it.
    let tally = tally.map_err(|fault| match fault {
        OffloadError::Spill(why) => OffloadError::Server(why),
        fault => fault,
    })?;
    Ok(Report::new("copy", &options, &tally, raw_bytes, back_bytes))
}

struct Packing<'a> {
    op: Op,
    method: Method,
    packer: Worker,
    checker: Worker,
    verify: bool,
    engine: &'a Engine,
}

/// A hand's own buffer.
#[derive(Default)]
struct Scratch(Vec<u8>);

/// Whether `packed` unpacks to `raw`.
fn unpacks(unpacker: &Worker, packed: &[u8], raw: &[u8], ws: &mut Workspace) -> bool {
    let mut scratch = std::mem::take(ws.get::<Scratch>());
    scratch.0.resize(scratch.0.len().max(raw.len()), 0);
    let out = &mut scratch.0[..raw.len()];
    let right = unpacker.unpack(packed, out, ws) && out == raw;
    *ws.get::<Scratch>() = scratch;
    right
}

impl Craft for Packing<'_> {
    fn op(&self) -> Op {
        self.op
    }

    fn check(&self, block: &Block, answer: Answer, ws: &mut Workspace) -> Option<Done> {
        let raw = &block.bytes[Question::HEAD_LEN..];
        let bytes = answer.bytes();
        match answer.outcome {
            Outcome::Done if !bytes.is_empty() && bytes.len() < raw.len() => {}
            // That a block does not shrink is not believed or doubted but written down: it stays as it is.
            Outcome::NoSmaller if bytes.is_empty() => {
                return Some(Done {
                    bytes: None,
                    check: self.method.check(raw),
                });
            }
            _ => return None,
        }
        if self.verify {
            let right = match self.method {
                Method::Deflate => inflated::unpacks_to(bytes, raw, ws.get::<Codes>()),
                Method::Zstd => {
                    container::zstd::is_plain(bytes) && unpacks(&self.checker, bytes, raw, ws)
                }
                Method::Lz4 => unpacks(&self.checker, bytes, raw, ws),
            };
            if !right {
                return None;
            }
        }
        Some(Done {
            bytes: Some((answer.into_chunk(), Answer::HEAD_LEN)),
            check: self.method.check(raw),
        })
    }

    fn make(&self, block: &Block, ws: &mut Workspace) -> Result<Done, OffloadError> {
        let raw = &block.bytes[Question::HEAD_LEN..];
        let mut out = self.engine.buffer(raw.len());
        let len = self.packer.pack(raw, &mut out, ws);
        let bytes = len.map(|len| {
            out.truncate(len);
            (Arc::new(out), 0)
        });
        Ok(Done {
            bytes,
            check: self.method.check(raw),
        })
    }

    fn pace(&self, block: &Block, ws: &mut Workspace) -> Option<f64> {
        const SLICE_LEN: usize = 64 << 10;
        let raw = &block.bytes[Question::HEAD_LEN..];
        let raw = &raw[..raw.len().min(SLICE_LEN)];
        let mut out = self.engine.buffer(raw.len());
        let began = Instant::now();
        self.packer.pack(raw, &mut out, ws);
        Some(began.elapsed().as_nanos() as f64 / raw.len() as f64)
    }
}

struct Unpacking<'a> {
    method: Method,
    unpacker: Worker,
    verify: bool,
    /// The file has checksums that what came back is compared with.
    is_checked: bool,
    path: &'a Path,
    engine: &'a Engine,
}

impl Unpacking<'_> {
    fn agrees(&self, block: &Block, raw: &[u8]) -> bool {
        !self.verify
            || block
                .check
                .is_none_or(|check| check == self.method.check(raw))
    }
}

impl Craft for Unpacking<'_> {
    fn op(&self) -> Op {
        Op::Unpack {
            method: self.method,
        }
    }

    fn check(&self, block: &Block, answer: Answer, ws: &mut Workspace) -> Option<Done> {
        let raw = answer.bytes();
        let right = answer.outcome == Outcome::Done
            && raw.len() == block.raw_len as usize
            && self.agrees(block, raw);
        // With nothing in the file to tell a lie by, it is unpacked here as well.
        let packed = &block.bytes[Question::HEAD_LEN..];
        let right =
            right && (!self.verify || self.is_checked || unpacks(&self.unpacker, packed, raw, ws));
        right.then(|| Done {
            bytes: Some((answer.into_chunk(), Answer::HEAD_LEN)),
            check: 0,
        })
    }

    fn make(&self, block: &Block, ws: &mut Workspace) -> Result<Done, OffloadError> {
        let mut out = self.engine.buffer(block.raw_len as usize);
        let packed = &block.bytes[Question::HEAD_LEN..];
        if self.unpacker.unpack(packed, &mut out, ws) && self.agrees(block, &out) {
            return Ok(Done {
                bytes: Some((Arc::new(out), 0)),
                check: 0,
            });
        }
        Err(OffloadError::Damaged(format!(
            "{} is damaged: a block does not unpack to what it was",
            self.path.display()
        )))
    }
}

struct Copying {
    back: u32,
}

impl Craft for Copying {
    fn op(&self) -> Op {
        Op::Copy { back: self.back }
    }

    fn check(&self, block: &Block, answer: Answer, _: &mut Workspace) -> Option<Done> {
        let raw = &block.bytes[Question::HEAD_LEN..];
        let right = answer.outcome == Outcome::Done
            && answer.bytes() == &raw[..copied_len(raw.len(), self.back)];
        right.then(|| Done {
            bytes: Some((answer.into_chunk(), Answer::HEAD_LEN)),
            check: 0,
        })
    }

    fn make(&self, _: &Block, _: &mut Workspace) -> Result<Done, OffloadError> {
        Err(OffloadError::Server("only a server can copy".into()))
    }
}

/// Whether `path` can be packed or unpacked, as far as that is to be seen before a server is asked for anything.
///
/// # Errors
/// [`OffloadError::File`].
pub fn readable(path: &Path) -> Result<(), OffloadError> {
    let seen = fs::metadata(path).and_then(|meta| match meta.file_type() {
        kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // A pipe is opened once: whoever writes to it would take our leaving for its end.
        kind if kind.is_file() => File::open(path).map(drop),
        _ => Ok(()),
    });
    seen.map_err(|fault| OffloadError::file("cannot read", path, fault))
}

/// A file that is read in blocks.
struct Blocks {
    input: Input,
    at: u64,
    path: PathBuf,
    block_len: usize,
}

impl Blocks {
    fn open(path: &Path, block_len: usize) -> Result<Self, OffloadError> {
        let input = File::open(path).and_then(Input::new);
        Ok(Self {
            input: input.map_err(|fault| OffloadError::file("cannot read", path, fault))?,
            at: 0,
            path: path.into(),
            block_len,
        })
    }

    fn next(&mut self, engine: &Engine) -> Result<Option<Piece>, OffloadError> {
        let mut bytes = engine.buffer(Question::HEAD_LEN + self.block_len);
        // Short only at its end, or where what it claims to be ends: then the next call finds whether there is more.
        let got = self
            .input
            .read(self.at, &mut bytes[Question::HEAD_LEN..])
            .map_err(|fault| OffloadError::file("cannot read", &self.path, fault))?;
        self.at += got as u64;
        let raw_len = got as u32;
        bytes.truncate(Question::HEAD_LEN + got);
        Ok((raw_len > 0).then_some(Piece {
            bytes,
            raw_len,
            check: None,
            stored: false,
        }))
    }
}

/// The blocks of a packed file, of which the first was looked at: no later one may be longer.
struct Ahead<'a> {
    inner: Box<dyn Pieces>,
    /// What is still to be handed out of the first look.
    first: Option<Option<Piece>>,
    block_len: u32,
    path: &'a Path,
}

impl<'a> Ahead<'a> {
    fn new(
        mut inner: Box<dyn Pieces>,
        engine: &Engine,
        path: &'a Path,
    ) -> Result<Self, OffloadError> {
        let first = inner.next(engine).map_err(|fault| fault.of(path))?;
        let block_len = first.as_ref().map_or(0, |piece| piece.raw_len);
        Ok(Self {
            inner,
            first: Some(first),
            block_len,
            path,
        })
    }

    fn block_len(&self) -> usize {
        (self.block_len as usize).max(crate::BLOCK_LEN_MIN)
    }

    fn next(&mut self, engine: &Engine) -> Result<Option<Piece>, OffloadError> {
        let piece = match self.first.take() {
            Some(first) => first,
            None => self
                .inner
                .next(engine)
                .map_err(|fault| fault.of(self.path))?,
        };
        match &piece {
            Some(piece) if piece.raw_len > self.block_len => {
                let fault = container::Unreadable::NoBlocks("a block is longer than the first");
                Err(fault.of(self.path))
            }
            _ => Ok(piece),
        }
    }
}

/// A file being written; gone unless it is put in its place.
struct Target {
    out: BufWriter<File>,
    part: Part,
    place: PathBuf,
    like: Option<Metadata>,
}

impl Target {
    /// To become what `from` was packed or unpacked to, with its mode, times and, where that may be, owner.
    fn make(place: &Path, from: &Path) -> Result<Self, OffloadError> {
        let write = |fault| OffloadError::file("cannot write", place, fault);
        let dir = place
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let like = fs::metadata(from).ok().filter(Metadata::is_file);
        if let (Some(like), Ok(there)) = (&like, fs::metadata(place))
            && (like.dev(), like.ino()) == (there.dev(), there.ino())
        {
            let fault = io::Error::other("it is the file that is read");
            return Err(write(fault));
        }
        part::sweep(dir);
        let part = Part::create(dir, 0o600).map_err(write)?;
        let file = part.file().try_clone().map_err(write)?;
        Ok(Self {
            out: BufWriter::with_capacity(256 << 10, file),
            part,
            place: place.into(),
            like,
        })
    }

    /// Removes it, from outside.
    fn abandon(&self) -> impl Fn() + use<> {
        let part = self.part.path().to_path_buf();
        move || drop(fs::remove_file(&part))
    }

    /// Gives it its name, and says how long it is.
    fn place(mut self) -> Result<u64, OffloadError> {
        let place = std::mem::take(&mut self.place);
        let mut finish = || {
            self.out.flush()?;
            if let Some(like) = &self.like {
                become_like(self.part.file(), like)?;
            }
            Ok(self.out.get_ref().metadata()?.len())
        };
        let done = finish().and_then(|len| self.part.place(&place).map(|()| len));
        done.map_err(|fault| OffloadError::file("cannot write", &place, fault))
    }
}

/// Owner where that may be given away, mode, times: as gzip, zstd and lz4 have it.
fn become_like(file: &File, like: &Metadata) -> io::Result<()> {
    let mine = file.metadata()?;
    let mut mode = like.mode() & 0o777;
    if (mine.uid(), mine.gid()) != (like.uid(), like.gid()) {
        let owner = fchown(file, Some(like.uid()), Some(like.gid()))
            .or_else(|_| fchown(file, None, Some(like.gid())));
        // What its group might, another group may not.
        if owner.is_err() {
            mode &= !0o070;
        }
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    let (read, written) = (like.accessed()?, like.modified()?);
    file.set_times(FileTimes::new().set_accessed(read).set_modified(written))
}

impl Out for Target {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    fn rewrite_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().write_all_at(bytes, 0)
    }
}

fn target_fault(path: &Path, fault: io::Error) -> OffloadError {
    OffloadError::file("cannot write", path, fault)
}
