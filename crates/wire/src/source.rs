//! What is to be sent: the paths a user names, what of them is left out, and what is found at each.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Component, Path, PathBuf},
};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use narrows_io::{input::Input, part};
use rustix::fs::OFlags;

use crate::TransferError;

/// One of the paths to send.
#[derive(Debug, Clone)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called at the receiver; empty where only what it holds is sent.
    pub name: PathBuf,
    /// With what it holds, if it is a directory.
    pub below: bool,
}

/// What is to be sent.
#[derive(Debug)]
pub struct Source {
    roots: Vec<Root>,
    excluded: Gitignore,
}

/// Which files of a tree are left out. Patterns are those of `.gitignore`, the last that fits counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter<'a> {
    /// Left out.
    pub exclude: &'a [String],
    /// Sent though they are left out otherwise.
    pub include: &'a [String],
}

impl Source {
    /// The paths that a user names. Each arrives under its last name: `send a/b` makes `b`.
    ///
    /// # Errors
    /// [`TransferError`]: a path is not there, cannot be read, or would arrive where another one does; and a pattern
    /// that is none.
    pub fn named(paths: &[PathBuf], filter: Filter<'_>) -> Result<Self, TransferError> {
        let root = |path: &PathBuf| Root {
            path: path.clone(),
            name: last_name(path),
            below: true,
        };
        let source = Self {
            roots: paths.iter().map(root).collect(),
            excluded: patterns(filter)?,
        };
        source.check()?;
        Ok(source)
    }

    /// Paths from a list, each by the whole name that the list gives it, and the directories on their way; of a
    /// directory that is listed, only itself.
    ///
    /// # Errors
    /// As [`Source::named`]; and a path with `..`.
    pub fn listed(list: &[u8], zeros: bool, filter: Filter<'_>) -> Result<Self, TransferError> {
        let end = if zeros { 0 } else { b'\n' };
        let (mut roots, mut seen) = (Vec::new(), HashSet::new());
        for line in list.split(|byte| *byte == end) {
            let line = PathBuf::from(OsString::from_vec(line.to_vec()));
            let plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
            let name: PathBuf = line.components().filter(plain).collect();
            if line.components().any(|part| part == Component::ParentDir) {
                let fault = io::Error::other("a path of a list may not hold `..`");
                return Err(TransferError::file("cannot send", &line, fault));
            }
            let mut steps: Vec<_> = name.ancestors().collect();
            steps.reverse();
            for step in steps {
                if step.as_os_str().is_empty() || !seen.insert(step.to_path_buf()) {
                    continue;
                }
                let base = Path::new(if line.is_absolute() { "/" } else { "" });
                roots.push(Root {
                    path: base.join(step),
                    name: step.to_path_buf(),
                    below: false,
                });
            }
        }
        Ok(Self {
            roots,
            excluded: patterns(filter)?,
        })
    }

    pub(crate) fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Whether an entry of a tree, by its path from the root, is left out: as somebody wished, or as a part of what a
    /// transfer is writing or is to continue.
    #[must_use]
    pub fn is_excluded(&self, name: &Path, is_dir: bool) -> bool {
        if !is_dir && name.file_name().is_some_and(part::is_part) {
            return true;
        }
        !self.excluded.is_empty() && self.excluded.matched(name, is_dir).is_ignore()
    }

    /// Calls `visit` for every entry that would be sent, as far as it can be seen: its path and length.
    pub fn walk(&self, visit: &mut dyn FnMut(&Path, &Metadata)) {
        for root in &self.roots {
            if let Ok(meta) = fs::metadata(&root.path) {
                self.step(&root.path, &root.name, &meta, root.below, visit);
            }
        }
    }

    fn step(
        &self,
        path: &Path,
        name: &Path,
        meta: &Metadata,
        below: bool,
        visit: &mut dyn FnMut(&Path, &Metadata),
    ) {
        if !name.as_os_str().is_empty() {
            visit(name, meta);
        }
        if !below || !meta.is_dir() {
            return;
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        for inner in names {
            let (path, name) = (path.join(&inner), name.join(&inner));
            if let Ok(meta) = fs::symlink_metadata(&path)
                && !self.is_excluded(&name, meta.is_dir())
            {
                self.step(&path, &name, &meta, true, visit);
            }
        }
    }

    /// Worth knowing before anybody is dialled.
    fn check(&self) -> Result<(), TransferError> {
        let mut left_out = None;
        let mut readable = 0;
        for root in &self.roots {
            let path = &root.path;
            let opened = fs::metadata(path).and_then(|meta| match meta.file_type() {
                kind if kind.is_dir() => fs::read_dir(path).map(drop),
                kind if kind.is_file() => File::open(path).map(drop),
                // Opening a pipe would wait for its writer; it is left out with a warning later.
                _ => Ok(()),
            });
            match opened {
                Ok(()) => readable += 1,
                Err(fault) => left_out = Some(TransferError::file("cannot read", path, fault)),
            }
        }
        // One among others is left out when its turn comes.
        if let Some(fault) = left_out.filter(|_| readable == 0) {
            return Err(fault);
        }
        self.check_names()
    }

    /// No two of them, nor what those without a name hold, may arrive at one place.
    fn check_names(&self) -> Result<(), TransferError> {
        let mut taken: HashMap<OsString, &Path> = HashMap::new();
        for root in &self.roots {
            let names = if root.name.as_os_str().is_empty() {
                let entries = fs::read_dir(&root.path).into_iter().flatten().flatten();
                entries.map(|entry| entry.file_name()).collect()
            } else {
                vec![root.name.clone().into_os_string()]
            };
            for name in names {
                if let Some(other) = taken.insert(name.clone(), &root.path) {
                    let text = format!(
                        "it would arrive as {}, and so would that of {}; send them apart",
                        name.display(),
                        other.display()
                    );
                    let fault = io::Error::new(io::ErrorKind::AlreadyExists, text);
                    return Err(TransferError::file("cannot send", &root.path, fault));
                }
            }
        }
        Ok(())
    }
}

/// `.`, `a/.`, `..` and `/` have no name of their own: what they hold goes into the receiver's directory itself.
fn last_name(path: &Path) -> PathBuf {
    let named = !path.as_os_str().as_bytes().ends_with(b"/.");
    path.file_name()
        .filter(|_| named)
        .map_or_else(PathBuf::new, PathBuf::from)
}

fn patterns(filter: Filter<'_>) -> Result<Gitignore, TransferError> {
    let mut builder = GitignoreBuilder::new("");
    let excluded = filter.exclude.iter().cloned();
    let included = filter.include.iter().map(|pattern| format!("!{pattern}"));
    for pattern in excluded.chain(included) {
        builder.add_line(None, &pattern).map_err(|fault| {
            let fault = io::Error::new(io::ErrorKind::InvalidInput, fault.to_string());
            TransferError::file("cannot use the pattern", Path::new(&pattern), fault)
        })?;
    }
    builder.build().map_err(|fault| {
        let fault = io::Error::new(io::ErrorKind::InvalidInput, fault.to_string());
        TransferError::file("cannot use", Path::new("the patterns"), fault)
    })
}

/// What is at a path, opened before anything of it is told.
pub(crate) enum Found {
    /// With what it holds, in order.
    Dir(Metadata, io::Result<Vec<OsString>>),
    /// With its target.
    Link(Metadata, Vec<u8>),
    /// Whether a link may lead to it.
    File(Metadata, Input, bool),
    /// In words.
    Other(&'static str),
}

impl Found {
    /// What the user names may be a link to what is meant; below it, links travel as links.
    pub(crate) fn named(path: &Path) -> io::Result<Self> {
        Self::at(path, fs::metadata(path)?, OFlags::empty())
    }

    /// What a directory holds under a name, `meta` being that of the name itself.
    pub(crate) fn below(path: &Path, meta: Metadata) -> io::Result<Self> {
        Self::at(path, meta, OFlags::NOFOLLOW)
    }

    /// What was found before as a file.
    pub(crate) fn again(path: &Path, follows: bool) -> io::Result<Self> {
        if follows {
            Self::named(path)
        } else {
            Self::below(path, fs::symlink_metadata(path)?)
        }
    }

    fn at(path: &Path, meta: Metadata, flags: OFlags) -> io::Result<Self> {
        let kind = meta.file_type();
        if kind.is_dir() {
            // Names and not entries, each of which keeps the directory open.
            let names = fs::read_dir(path)
                .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
            let sorted = names.map(|mut names: Vec<OsString>| {
                names.sort();
                names
            });
            Ok(Self::Dir(meta, sorted))
        } else if kind.is_symlink() {
            let target = fs::read_link(path)?.into_os_string().into_vec();
            Ok(Self::Link(meta, target))
        } else if kind.is_file() {
            // Were it a pipe by now, opening it would wait for a writer.
            let follows = !flags.contains(OFlags::NOFOLLOW);
            let flags = (flags | OFlags::NONBLOCK).bits() as i32;
            let mut options = OpenOptions::new();
            let file = options.read(true).custom_flags(flags).open(path)?;
            let input = Input::new(file)?;
            Ok(Self::File(input.meta().clone(), input, follows))
        } else if kind.is_socket() {
            Ok(Self::Other("a socket"))
        } else {
            Ok(Self::Other("a device or pipe"))
        }
    }
}
