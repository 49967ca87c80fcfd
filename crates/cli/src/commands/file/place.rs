//! Where a result is written: a file that gets its name when it is whole, or standard output.

use std::{
    fs::{self, File, FileTimes, Metadata, Permissions},
    io::{self, IsTerminal, Seek, Write},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use anyhow::Context;
use narrows_io::part::{self, Part};

use super::{super::common, Output, is_standard, unwritten};
use crate::exit::Usage;

/// Somewhere a result goes. A file that is not placed is gone.
#[derive(Debug)]
pub struct Place {
    file: File,
    /// Of a file that gets its name at the end.
    pending: Option<(Part, PathBuf, Option<Metadata>)>,
    name: String,
    force: bool,
}

impl Place {
    /// Standard output. Packed bytes are not for a terminal.
    pub fn stdout(packed: bool, force: bool) -> anyhow::Result<Self> {
        if packed && !force && io::stdout().is_terminal() {
            let text = "standard output is a terminal; redirect it, name a file with -o, or insist with -f";
            return Err(Usage(text.into()).into());
        }
        Ok(Self {
            file: common::descriptor(&io::stdout()).context("cannot write standard output")?,
            pending: None,
            name: "the output".into(),
            force,
        })
    }

    /// `path`, to be as what was read at `from` is: its mode and times and, where that may be, its owner.
    pub fn file(path: &Path, from: &Path, force: bool) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let there = fs::metadata(path).ok();
        let like = fs::metadata(from)
            .ok()
            .filter(|meta| meta.is_file() && !is_standard(from));
        if let (Some(like), Some(there)) = (&like, &there)
            && (like.dev(), like.ino()) == (there.dev(), there.ino())
        {
            return Err(Usage(format!(
                "{name} is the file that is read; name another with -o"
            ))
            .into());
        }
        if there.as_ref().is_some_and(Metadata::is_dir) {
            return Err(Usage(format!("{name} is a directory; name a file in it with -o")).into());
        }
        // A device or a pipe is written to, not replaced.
        if there.as_ref().is_some_and(|meta| !meta.is_file()) {
            let file = File::options().write(true).open(path);
            return Ok(Self {
                file: file.map_err(|fault| unwritten(&name, fault))?,
                pending: None,
                name,
                force,
            });
        }
        if there.is_some() && !force {
            return Err(Usage(format!("{name} is there already; -f replaces it")).into());
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        part::sweep(dir);
        let mode = if like.is_some() { 0o600 } else { 0o666 };
        let part = Part::create(dir, mode).map_err(|fault| unwritten(&name, fault))?;
        common::remove_when_interrupted(part.path());
        Ok(Self {
            file: part
                .file()
                .try_clone()
                .map_err(|fault| unwritten(&name, fault))?,
            pending: Some((part, path.into(), like)),
            name,
            force,
        })
    }

    /// Where the flags want the result of `from`, which is `beside` it if they say nothing.
    pub fn of(
        output: &Output,
        from: &Path,
        packed: bool,
        beside: impl FnOnce() -> Result<PathBuf, Usage>,
    ) -> anyhow::Result<Self> {
        match &output.output {
            Some(path) if is_standard(path) => Self::stdout(packed, output.force),
            Some(path) => Self::file(path, from, output.force),
            None if output.stdout || is_standard(from) => Self::stdout(packed, output.force),
            None => Self::file(&beside()?, from, output.force),
        }
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a file, rather than standard output or a device.
    pub fn is_file(&self) -> bool {
        self.pending.is_some()
    }

    /// Gives it its name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let Some((part, path, like)) = self.pending.take() else {
            return Ok(());
        };
        let placed = || {
            if let Some(like) = &like {
                become_like(&self.file, like)?;
            }
            if self.force {
                return part.place(&path);
            }
            // Something may have come there meanwhile.
            match part.place_new(&path)? {
                Ok(()) => Ok(()),
                Err(_) if path.exists() => {
                    Err(io::Error::other("it is there already; -f replaces it"))
                }
                Err(part) => part.place(&path),
            }
        };
        placed().map_err(|fault| unwritten(&self.name, fault))
    }
}

impl Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// For files of other formats, whose first bytes are known last.
impl narrows_offload::container::Out for Place {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn rewrite_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        // A pipe has no start any more.
        self.file.stream_position()?;
        self.file.write_all_at(bytes, 0)
    }
}

/// Mode, times and, where that may be given away, owner: as zstd has it.
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
    let times = FileTimes::new()
        .set_accessed(like.accessed()?)
        .set_modified(like.modified()?);
    file.set_times(times)
}
