//! The configuration file: flags for those who do not want to write them each time.
//!
//! What it says becomes words of the command line, behind the command's name, unless a flag or a variable says it or
//! something that it excludes. So a flag beats its variable, a variable beats the file, and the file beats the default.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use toml::{Table, Value};

use crate::{commands::options::PolicyName, exit::Usage};

/// Where system-wide settings are, where the user has none.
const SYSTEM: &str = "/etc/narrows/config.toml";
/// The table of profiles.
const PROFILES: &str = "profile";

/// `words` and what the file adds to them.
///
/// # Errors
/// [`Usage`]: a file that cannot be read, or that names what there is not.
pub fn added(command: &Command, words: Vec<OsString>) -> Result<Vec<OsString>, Usage> {
    let mut built = command.clone().ignore_errors(true);
    let Ok(matches) = built.try_get_matches_from_mut(&words) else {
        return Ok(words);
    };
    let (mut leaf, mut said, mut path) = (&built, &matches, Vec::new());
    while let Some((name, below)) = said.subcommand() {
        let Some(found) = leaf.find_subcommand(name) else {
            return Ok(words);
        };
        (leaf, said) = (found, below);
        path.push(name);
    }
    if path.is_empty() {
        return Ok(words);
    }
    let text = |id: &str| said.try_get_one::<String>(id).ok().flatten().cloned();
    let named = said.try_get_one::<OsString>("config").ok().flatten();
    let Some((file, table)) = read(named.cloned())? else {
        return match text("config_profile") {
            Some(name) => Err(Usage(format!(
                "--config-profile {name}: there is no configuration file"
            ))),
            None => Ok(words),
        };
    };
    let wrong = |what: String| Usage(format!("{}: {what}", file.display()));
    let tables = chosen(&table, text("config_profile").as_deref()).map_err(wrong)?;
    check(&built, &table, true).map_err(wrong)?;
    let mut new = Vec::new();
    for arg in leaf.get_arguments() {
        let Some(name) = arg.get_long().filter(|_| !beaten(leaf, said, arg)) else {
            continue;
        };
        if let Some(value) = tables.iter().find_map(|table| found(table, &path, name)) {
            new.extend(flags(arg, name, value).map_err(wrong)?);
        }
    }
    let at = behind(&built, &words, &path);
    let mut all = words;
    all.splice(at..at, new);
    Ok(all)
}

/// The file that `named` or else the user's or the system's, if there is one.
fn read(named: Option<OsString>) -> Result<Option<(PathBuf, Table)>, Usage> {
    let is_named = named.is_some();
    let files = match named {
        // None, as a service or a test wants it.
        Some(empty) if empty.is_empty() => return Ok(None),
        Some(path) => vec![path.into()],
        None => usual(),
    };
    for path in files {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(fault) if fault.kind() == io::ErrorKind::NotFound && !is_named => continue,
            // A home that this process may not look into, as a sandboxed service's.
            Err(fault) if fault.kind() == io::ErrorKind::PermissionDenied && !is_named => continue,
            Err(fault) => return Err(Usage(format!("{}: {fault}", path.display()))),
        };
        let table = text
            .parse::<Table>()
            .map_err(|fault| Usage(format!("{}: {fault}", path.display())))?;
        return Ok(Some((path, table)));
    }
    Ok(None)
}

/// Where it is looked for.
fn usual() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")));
    let own = home.map(|home| home.join("narrows/config.toml"));
    own.into_iter().chain([SYSTEM.into()]).collect()
}

/// The tables that count, the first before the others.
fn chosen<'a>(table: &'a Table, profile: Option<&str>) -> Result<Vec<&'a Table>, String> {
    let Some(name) = profile else {
        return Ok(vec![table]);
    };
    let all = table.get(PROFILES).and_then(Value::as_table);
    let one = all
        .and_then(|all| all.get(name))
        .and_then(Value::as_table)
        .ok_or_else(|| {
            let names: Vec<_> = all.into_iter().flat_map(Table::keys).cloned().collect();
            format!(
                "there is no profile {name}; it has: {}",
                match names.is_empty() {
                    true => "none".into(),
                    false => names.join(", "),
                }
            )
        })?;
    Ok(vec![one, table])
}

/// What `table` says of flag `name` of the command at `path`: the nearest to the command counts.
fn found<'a>(table: &'a Table, path: &[&str], name: &str) -> Option<&'a Value> {
    let below = path
        .split_first()
        .and_then(|(first, rest)| found(table.get(*first)?.as_table()?, rest, name));
    below.or_else(|| table.get(name).filter(|value| !value.is_table()))
}

/// Whether everything in `table` is a flag of `command` or below it, or a command.
fn check(command: &Command, table: &Table, is_top: bool) -> Result<(), String> {
    for (key, value) in table {
        match value {
            Value::Table(profiles) if is_top && key == PROFILES => {
                for (name, profile) in profiles {
                    let profile = profile
                        .as_table()
                        .ok_or_else(|| format!("profile {name} is not a table"))?;
                    check(command, profile, false)?;
                }
            }
            Value::Table(below) => {
                let command = command
                    .find_subcommand(key)
                    .ok_or_else(|| format!("there is no command {key}"))?;
                check(command, below, false)?;
            }
            _ if knows(command, key) => {}
            _ => return Err(format!("no command here has a flag --{key}")),
        }
    }
    Ok(())
}

fn knows(command: &Command, flag: &str) -> bool {
    let own =
        |arg: &Arg| arg.get_long() == Some(flag) && !["config", "config-profile"].contains(&flag);
    command.get_arguments().any(own) || command.get_subcommands().any(|below| knows(below, flag))
}

/// Whether the command line or a variable says this, or what excludes it.
fn beaten(leaf: &Command, said: &ArgMatches, arg: &Arg) -> bool {
    let is_said = |arg: &Arg| {
        matches!(
            said.value_source(arg.get_id().as_str()),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        )
    };
    let excludes = |one: &Arg, other: &Arg| {
        let conflicts = leaf.get_arg_conflicts_with(one);
        conflicts.iter().any(|arg| arg.get_id() == other.get_id())
    };
    let packs_otherwise = |other: &Arg| match (other.get_id().as_str(), arg.get_id().as_str()) {
        ("codec", "policy") => true,
        ("policy", "codec") => {
            let policy = said.try_get_one("policy").ok().flatten().copied();
            matches!(policy, Some(PolicyName::None | PolicyName::Adaptive))
        }
        _ => false,
    };
    is_said(arg)
        || leaf
            .get_arguments()
            .filter(|other| is_said(other))
            .any(|other| excludes(arg, other) || excludes(other, arg) || packs_otherwise(other))
}

/// The words for flag `name` with that value.
fn flags(arg: &Arg, name: &str, value: &Value) -> Result<Vec<OsString>, String> {
    let takes = arg.get_action().takes_values();
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => Err(format!("{name} = {value}: a text or a number is expected")),
    };
    let word = |value: String| OsString::from(format!("--{name}={value}"));
    match (value, arg.get_action()) {
        (Value::Boolean(is_on), ArgAction::SetTrue) => Ok(is_on
            .then(|| format!("--{name}").into())
            .into_iter()
            .collect()),
        (Value::Integer(count @ 0..=9), ArgAction::Count) => {
            Ok((0..*count).map(|_| format!("--{name}").into()).collect())
        }
        (Value::Array(values), ArgAction::Append) => {
            values.iter().map(|value| one(value).map(word)).collect()
        }
        (value, _) if takes => Ok(vec![word(one(value)?)]),
        _ => Err(format!("{name} = {value}: true or false is expected")),
    }
}

/// Where words of the command at `path` may stand: behind its name.
fn behind(command: &Command, words: &[OsString], path: &[&str]) -> usize {
    let mut at = 1;
    for name in path {
        while let Some(word) = words.get(at) {
            at += 1;
            let text = word.to_string_lossy();
            if text == *name {
                break;
            }
            // A flag of all commands that has its value in the next word.
            let takes_next = |arg: &Arg| {
                arg.get_action().takes_values()
                    && arg
                        .get_long()
                        .is_some_and(|long| text == format!("--{long}"))
            };
            at += usize::from(command.get_arguments().any(takes_next));
        }
    }
    at.min(words.len())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The words that `line` becomes with this file.
    fn with(text: &str, line: &str) -> Result<String, String> {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, text).unwrap();
        let words = line.split(' ').map(OsString::from);
        let config = ["--config".into(), path.clone().into()];
        let words = words.clone().take(1).chain(config).chain(words.skip(1));
        match added(&crate::Args::command(), words.collect()) {
            Ok(words) => {
                let text: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                let text = text.join(" ");
                Ok(text.replace(&format!(" --config {}", path.display()), ""))
            }
            Err(fault) => Err(fault.to_string()),
        }
    }

    const FILE: &str = "
        log = 'json'
        threads = 2
        [send]
        policy = 'fixed'
        codec = 'zstd:3'
        tls-psk = '/k'
        [memory.serve]
        size = '1G'
        export = ['a=1G', 'b=2G']
        [profile.far.send]
        codec = 'zstd:9'
        resume-within = 60
        [profile.far]
        threads = 3
    ";

    #[test]
    fn the_nearest_to_the_command_counts_and_a_profile_before_all() {
        let said = with(FILE, "narrows send x h").unwrap();
        for flag in [
            "--log=json",
            "--threads=2",
            "--codec=zstd:3",
            "--policy=fixed",
        ] {
            assert!(said.contains(flag), "{said}");
        }
        let said = with(FILE, "narrows --config-profile far send x h").unwrap();
        for flag in [
            "--threads=3",
            "--codec=zstd:9",
            "--tls-psk=/k",
            "--resume-within=60",
        ] {
            assert!(said.contains(flag), "{said}");
        }
        assert!(said.ends_with(" x h") && said.starts_with("narrows --config-profile far send --"));
        let said = with(FILE, "narrows memory serve").unwrap();
        assert!(said.contains("--export=a=1G --export=b=2G"), "{said}");
        assert_eq!(with(FILE, "narrows"), Ok("narrows".into()));
    }

    #[test]
    fn a_flag_beats_it_and_what_excludes_it() {
        let said = with(FILE, "narrows send --threads 9 --tls-certificates d x h").unwrap();
        assert!(
            !said.contains("--threads=2") && !said.contains("tls-psk"),
            "{said}"
        );
        let said = with(FILE, "narrows send --policy adaptive x h").unwrap();
        assert!(!said.contains("codec") && !said.contains("fixed"), "{said}");
        let said = with(FILE, "narrows send --codec lz4 x h").unwrap();
        assert!(!said.contains("zstd") && !said.contains("fixed"), "{said}");
    }

    #[test]
    fn what_there_is_not_is_told() {
        for (text, words) in [
            ("sned = 1", "no command here has a flag --sned"),
            ("[fly]\nx = 1", "no command fly"),
            ("[send]\ncoder = 1", "--coder"),
            ("[send]\ninsecure = 'x'", "true or false"),
            ("[send]\nthreads = true", "a text or a number"),
            ("[profile.far]\nfoo = 1", "--foo"),
            ("x = ", "config.toml"),
        ] {
            let fault = with(text, "narrows send x h").unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
        let fault = with(FILE, "narrows send --config-profile near x h").unwrap_err();
        assert!(
            fault.contains("there is no profile near; it has: far"),
            "{fault}"
        );
        let words = ["narrows", "--config", "/none", "send", "x", "h"].map(OsString::from);
        assert!(added(&crate::Args::command(), words.into()).is_err());
    }
}
