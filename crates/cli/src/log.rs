//! What is said on stderr: log lines, where a server listens, faults. As text for people, or as JSON, an object a line;
//! into a journal with the priority in front that it takes for each line.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    os::unix::fs::MetadataExt,
    sync::OnceLock,
};

use indicatif::ProgressBar;
use parking_lot::Mutex;
use serde::Serialize;
use tracing::{Level, Metadata, field::Field};
use tracing_subscriber::{
    field::MakeExt,
    filter::LevelFilter,
    fmt::{
        MakeWriter,
        format::{Writer, debug_fn},
    },
};

/// Whether what is written to stderr has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Color {
    /// Where it is a terminal that has them
    #[default]
    Auto,
    /// Yes
    Always,
    /// No
    Never,
}

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: `timestamp`, `level`, `message`, and what the message is about
    Json,
}

/// The format, once it is known.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Sends log lines to stderr.
pub fn start(verbose: u8, quiet: bool, color: Color, format: Format) {
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    };
    let _ = FORMAT.set(format);
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(Stderr {
            is_journal: is_journal(),
        })
        .with_target(false);
    match format {
        Format::Text => lines
            .fmt_fields(debug_fn(field).delimited(" "))
            .without_time()
            .with_ansi(is_coloured(color))
            .init(),
        Format::Json => lines.json().flatten_event(true).init(),
    }
}

/// One field of a line, without what would change the terminal or begin another line: names of files and words of peers
/// are among them.
fn field(to: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = plain(&format!("{value:?}"));
    match field.name() {
        "message" => write!(to, "{text}"),
        name => write!(to, "{name}={text}"),
    }
}

/// Text of which each control character and each mark that changes the direction of writing is a question mark.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
            c if c.is_control() => '?',
            c => c,
        })
        .collect()
}

/// What is drawn on stderr just now, and must not be written into.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// From now on lines go above this bar.
pub fn draw_below(bar: &ProgressBar) {
    *DRAWN.lock() = Some(bar.clone());
}

/// Writes to stderr in one piece, so that no other thread's line comes between, and above a bar.
fn write_above(bytes: &[u8]) -> io::Result<()> {
    let bar = DRAWN.lock().clone();
    match bar.filter(|bar| !bar.is_finished()) {
        Some(bar) => bar.suspend(|| io::stderr().write_all(bytes)),
        None => io::stderr().write_all(bytes),
    }
}

/// In a file or a journal colours are noise.
fn is_coloured(color: Color) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

/// Whether stderr is what systemd connected to its journal (systemd.exec(5), `JOURNAL_STREAM`).
fn is_journal() -> bool {
    let Some(name) = std::env::var("JOURNAL_STREAM").ok() else {
        return false;
    };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|meta| name == format!("{}:{}", meta.dev(), meta.ino()))
}

/// Stderr, a line at a time.
struct Stderr {
    is_journal: bool,
}

/// One line's writer.
struct Line(&'static str);

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line("")
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line(match self.is_journal {
            true => priority(*meta.level()),
            false => "",
        })
    }
}

impl Write for Line {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = [self.0.as_bytes(), text].concat();
        write_above(&line).map(|()| text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As sd-daemon(3) has it.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

#[derive(Serialize)]
struct Object<'a> {
    timestamp: String,
    level: &'a str,
    message: &'a str,
}

/// Says something that is no fault, in the format asked for; where nobody reads, in vain.
pub fn inform(text: fmt::Arguments<'_>) {
    say(Level::INFO, &text.to_string());
}

/// Says why the program fails.
pub fn fault(text: &str) {
    match FORMAT.get() {
        Some(Format::Json) => say(Level::ERROR, text),
        _ => say(Level::ERROR, &format!("narrows: {text}")),
    }
}

fn say(level: Level, text: &str) {
    let line = match FORMAT.get() {
        Some(Format::Json) => serde_json::to_string(&Object {
            timestamp: narrows_lab::machine::now(),
            level: level.as_str(),
            message: text,
        })
        .unwrap_or_default(),
        _ => text.to_owned(),
    };
    let priority = if is_journal() { priority(level) } else { "" };
    let _ = write_above(format!("{priority}{line}\n").as_bytes());
}

/// `eprintln!` in the format asked for.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::log::inform(format_args!($($words)*))
    };
}
pub(crate) use tell;
