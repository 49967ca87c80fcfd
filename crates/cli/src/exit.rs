//! Exit codes.

use std::{io, process::ExitCode};

use narrows::Error;
use narrows_io::secure::Refused;
use narrows_migrate::MigrateError;
use narrows_offload::OffloadError;
use narrows_rest::FileError;
use narrows_wire::TransferError;

/// Shown at the end of `--help`.
pub const HELP: &str = "\
Exit codes:
  0    done (a closed pipe downstream counts as done)
  1    failed: a file, a disk, a peer that does not answer
  2    wrong usage
  3    damaged data
  4    authentication failed
  5    the peer speaks another protocol, version or service
  6    a limit was exceeded
  130  interrupted (129: hung up, 143: asked to stop)";

/// Prints the fault and turns it into the exit code.
pub fn report(fault: &anyhow::Error) -> ExitCode {
    ExitCode::from(say(fault))
}

/// Prints the fault and returns its code.
pub fn say(fault: &anyhow::Error) -> u8 {
    if is_broken_pipe(fault) {
        return 0;
    }
    let code = code(fault);
    // What a peer says may hold control characters; a terminal must not obey them. Lines of our own are indented, so
    // that no other begins where they do.
    let text: Vec<String> = words(fault).lines().map(crate::log::plain).collect();
    crate::log::fault(&text.join("\n    "));
    code
}

/// A fault and what led to it, each said once: many say their cause themselves.
fn words(fault: &anyhow::Error) -> String {
    fault
        .chain()
        .map(ToString::to_string)
        .fold(String::new(), |said, cause| match said.as_str() {
            "" => cause,
            _ if said.ends_with(&cause) => said,
            _ => format!("{said}: {cause}"),
        })
}

fn code(fault: &anyhow::Error) -> u8 {
    fault.chain().find_map(code_of).unwrap_or(1)
}

/// The exit code of an error of a known type; of the others some cause has one.
fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(error) = cause.downcast_ref::<Error>() {
        return Some(error.exit_code());
    }
    let code = cause
        .downcast_ref::<TransferError>()
        .map(TransferError::code)
        .or_else(|| cause.downcast_ref::<MigrateError>().map(MigrateError::code))
        .or_else(|| cause.downcast_ref::<OffloadError>().map(OffloadError::code));
    if let Some(code) = code {
        // A session's error says more than the code that travels.
        return match cause.source().and_then(code_of) {
            Some(exit) => Some(exit),
            None => Some(
                u8::try_from(code.0)
                    .ok()
                    .filter(|code| *code != 0)
                    .unwrap_or(1),
            ),
        };
    }
    if let Some(fault) = cause.downcast_ref::<FileError>() {
        return Some(match fault {
            FileError::Damaged { .. } | FileError::Truncated { .. } => 3,
            FileError::NotNarrows
            | FileError::Version(_)
            | FileError::Codec { .. }
            | FileError::Foreign(_) => 5,
            FileError::Limit { .. } => 6,
            FileError::Setting(_) => 2,
            _ => 1,
        });
    }
    if let Some(several) = cause.downcast_ref::<Several>() {
        return Some(several.code);
    }
    if cause.is::<LeftOut>() {
        return Some(1);
    }
    if cause.is::<Usage>() || cause.is::<Refused>() {
        return Some(2);
    }
    cause.is::<Damaged>().then_some(3)
}

fn is_broken_pipe(fault: &anyhow::Error) -> bool {
    fault
        .chain()
        .any(|cause| match cause.downcast_ref::<TransferError>() {
            Some(TransferError::File { path, fault, .. }) => {
                path == "the output" && fault.kind() == io::ErrorKind::BrokenPipe
            }
            _ => cause.downcast_ref::<OutputClosed>().is_some(),
        })
}

/// Flags that contradict each other, found after parsing.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Files that could not be read, and entries of which something could not be set; the others are in place.
#[derive(Debug)]
pub struct LeftOut {
    left_out: u64,
    unset: u64,
    blocked: u64,
}

impl LeftOut {
    /// Whether there are none.
    ///
    /// # Errors
    /// Itself, if there are.
    pub fn check(all: &[narrows_wire::Received]) -> anyhow::Result<()> {
        let sum = |of: fn(&narrows_wire::Received) -> u64| all.iter().map(of).sum();
        let it = Self {
            left_out: sum(|received| received.left_out),
            unset: sum(|received| received.unset),
            blocked: sum(|received| received.blocked),
        };
        if it.left_out + it.unset + it.blocked == 0 {
            return Ok(());
        }
        Err(it.into())
    }
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            left_out,
            unset,
            blocked,
        } = self;
        let entries = |count: &u64| if *count == 1 { "entry" } else { "entries" };
        if *left_out > 0 {
            let was = if *left_out == 1 { "was" } else { "were" };
            write!(
                f,
                "{left_out} {} {was} not sent, since the sender could not read them; ",
                entries(left_out)
            )?;
        }
        if *unset > 0 {
            write!(
                f,
                "mode, time, owner, access list or attributes of {unset} {} could not be set; ",
                entries(unset)
            )?;
        }
        if *blocked > 0 {
            write!(
                f,
                "in the place of {blocked} {} a directory stands; ",
                entries(blocked)
            )?;
        }
        f.write_str("the rest is in place")
    }
}

impl std::error::Error for LeftOut {}

/// Some of several files failed, each told of already.
#[derive(Debug, Default)]
pub struct Several {
    failed: usize,
    files: usize,
    /// The first one's.
    code: u8,
}

impl Several {
    /// One failed with this code.
    pub fn add(&mut self, code: u8) {
        if code != 0 {
            self.failed += 1;
            self.code = if self.code == 0 { code } else { self.code };
        }
    }

    /// Of so many files in all.
    ///
    /// # Errors
    /// Itself, if any failed.
    pub fn result(mut self, files: usize) -> anyhow::Result<()> {
        self.files = files;
        if self.failed == 0 {
            return Ok(());
        }
        Err(self.into())
    }
}

impl std::fmt::Display for Several {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} files failed", self.failed, self.files)
    }
}

impl std::error::Error for Several {}

/// Bytes arrived that were not sent.
#[derive(Debug)]
pub struct Damaged(pub String);

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damaged {}

/// Stdout was closed by its reader.
#[derive(Debug)]
pub struct OutputClosed;

impl std::fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the output was closed")
    }
}

impl std::error::Error for OutputClosed {}
