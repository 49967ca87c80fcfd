//! The `narrows` command.
//!
//! Results go to stdout, everything else to stderr; `--json` makes the result one document. Exit codes: see
//! [`exit::HELP`]. Upstream: a person or a script; downstream: `narrows-wire` and the facade.

#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the doc comments of flags are help texts, where [] is optional"
)]
#![allow(unreachable_pub, reason = "a program exports nothing")]

mod commands;
mod exit;
mod output;
mod variables;

use std::{process::ExitCode, sync::LazyLock};

use clap::{CommandFactory, FromArgMatches, Parser};

/// Adaptive, parallel lossless compression for data paths.
// Flag beats environment (`NARROWS_…`) beats default.
#[derive(Debug, Parser)]
#[command(name = "narrows", version = VERSION.as_str(), after_help = exit::HELP, propagate_version = true)]
struct Args {
    /// Say more on stderr (twice: even more)
    #[arg(short, long, global = true, display_order = 900, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Colours on stderr: always, never, or where it is a terminal that has them and NO_COLOR is not set
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_enum,
        default_value_t,
        value_name = "WHEN"
    )]
    color: output::Color,
    /// Only errors on stderr, no progress
    #[arg(short, long, global = true, display_order = 900)]
    quiet: bool,
    #[command(subcommand)]
    command: commands::Command,
}

/// With the commit that it was built of.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = narrows_lab::machine::COMMIT;
    format!("{} ({commit})", env!("CARGO_PKG_VERSION"))
});

fn main() -> ExitCode {
    let words = commands::file::manners(std::env::args_os().collect());
    let matches = variables::beaten(Args::command(), &words).get_matches_from(words);
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|fault| fault.exit());
    output::log(args.verbose, args.quiet, args.color);
    narrows_io::limits::raise_open_files();
    commands::common::survive_file_limit();
    match commands::run(args.command, args.quiet) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            commands::common::yield_to_interrupt();
            exit::report(&fault)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    // Goal: a command that the documents show is one that there is. Method: every line of their shell blocks that
    // begins with it, read as the program would.
    #[test]
    fn commands_in_the_documents_are_understood() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs = fs::read_dir(top.join("docs"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let pages = docs.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
        let mut found = 0;
        for page in pages.chain([top.join("README.md")]) {
            let text = fs::read_to_string(&page).unwrap();
            for block in text.split("```sh\n").skip(1) {
                let block = block
                    .split("```")
                    .next()
                    .unwrap_or_default()
                    .replace("\\\n", " ");
                for line in block.lines() {
                    // Behind a prompt, up to a comment or the next program.
                    let line = line.split_once("$ ").map_or(line, |(_, line)| line);
                    let words = line
                        .split_whitespace()
                        .take_while(|word| !["#", "|", ">", "&&", "&"].contains(word));
                    let words: Vec<_> = words.collect();
                    if words.first() == Some(&"narrows") {
                        found += 1;
                        let words = words.iter().map(std::ffi::OsString::from).collect();
                        if let Err(fault) = Args::try_parse_from(commands::file::manners(words)) {
                            panic!("{}: {line}\n{fault}", page.display());
                        }
                    }
                }
            }
        }
        assert!(found > 25, "{found} commands");
    }
}
