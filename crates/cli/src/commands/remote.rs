//! The other end of a transfer on a host that `ssh` reaches: `HOST:PATH`, as scp and rsync have it.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    process::Command,
};

use narrows::{Error, Transport};
use narrows_io::transport::{self, ChildHandle};

use crate::exit::Usage;

/// How a remote host is reached.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Over ssh")]
pub struct Reach {
    /// Program that reaches the remote host for HOST:PATH
    #[arg(
        long,
        default_value = "ssh",
        value_name = "COMMAND",
        env = "NARROWS_RSH"
    )]
    pub rsh: String,
    /// The narrows program on the remote host
    #[arg(long, default_value = "narrows", value_name = "PATH")]
    pub remote_program: String,
}

/// `HOST:PATH`: what follows the colon is not a port. The path is `.` where there is none.
pub fn split(word: &OsStr) -> Option<(&str, &OsStr)> {
    let bytes = word.as_bytes();
    if bytes.starts_with(b"[") || bytes.starts_with(b"unix:") {
        return None;
    }
    let at = bytes.iter().position(|byte| *byte == b':')?;
    let (host, path) = (str::from_utf8(&bytes[..at]).ok()?, &bytes[at + 1..]);
    let is_port = !path.is_empty() && path.iter().all(u8::is_ascii_digit);
    let is_address = path.starts_with(b"//") || path.contains(&b':');
    // `./a:b` and `/a:b` are files here.
    if host.is_empty() || host.contains('/') || is_port || is_address {
        return None;
    }
    let path = if path.is_empty() { b"." } else { path };
    Some((host, OsStr::from_bytes(path)))
}

impl Reach {
    /// Starts the remote program on `host` with `words`, its standard input and output being the connection.
    pub fn start(
        &self,
        host: &str,
        words: &[OsString],
    ) -> anyhow::Result<(Transport, ChildHandle)> {
        if host.starts_with('-') {
            return Err(Usage(format!(
                "`{host}` is no host: {} would take it for an option",
                self.rsh
            ))
            .into());
        }
        let mut own = self.rsh.split_whitespace();
        let program = own
            .next()
            .ok_or_else(|| Usage("--rsh names no program".into()))?;
        let mut command = Command::new(program);
        command
            .args(own)
            .arg(host)
            .arg("--")
            .arg(&self.remote_program);
        command.args(words);
        transport::spawn(command).map_err(|fault| {
            anyhow::anyhow!(
                "cannot start {program}: {fault}; install it or name another with --rsh"
            )
        })
    }

    /// `error`, which a session with a remote program ended with before it began, in the words of how that ended.
    pub fn explain(&self, error: Error, host: &str, child: &ChildHandle) -> anyhow::Error {
        let (rsh, program) = (&self.rsh, &self.remote_program);
        match child.exit_code() {
            Some(127) => anyhow::anyhow!(
                "{host} has no program `{program}`: install narrows there, or say where it is with --remote-program"
            ),
            Some(126) => anyhow::anyhow!("`{program}` on {host} may not be run"),
            Some(255) => anyhow::anyhow!("{rsh} could not reach {host}; what it says stands above"),
            Some(code) if code != 0 => anyhow::anyhow!(
                "`{program}` on {host} ended with code {code}; what it says stands above"
            ),
            _ => error.into(),
        }
    }
}

/// A path as one word of the remote shell's, which takes words apart again. `~` and `~user` at its start mean the home
/// there.
pub fn quote(path: &OsStr) -> OsString {
    let bytes = path.as_bytes();
    let end = bytes
        .iter()
        .position(|byte| *byte == b'/')
        .unwrap_or(bytes.len());
    let named = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_home = bytes.first() == Some(&b'~') && bytes[1..end].iter().all(named);
    // With its slash: a quoted one would belong to the name.
    let home_end = (end + 1).min(bytes.len());
    let (home, rest) = bytes.split_at(if is_home { home_end } else { 0 });
    let mut quoted = home.to_vec();
    if !rest.is_empty() || home.is_empty() {
        quoted.push(b'\'');
        for byte in rest {
            match byte {
                b'\'' => quoted.extend_from_slice(br"'\''"),
                byte => quoted.push(*byte),
            }
        }
        quoted.push(b'\'');
    }
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_from_a_port_and_from_a_file_here() {
        let split = |text: &'static str| {
            split(OsStr::new(text)).map(|(host, path)| (host, path.to_str().unwrap()))
        };
        assert_eq!(split("host:dir"), Some(("host", "dir")));
        assert_eq!(split("me@host:/a b"), Some(("me@host", "/a b")));
        assert_eq!(split("host:"), Some(("host", ".")));
        assert_eq!(split("host:~/x"), Some(("host", "~/x")));
        for address in [
            "host",
            "host:4242",
            "[::1]:4242",
            "unix:/run/x",
            "tcp://h:1",
            "./a:b",
            "/a:b",
        ] {
            assert_eq!(split(address), None, "{address}");
        }
    }

    #[test]
    fn the_remote_shell_sees_one_word() {
        let quote = |bytes: &[u8]| quote(OsStr::from_bytes(bytes)).into_vec();
        assert_eq!(quote(b"it's"), br"'it'\''s'");
        assert_eq!(quote(b"~/a b"), b"~/'a b'");
        assert_eq!(quote(b"~"), b"~");
        assert_eq!(quote(b"~me.x/$HOME"), b"~me.x/'$HOME'");
        assert_eq!(quote(b"~$(id)/x"), b"'~$(id)/x'");
        assert_eq!(quote(b"a/~"), b"'a/~'");
        assert_eq!(quote(b"\xff"), b"'\xff'");
        assert_eq!(quote(b""), b"''");
    }
}
