//! `narrows codecs`

use std::ops::RangeInclusive;

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use narrows::default_registry;
use serde_json::json;

use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let registry = default_registry();
    if args.json {
        let codecs: Vec<_> = registry
            .entries()
            .map(|entries| {
                let info = entries[0].codec.info();
                let all = registry.levels(info.id).unwrap_or(0..=0);
                let backends: Vec<_> = entries.iter().map(|entry| entry.backend).collect();
                let levels = entries.iter().map(|entry| {
                    let levels = &entry.codec.info().levels;
                    json!({ "backend": entry.backend, "level_min": levels.start(), "level_max": levels.end() })
                });
                json!({
                    "id": info.id.0, "name": info.name, "format": info.format, "history": info.history,
                    "level_min": all.start(), "level_max": all.end(), "level_default": info.level_default,
                    "chosen": backends[0], "available": backends, "levels": levels.collect::<Vec<_>>(),
                })
            })
            .collect();
        let backends: Vec<_> = registry
            .probed()
            .iter()
            .map(|(name, found)| match found {
                Ok(()) => json!({ "name": name, "available": true }),
                Err(reason) => {
                    json!({ "name": name, "available": false, "reason": reason.to_string() })
                }
            })
            .collect();
        return output::print(
            &json!({ "schema": "narrows.codecs/1", "codecs": codecs, "backends": backends })
                .to_string(),
        );
    }
    let mut codecs = table([
        "id", "codec", "levels", "default", "history", "backend", "format",
    ]);
    for entries in registry.entries() {
        let info = entries[0].codec.info();
        let all = registry.levels(info.id).unwrap_or(0..=0);
        let mut packers = entries
            .iter()
            .map(|entry| match &entry.codec.info().levels {
                levels if *levels == all => entry.backend.to_string(),
                levels => format!("{} {}", entry.backend, range(levels)),
            });
        let backend = match (
            packers.next().unwrap_or_default(),
            packers.collect::<Vec<_>>(),
        ) {
            (first, others) if others.is_empty() => first,
            (first, others) => format!("{first} (also {})", others.join(", ")),
        };
        codecs.add_row([
            info.id.to_string(),
            info.name.into(),
            range(&all),
            info.level_default.to_string(),
            if info.history { "yes" } else { "" }.into(),
            backend,
            info.format.into(),
        ]);
    }
    output::print(&codecs.to_string())?;
    let mut backends = table(["backend", ""]);
    for (name, found) in registry.probed() {
        let state = match found {
            Ok(()) => "available".into(),
            Err(reason) => format!("not available: {reason}"),
        };
        backends.add_row([name.to_string(), state]);
    }
    output::print(&backends.to_string())
}

/// A table, plain, and as wide as the narrowest terminal.
fn table<const N: usize>(heads: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(80);
    table.load_style(NOTHING).set_header(heads);
    table
}

fn range(levels: &RangeInclusive<i16>) -> String {
    match (levels.start(), levels.end()) {
        (0, 0) => "-".into(),
        (least, most) => format!("{least}..{most}"),
    }
}
