//! What links were measured to carry, kept from run to run: a later transfer to the same address need not find it out again.
//!
//! A file of text in the user's cache, a line a link: address, bytes per second, and when that was, in seconds since 1970.
//! Whatever is wrong with it, it is as good as empty: nothing but speed depends on it.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// The user's file of links.
#[derive(Debug)]
pub struct Links {
    path: PathBuf,
    /// The newest last.
    known: Vec<Known>,
}

#[derive(Debug, Clone, PartialEq)]
struct Known {
    address: String,
    bytes_per_s: f64,
    at: u64,
}

impl Links {
    /// What is known; `None` where there is no place for it.
    pub fn read() -> Option<Self> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))?;
        Some(Self::of(cache.join("narrows/links"), now()))
    }

    fn of(path: PathBuf, now: u64) -> Self {
        let mut text = String::new();
        let known = File::open(&path)
            .and_then(|file| file.take(LEN_MAX).read_to_string(&mut text))
            .map_or_else(
                |_| Vec::new(),
                |_| text.lines().filter_map(Known::parsed).collect(),
            );
        let fresh = |one: &Known| one.at <= now && now - one.at < KEPT_S;
        Self {
            path,
            known: known.into_iter().filter(fresh).collect(),
        }
    }

    /// What the link to this address carried last, in bytes per second.
    pub fn rate_of(&self, address: &str) -> Option<f64> {
        let of = |one: &&Known| one.address == address;
        self.known.iter().rfind(of).map(|one| one.bytes_per_s)
    }

    /// Keeps what it carries now. Two that do so at once do not harm the file: one of them is forgotten.
    pub fn keep(self, address: &str, bytes_per_s: f64) {
        self.keep_at(address, bytes_per_s, now());
    }

    fn keep_at(mut self, address: &str, bytes_per_s: f64, at: u64) {
        self.known.retain(|one| one.address != address);
        let address = address.into();
        self.known.push(Known {
            address,
            bytes_per_s,
            at,
        });
        let from = self.known.len().saturating_sub(LINKS_MAX);
        let text: String = self.known[from..].iter().map(Known::line).collect();
        let Some(dir) = self.path.parent() else {
            return;
        };
        let new = dir.join(format!("links.{}", std::process::id()));
        let written = fs::create_dir_all(dir)
            .and_then(|()| {
                File::options()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&new)
            })
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = written {
            tracing::debug!(%error, path = %self.path.display(), "what the link carried is not kept");
            let _ = fs::remove_file(&new);
        }
    }
}

impl Known {
    fn parsed(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (address, rate, at) = (words.next()?, words.next()?, words.next()?);
        let bytes_per_s = rate
            .parse()
            .ok()
            .filter(|rate| (1.0..RATE_MAX).contains(rate))?;
        words.next().is_none().then_some(Self {
            address: address.into(),
            bytes_per_s,
            at: at.parse().ok()?,
        })
    }

    fn line(&self) -> String {
        format!("{} {:.0} {}\n", self.address, self.bytes_per_s, self.at)
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Links that are kept, the newest.
const LINKS_MAX: usize = 256;
/// Of a longer file no more is read.
const LEN_MAX: u64 = 64 << 10;
/// No link carries more, in bytes per second.
const RATE_MAX: f64 = 1e12;
/// A link is measured anew after thirty days.
const KEPT_S: u64 = 30 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_known_until_it_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("narrows/links");
        let of = |now| Links::of(path.clone(), now);
        of(1000).keep_at("a:1", 1e8, 1000);
        of(1001).keep_at("b:1", 2e8, 1001);
        of(1002).keep_at("a:1", 3e8, 1002);
        let known = of(1003);
        assert_eq!(known.rate_of("a:1"), Some(3e8));
        assert_eq!(known.rate_of("b:1"), Some(2e8));
        assert_eq!(known.rate_of("c:1"), None);
        assert_eq!(of(1002 + KEPT_S).rate_of("a:1"), None);
        // What comes from the future is no measurement.
        assert_eq!(of(1001).rate_of("a:1"), None);
    }

    // Goal: nothing that may stand in the file does harm, and it stays short.
    #[test]
    fn wrong_lines_are_left_out_and_old_links_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("links");
        let wrong = "a\na 1\na inf 5\na -1 5\na 1 x\na 1 5 6\n\0\u{1b}[2J\ngood 7 5\n";
        fs::write(&path, wrong).unwrap();
        let known = Links::of(path.clone(), 10);
        assert_eq!(known.known.len(), 1);
        assert_eq!(known.rate_of("good"), Some(7.0));
        fs::write(&path, [0xFF; 100_000]).unwrap();
        assert!(Links::of(path.clone(), 10).known.is_empty());
        for number in 0..300 {
            Links::of(path.clone(), 10).keep_at(&format!("host{number}:1"), 1e6, 10);
        }
        let known = Links::of(path, 10);
        assert_eq!(known.known.len(), LINKS_MAX);
        assert_eq!(
            (known.rate_of("host0:1"), known.rate_of("host299:1")),
            (None, Some(1e6))
        );
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_failure() {
        Links::of("/proc/narrows/links".into(), 1).keep_at("a:1", 1.0, 1);
    }
}
