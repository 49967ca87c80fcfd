//! What the sheet holds: the rows of `rows.toml`.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

/// A promise, how it is tried, and the figure that comes out. It has one of `tests`, `program` and `missing`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    /// Names the row for good.
    pub(super) id: String,
    pub(super) promise: String,
    pub(super) what: String,
    /// Tests of the workspace.
    #[serde(default)]
    pub(super) tests: Vec<Test>,
    /// A program of the repository and its arguments; `{name}` stands for what `quick` or `full` has under that name.
    #[serde(default)]
    pub(super) program: Vec<String>,
    /// Nothing does it yet; why, or what would.
    pub(super) missing: Option<String>,
    /// Counts are read from lines of these shapes: `{name}` stands for a number. Of several lines and rounds they are
    /// summed; a name that ends in `~` keeps its greatest, one that ends in `#` counts words.
    #[serde(default)]
    pub(super) says: Vec<String>,
    /// Environment of a quick try. `{round}` is the number of the round; `skip` says why it is left out.
    #[serde(default)]
    pub(super) quick: BTreeMap<String, String>,
    /// Environment of a full one.
    #[serde(default)]
    pub(super) full: BTreeMap<String, String>,
    /// What the full sheet aims at: a count and how much.
    pub(super) aim: Option<(String, u64)>,
    /// Rounds of the full sheet, each with other seeds.
    #[serde(default = "once")]
    pub(super) rounds: u64,
}

/// Package, test program (`lib` or the file's name), filter.
#[derive(Debug, Deserialize)]
pub(super) struct Test {
    pub(super) package: String,
    pub(super) program: String,
    pub(super) filter: String,
}

fn once() -> u64 {
    1
}

#[derive(Deserialize)]
struct Rows {
    row: Vec<Spec>,
}

pub(super) static ROWS: LazyLock<Vec<Spec>> = LazyLock::new(|| {
    let rows: Rows =
        toml::from_str(include_str!("rows.toml")).expect("rows.toml is TOML of this shape");
    rows.row
});
