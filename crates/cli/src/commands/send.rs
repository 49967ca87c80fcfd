//! `narrows send`

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use narrows::{Dial, Endpoint};
use narrows_io::transport;
use narrows_wire::send;

use super::{
    common,
    options::{Packing, Security, Session},
};
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
#[command(override_usage = "narrows send [OPTIONS] <PATH>... <TO>")]
pub struct Args {
    /// Files and directories, or `-` for standard input; and last, where to: HOST[:PORT], unix:/PATH, or HOST:DIR,
    /// which starts the receiver there over ssh
    // One list: clap cannot part two when flags stand between them.
    #[arg(required = true, value_names = ["PATH", "TO"], num_args = 1..)]
    pub paths_and_to: Vec<OsString>,
    /// Program that reaches the remote host for HOST:DIR
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
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub session: Session,
    #[command(flatten)]
    pub security: Security,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    let (to, paths) = args
        .paths_and_to
        .split_last()
        .expect("the command line requires one");
    if paths.is_empty() {
        return Err(Usage("what to send, and where to? narrows send PATH… HOST".into()).into());
    }
    let to = to
        .to_str()
        .ok_or_else(|| Usage(format!("{} is no address", to.display())))?;
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    let from_stdin = paths == [Path::new("-")];
    if from_stdin && io::stdin().is_terminal() {
        return Err(
            Usage("standard input is a terminal; give files, or pipe something in".into()).into(),
        );
    }
    if let Some((_, dir)) = remote_dir(to)
        && (from_stdin || dir == "-")
    {
        let text = "HOST:DIR takes files into a directory; for a stream start `narrows recv -` there and send to its address";
        return Err(Usage(text.into()).into());
    }
    if !from_stdin {
        send::check(&paths)?;
    }
    let engine = common::engine(&args.packing);
    let settings = common::settings(&engine, &args.packing, &args.session)?;
    let dial = dial(to, &args)?;
    let endpoint = Arc::new(Endpoint::connect(&engine, settings, dial)?);
    common::interruptible(&endpoint)?;
    common::metered(&args.session, &endpoint)?;
    let bar = output::progress(quiet);
    let mut progress = |bytes| bar.set_position(bytes);
    let received = if from_stdin {
        send::stream(
            &endpoint,
            &mut common::descriptor(&io::stdin())?,
            &mut progress,
        )
    } else {
        send::paths(&endpoint, &paths, &mut progress)
    };
    let received = common::last_words(&endpoint, received)?;
    bar.finish_and_clear();
    let transfer = output::Transfer::new("send", received, &endpoint.stats());
    endpoint.close();
    if args.json {
        return output::print(&serde_json::to_string(&transfer)?);
    }
    if !quiet {
        eprintln!("{}", transfer.line());
    }
    Ok(())
}

fn dial(to: &str, args: &Args) -> anyhow::Result<Dial> {
    if let Some((host, dir)) = remote_dir(to) {
        if host.starts_with('-') {
            return Err(Usage(format!(
                "`{host}` is no host: {} would take it for an option",
                args.rsh
            ))
            .into());
        }
        let mut words = args.rsh.split_whitespace();
        let program = words
            .next()
            .ok_or_else(|| Usage("--rsh names no program".into()))?;
        let mut command = Command::new(program);
        command
            .args(words)
            .arg(host)
            .arg("--")
            .arg(&args.remote_program)
            .args(["recv", "--quiet", "--stdio", "--"]);
        command.arg(quote(dir));
        let transport = transport::spawn(command).map_err(|fault| {
            anyhow::anyhow!(
                "cannot start {program}: {fault}; install it or name another with --rsh"
            )
        })?;
        return Ok(narrows::dial_once(transport));
    }
    Ok(common::connector(to, &args.security)?.dial())
}

/// `HOST:DIR` as scp and rsync have it: what follows the colon is not a port.
fn remote_dir(to: &str) -> Option<(&str, &str)> {
    if to.starts_with('[') || to.starts_with("unix:") || to.contains("://") {
        return None;
    }
    let (host, dir) = to.split_once(':')?;
    let is_port = !dir.is_empty() && dir.bytes().all(|byte| byte.is_ascii_digit());
    (!is_port && !dir.contains(':') && !host.is_empty())
        .then_some((host, if dir.is_empty() { "." } else { dir }))
}

/// The remote shell takes the words apart again.
fn quote(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.into(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_told_from_a_port() {
        assert_eq!(remote_dir("host:dir"), Some(("host", "dir")));
        assert_eq!(remote_dir("me@host:/a b"), Some(("me@host", "/a b")));
        assert_eq!(remote_dir("host:"), Some(("host", ".")));
        for address in [
            "host",
            "host:4242",
            "[::1]:4242",
            "unix:/run/x",
            "tcp://h:1",
        ] {
            assert_eq!(remote_dir(address), None, "{address}");
        }
    }

    #[test]
    fn the_remote_shell_sees_one_word() {
        for word in ["it's", "two words", "$HOME;`id`", "~"] {
            assert_eq!(shlex::split(&quote(word)), Some(vec![word.into()]));
        }
    }
}
