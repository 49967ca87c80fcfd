//! Where a file that is being read ends.
//!
//! Its length is what `stat` says, but for files that are made as they are read (procfs, sysfs, cgroups, many of FUSE):
//! those say 0, or a page, and hold something else. And while one reads, others write: a file that grew ends where it
//! ended when it was opened, else a busy log would never be sent; one that shrank never was what would arrive.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
};

use rustix::fs::fstatfs;

/// Kinds of file systems whose files may end before the length that they claim (`statfs(2)`): FUSE, procfs, sysfs, both
/// cgroups, debugfs, tracefs, securityfs, configfs, pstore, efivarfs, resctrl, SELinux, BPF, binfmt_misc.
const MADE_ON_READING: [u64; 15] = [
    0x6573_5546,
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0x6165_676c,
    0xde5e_81e4,
    0x0765_5821,
    0xf97c_ff8c,
    0xcafe_4a11,
    0x4249_4e4d,
];

/// A file that is read from its start to its end.
#[derive(Debug)]
pub struct Input {
    file: File,
    meta: Metadata,
    len: u64,
}

impl Input {
    /// Looks how long it claims to be.
    ///
    /// # Errors
    /// The system's.
    pub fn new(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        let len = meta.len();
        Ok(Self { file, meta, len })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What it was when it was opened.
    #[must_use]
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// Whether it takes less room than it is long: only then it is worth looking for holes.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.meta.blocks() < self.len.div_ceil(512)
    }

    /// How long it claimed to be when it was opened.
    #[must_use]
    pub fn claimed_len(&self) -> u64 {
        self.len
    }

    /// Fills `out` from byte `at`, where the file stands; less only at the end.
    ///
    /// # Errors
    /// The system's, and [`io::ErrorKind::UnexpectedEof`] where it has shrunk.
    pub fn read(&mut self, at: u64, out: &mut [u8]) -> io::Result<usize> {
        let left = self.len.saturating_sub(at);
        if left > 0 {
            let now = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
            let got = fill(&mut self.file, &mut out[..now])?;
            if got == now {
                return Ok(got);
            }
            if self.file.metadata()?.len() != self.len || !self.is_made_on_reading() {
                let text = "it shrank while it was read";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            // It ends here whatever it claims: no later call shall look for more.
            self.len = at + got as u64;
            return Ok(got);
        }
        let got = fill(&mut self.file, out)?;
        // What came after its end is its own where it still claims the same, and else was appended since.
        if got > 0 && self.file.metadata()?.len() != self.len {
            return Ok(0);
        }
        Ok(got)
    }

    fn is_made_on_reading(&self) -> bool {
        fstatfs(&self.file).is_ok_and(|found| MADE_ON_READING.contains(&(found.f_type as u64)))
    }
}

/// Fills `out`, or as much as there is.
fn fill(file: &mut File, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read(&mut out[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    fn whole(input: &mut Input) -> io::Result<Vec<u8>> {
        let (mut all, mut piece) = (Vec::new(), [0; 7]);
        loop {
            match input.read(all.len() as u64, &mut piece)? {
                0 => return Ok(all),
                got => all.extend_from_slice(&piece[..got]),
            }
        }
    }

    #[test]
    fn what_is_made_on_reading_is_read_to_its_end() {
        for path in [
            "/proc/version",
            "/proc/self/cmdline",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/sys/fs/cgroup/cgroup.controllers",
        ] {
            if let Ok(file) = File::open(path) {
                let got = whole(&mut Input::new(file).unwrap()).unwrap();
                assert_eq!(got, fs::read(path).unwrap(), "{path}");
            }
        }
    }

    #[test]
    fn one_that_grows_ends_where_it_ended_and_one_that_shrinks_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for text in [&b""[..], b"0123456789abcd", b"0123456789abcdefg"] {
            let path = dir.path().join("f");
            fs::write(&path, text).unwrap();
            let mut input = Input::new(File::open(&path).unwrap()).unwrap();
            let mut more = File::options().append(true).open(&path).unwrap();
            more.write_all(b"more").unwrap();
            assert_eq!(whole(&mut input).unwrap(), text);
            if !text.is_empty() {
                let mut input = Input::new(File::open(&path).unwrap()).unwrap();
                more.set_len(9).unwrap();
                let fault = whole(&mut input).unwrap_err();
                assert_eq!(fault.kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }
}
