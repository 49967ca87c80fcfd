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
mod config;
mod exit;
mod links;
mod log;
mod output;
mod variables;

use std::{ffi::OsString, process::ExitCode, sync::LazyLock};

use clap::{CommandFactory, FromArgMatches, Parser};

/// Adaptive, parallel lossless compression for data paths.
// Flag beats environment (`NARROWS_…`) beats configuration file beats default.
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
    color: log::Color,
    /// Only errors on stderr, no progress
    #[arg(short, long, global = true, display_order = 900)]
    quiet: bool,
    /// How what is said on stderr is written: as text, or as JSON, an object a line
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        env = "NARROWS_LOG"
    )]
    log: log::Format,
    /// Flags from this file; if not given ~/.config/narrows/config.toml, else /etc/narrows/config.toml. Empty: from none
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_name = "FILE",
        env = "NARROWS_CONFIG"
    )]
    config: Option<OsString>,
    /// The flags of this profile of that file before its others
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_name = "NAME",
        env = "NARROWS_CONFIG_PROFILE"
    )]
    config_profile: Option<String>,
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
    let words = match config::added(&Args::command(), words) {
        Ok(words) => words,
        Err(fault) => return exit::report(&fault.into()),
    };
    let matches = variables::beaten(Args::command(), &words).get_matches_from(words);
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|fault| fault.exit());
    log::start(args.verbose, args.quiet, args.color, args.log);
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
    use std::{collections::HashSet, fs, path::Path};

    use super::*;

    // Goal: a test that the documents name as what shows a claim is there. Method: names in backquotes of three words and
    // more, against the functions of all sources.
    #[test]
    fn tests_that_the_documents_name_are_there() {
        fn gather(dir: &Path, functions: &mut HashSet<String>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    gather(&path, functions);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    let names = text
                        .split("fn ")
                        .skip(1)
                        .filter_map(|rest| rest.split('(').next());
                    functions.extend(names.map(String::from));
                }
            }
        }
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut functions = HashSet::new();
        gather(&top.join("crates"), &mut functions);
        let mut named = 0;
        for page in ["docs/security.md", "docs/compare.md"] {
            let text = fs::read_to_string(top.join(page)).unwrap();
            for name in text.split('`').skip(1).step_by(2) {
                let plain =
                    |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                if name.matches('_').count() >= 2 && name.bytes().all(plain) {
                    named += 1;
                    assert!(functions.contains(name), "{page}: there is no test {name}");
                }
            }
        }
        assert!(named > 60, "{named} tests are named");
    }

    /// Heads of the help, and the flags under each.
    const HEADS: &[(&str, &[&str])] = &[
        (
            "What is sent",
            &["exclude", "include", "files_from", "from0", "dry_run"],
        ),
        (
            "What is there already",
            &["checksum", "update", "ignore_existing", "partial"],
        ),
        (
            "What is kept",
            &[
                "hard_links",
                "acls",
                "xattrs",
                "owner",
                "group",
                "numeric_ids",
            ],
        ),
        ("Over ssh", &["rsh", "remote_program"]),
        (
            "Packing",
            &[
                "policy",
                "codec",
                "threads",
                "chunk",
                "depth",
                "keep_larger",
                "pad",
                "cpu_price",
                "level_max",
                "no_history",
                "explain",
                "level",
                "goal",
                "element",
            ],
        ),
        (
            "Session",
            &["connections", "window", "resume_within", "metrics"],
        ),
        (
            "Security",
            &[
                "tls_certificates",
                "tls_hostname",
                "tls_psk",
                "psk_user",
                "allow",
                "insecure",
            ],
        ),
        (
            "Carrying",
            &["keep", "resume_within", "silence", "status", "opaque"],
        ),
        (
            "Job",
            &[
                "to",
                "local",
                "threads",
                "no_verify",
                "spill_after",
                "no_spill",
                "resume_within",
            ],
        ),
        ("Results", &["results", "report", "json"]),
        ("With --published", &["given", "rows", "markdown"]),
    ];

    // Goal: every flag stands in the help under the head of its kind, and not of the group before it. Method: who has a
    // head is one of the flags of that group; the flags for all commands come last.
    #[test]
    fn flags_stand_under_their_heads() {
        fn look(command: &clap::Command) {
            for flag in command.get_arguments() {
                let (name, id) = (command.get_name(), flag.get_id().as_str());
                if let Some(head) = flag.get_help_heading() {
                    let known = HEADS.iter().find(|(known, _)| *known == head);
                    let (_, flags) = known.unwrap_or_else(|| panic!("{name}: the head {head}"));
                    assert!(flags.contains(&id), "{name}: {id} stands under {head}");
                }
            }
            command.get_subcommands().for_each(look);
        }
        let mut command = Args::command();
        command.build();
        look(&command);
    }

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
