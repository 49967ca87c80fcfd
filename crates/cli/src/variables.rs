//! A flag beats its variable, and the variable of any flag that it excludes.
//!
//! clap takes a variable for as good as its flag, so that one set for a whole session would make every command that
//! says otherwise a conflict. So the words are read twice: once to see which variables a flag beats, and again without
//! those.

use std::ffi::OsString;

use clap::{ArgMatches, Command, Id, builder::Resettable, parser::ValueSource};

use crate::commands::options::PolicyName;

/// `command`, which no longer knows the variables that flags among `words` beat.
pub fn beaten(command: Command, words: &[OsString]) -> Command {
    let mut built = command.clone().ignore_errors(true);
    let Ok(matches) = built.try_get_matches_from_mut(words) else {
        return command;
    };
    let (mut leaf, mut said, mut path) = (&built, &matches, Vec::new());
    while let Some((name, below)) = said.subcommand() {
        let Some(found) = leaf.find_subcommand(name) else {
            return command;
        };
        (leaf, said) = (found, below);
        path.push(name);
    }
    let from = |arg: &clap::Arg, source| said.value_source(arg.get_id().as_str()) == Some(source);
    let excludes = |one: &clap::Arg, other: &clap::Arg| {
        leaf.get_arg_conflicts_with(one)
            .iter()
            .any(|arg| arg.get_id() == other.get_id())
    };
    let beaten: Vec<Id> = leaf
        .get_arguments()
        .filter(|arg| from(arg, ValueSource::EnvVariable))
        .filter(|arg| {
            leaf.get_arguments()
                .filter(|flag| from(flag, ValueSource::CommandLine))
                .any(|flag| {
                    excludes(arg, flag)
                        || excludes(flag, arg)
                        || packs_otherwise(said, flag.get_id().as_str(), arg)
                })
        })
        .map(|arg| arg.get_id().clone())
        .collect();
    without(command, &path, &beaten)
}

/// Whether flag `flag` names a policy that needs no codec, or a codec beside a policy `arg` that has none.
fn packs_otherwise(said: &ArgMatches, flag: &str, arg: &clap::Arg) -> bool {
    let policy = said.try_get_one("policy").ok().flatten().copied();
    match (flag, arg.get_id().as_str()) {
        ("policy", "codec") => matches!(policy, Some(PolicyName::None | PolicyName::Adaptive)),
        ("codec", "policy") => matches!(policy, Some(PolicyName::None)),
        _ => false,
    }
}

fn without(command: Command, path: &[&str], beaten: &[Id]) -> Command {
    match path {
        [first, rest @ ..] => command.mut_subcommand(first, |below| without(below, rest, beaten)),
        [] => beaten.iter().fold(command, |command, id| {
            command.mut_arg(id, |arg| arg.env(Resettable::Reset))
        }),
    }
}
