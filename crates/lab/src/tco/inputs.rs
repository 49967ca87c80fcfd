//! The inputs of the model: a TOML file in which every number has a unit, a source and a range.
//!
//! The file is a user's, so every number is checked here, once: the model divides by them.

use std::collections::BTreeMap;

use narrows_core::units::Size;
use serde::{Deserialize, Serialize};

use crate::result::Row;

/// One number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// What the model uses.
    pub value: f64,
    /// For people.
    pub unit: String,
    /// How low it might be; `value` where nobody doubts it.
    pub low: Option<f64>,
    /// How high.
    pub high: Option<f64>,
    /// Where it is from.
    pub source: String,
}

/// Processors a server may have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// As the maker calls them.
    pub name: String,
    /// How many of them.
    pub sockets: f64,
    /// Threads of all.
    pub threads: f64,
    /// W at full load, each.
    pub watts_each: f64,
    /// USD, each.
    pub usd_each: f64,
    /// Where that is from.
    pub source: String,
}

/// A way to compress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// For people.
    pub name: String,
    /// Bytes packed as one.
    pub unit_bytes: f64,
    /// Bytes that space is allocated in; 1 where units are packed end to end.
    pub granule_bytes: f64,
    /// Raw over packed bytes, before rounding.
    pub ratio: Input,
    /// What packing takes of the host, in thread-seconds per GB of data; 0 where a device does it.
    pub pack_cpu_s_per_gb: Input,
    /// That is for one copy, and each copy is packed anew.
    #[serde(default)]
    pub packs_each_copy: bool,
    /// Price of its drives over that of plain ones.
    pub drive_price_factor: Input,
}

/// All inputs, `narrows.tco/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    schema: String,
    /// Over the report.
    pub title: String,
    /// The design that the others are compared with.
    pub baseline: String,
    inputs: BTreeMap<String, Input>,
    /// To choose from.
    pub processors: Vec<Processor>,
    /// To compare.
    pub designs: Vec<Design>,
    /// Inputs of [`link`](super::link).
    #[serde(default)]
    pub(super) link: BTreeMap<String, Input>,
}

/// What is wrong with the inputs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// No TOML, or not of this shape.
    #[error("{0}")]
    Toml(String),
    /// An input is not there.
    #[error("there is no input `{0}`")]
    Missing(String),
    /// An input the model does not know.
    #[error("the model has no input `{0}`; it knows {1}")]
    Unknown(String, String),
    /// A number no model can take.
    #[error("{name} = {value}: {why}")]
    Number {
        /// Which.
        name: String,
        /// What it was.
        value: f64,
        /// What it should be.
        why: &'static str,
    },
    /// Nothing to choose from.
    #[error("there are no {0}")]
    Empty(&'static str),
    /// The baseline is none of the designs.
    #[error("the baseline `{0}` is none of the designs")]
    Baseline(String),
}

impl Inputs {
    /// The bundled file: the deck's claims.
    ///
    /// # Panics
    /// Never: a test reads the same text.
    #[must_use]
    pub fn deck() -> Self {
        Self::parse(DECK).expect("the bundled inputs are whole")
    }

    /// The bundled file's text, for a user to begin from.
    #[must_use]
    pub fn deck_text() -> &'static str {
        DECK
    }

    /// Reads and checks a file's text.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let inputs: Self = toml::from_str(text).map_err(|fault| Fault::Toml(fault.to_string()))?;
        inputs.check()?;
        Ok(inputs)
    }

    fn check(&self) -> Result<(), Fault> {
        if self.schema != SCHEMA {
            return Err(Fault::Toml(format!(
                "schema `{}`; this reads {SCHEMA}",
                self.schema
            )));
        }
        for (known, given) in [(STORAGE, &self.inputs), (LINK, &self.link)] {
            // The link's inputs are for another command and may be left out, but not half of them.
            if std::ptr::eq(known, LINK) && given.is_empty() {
                continue;
            }
            if let Some(name) = known.iter().find(|name| !given.contains_key(**name)) {
                return Err(Fault::Missing((*name).into()));
            }
            if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
                return Err(Fault::Unknown(name.clone(), known.join(", ")));
            }
        }
        for (name, empty) in [
            ("processors", self.processors.is_empty()),
            ("designs", self.designs.is_empty()),
        ] {
            if empty {
                return Err(Fault::Empty(name));
            }
        }
        if self.baseline().is_none() {
            return Err(Fault::Baseline(self.baseline.clone()));
        }
        for (name, input) in self.all() {
            for value in [Some(input.value), input.low, input.high]
                .into_iter()
                .flatten()
            {
                number(&name, value)?;
            }
        }
        for processor in &self.processors {
            for (what, value) in [
                ("sockets", processor.sockets),
                ("threads", processor.threads),
            ] {
                positive(&format!("{}.{what}", processor.name), value)?;
            }
            for (what, value) in [
                ("watts_each", processor.watts_each),
                ("usd_each", processor.usd_each),
            ] {
                number(&format!("{}.{what}", processor.name), value)?;
            }
        }
        for design in &self.designs {
            for (what, value) in [
                ("unit_bytes", design.unit_bytes),
                ("granule_bytes", design.granule_bytes),
            ] {
                positive(&format!("{}.{what}", design.name), value)?;
            }
        }
        Ok(())
    }

    /// The design the others are compared with.
    #[must_use]
    pub fn baseline(&self) -> Option<usize> {
        self.designs
            .iter()
            .position(|design| design.name == self.baseline)
    }

    /// A storage input that [`Inputs::parse`] found there.
    pub(super) fn value(&self, name: &str) -> f64 {
        self.inputs[name].value
    }

    /// USD per GB of egress and per thread-hour; nothing where the file has no `[link]`.
    #[must_use]
    pub fn link_prices(&self) -> (f64, f64) {
        let of = |name: &str| self.link.get(name).map_or(0.0, |input| input.value);
        (of("egress_usd_per_gb"), of("core_usd_per_hour"))
    }

    /// Every input with its full name: those of designs as `design.input`, those of the link as `link.input`.
    pub fn all(&self) -> impl Iterator<Item = (String, &Input)> {
        let designs = self.designs.iter().flat_map(|design| {
            let inputs = [
                ("ratio", &design.ratio),
                ("pack_cpu_s_per_gb", &design.pack_cpu_s_per_gb),
                ("drive_price_factor", &design.drive_price_factor),
            ];
            inputs.map(|(name, input)| (format!("{}.{name}", design.name), input))
        });
        let link = self
            .link
            .iter()
            .map(|(name, input)| (format!("link.{name}"), input));
        self.inputs
            .iter()
            .map(|(name, input)| (name.clone(), input))
            .chain(designs)
            .chain(link)
    }

    /// Adds a design on plain drives that packs on the host as `row` of a bench was measured to, and gives the link its
    /// ratio and processor time. Its ratio is of chunks rounded to 4 KiB one by one; every copy is packed anew, as
    /// BlueStore does.
    ///
    /// # Errors
    /// [`Fault`] where the row lacks a number.
    pub fn measured(&mut self, row: &Row) -> Result<(), Fault> {
        let codec = row.case.codec.as_deref().unwrap_or("a codec");
        let of = |name: &str| {
            row.value(name)
                .ok_or_else(|| Fault::Missing(format!("{codec}: {name}")))
        };
        let chunk = row.case.chunk_bytes.unwrap_or(0);
        let source = format!(
            "measured by narrows bench on {}: {codec}, chunks of {}",
            row.case.data.as_deref().unwrap_or("data"),
            Size(chunk)
        );
        let input = |value: f64, unit: &str, source: &str| Input {
            value,
            unit: unit.into(),
            low: None,
            high: None,
            source: source.into(),
        };
        let (ratio, per_gb) = ("raw per packed byte", "thread-s per GB");
        self.designs.push(Design {
            name: format!("measured {codec}"),
            // The sum over chunks is rounded already.
            unit_bytes: 1e15,
            granule_bytes: 1.0,
            ratio: input(
                of("ratio_4k")?,
                ratio,
                &format!("{source}, each rounded up to 4 KiB"),
            ),
            pack_cpu_s_per_gb: input(
                of("pack_cpu_s_per_gb")?,
                per_gb,
                &format!("{source}, for each copy"),
            ),
            packs_each_copy: true,
            drive_price_factor: input(1.0, "price of a plain drive", "plain drives"),
        });
        for (name, value) in [
            ("ratio", "ratio"),
            ("pack_cpu_s_per_gb", "pack_cpu_s_per_gb"),
            ("unpack_cpu_s_per_gb", "unpack_cpu_s_per_gb"),
        ] {
            if let Some(held) = self.link.get_mut(name) {
                *held = input(of(value)?, &held.unit, &source);
            }
        }
        self.check()
    }

    /// Sets one input by its full name.
    ///
    /// # Errors
    /// [`Fault`] where there is no such input or the model cannot take the number.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), Fault> {
        number(name, value)?;
        let missing = || Fault::Missing(name.into());
        let input = if let Some(link) = name.strip_prefix("link.") {
            self.link.get_mut(link).ok_or_else(missing)?
        } else if let Some((design, what)) = name.rsplit_once('.') {
            let design = self
                .designs
                .iter_mut()
                .find(|held| held.name == design)
                .ok_or_else(missing)?;
            match what {
                "ratio" => &mut design.ratio,
                "pack_cpu_s_per_gb" => &mut design.pack_cpu_s_per_gb,
                "drive_price_factor" => &mut design.drive_price_factor,
                _ => return Err(missing()),
            }
        } else {
            self.inputs.get_mut(name).ok_or_else(missing)?
        };
        input.value = value;
        Ok(())
    }
}

impl Processor {
    /// USD of all.
    #[must_use]
    pub fn usd(&self) -> f64 {
        self.sockets * self.usd_each
    }

    /// W of all at full load.
    #[must_use]
    pub fn watts(&self) -> f64 {
        self.sockets * self.watts_each
    }
}

/// Inputs that may be nothing. All others are divided by, or absurd at zero.
fn may_be_zero(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.ends_with("cpu_s_per_gb") && last != "stack_cpu_s_per_gb"
        || last.ends_with("_usd")
        || last.starts_with("usd_")
        || last.contains("_usd_")
        || last.ends_with("_w")
        || ["drive_duty", "drive_afr", "watts_each", "usd_each"].contains(&last)
}

fn number(name: &str, value: f64) -> Result<(), Fault> {
    let fault = |why| {
        Err(Fault::Number {
            name: name.into(),
            value,
            why,
        })
    };
    match value {
        v if !(0.0..=1e15).contains(&v) => fault("it must be a number from 0 to 10^15"),
        0.0 if !may_be_zero(name) => fault("it must be above 0"),
        v if SHARES.contains(&name) && v > 1.0 => fault("it is a share, at most 1"),
        _ => Ok(()),
    }
}

fn positive(name: &str, value: f64) -> Result<(), Fault> {
    match value {
        v if v > 0.0 && v <= 1e15 => Ok(()),
        _ => Err(Fault::Number {
            name: name.into(),
            value,
            why: "it must be above 0",
        }),
    }
}

const SCHEMA: &str = "narrows.tco/1";
const SHARES: &[&str] = &["utilisation", "drive_duty", "cpu_load_max"];

const STORAGE: &[&str] = &[
    "years",
    "drives",
    "drive_tb",
    "drive_usd_per_tb",
    "drive_active_w",
    "drive_idle_w",
    "drive_duty",
    "drive_afr",
    "drive_service_usd",
    "dram_usd",
    "dram_w",
    "chassis_usd",
    "nic_usd",
    "base_w",
    "rack_usd",
    "servers_per_rack",
    "pue",
    "usd_per_kwh",
    "utilisation",
    "encoding",
    "replication",
    "io_gb_per_s",
    "cpu_load_max",
    "stack_cpu_s_per_gb",
    "demand_tb",
    "demand_gb_per_s",
];

const LINK: &[&str] = &[
    "tb_per_month",
    "rate_mbit_s",
    "ratio",
    "pack_cpu_s_per_gb",
    "unpack_cpu_s_per_gb",
    "egress_usd_per_gb",
    "core_usd_per_hour",
];

static DECK: &str = include_str!("../../tco/deck.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_input_has_a_source() {
        let deck = Inputs::deck();
        for (name, input) in deck.all() {
            assert!(input.source.len() > 6 && !input.unit.is_empty(), "{name}");
            let (low, high) = (
                input.low.unwrap_or(input.value),
                input.high.unwrap_or(input.value),
            );
            assert!(
                low <= input.value && input.value <= high,
                "{name}: {low} to {high}"
            );
        }
    }

    // Goal: no file makes the model divide by zero or say NaN. Method: spoil the bundled one in every way we know.
    #[test]
    fn spoiled_files_are_told_and_say_where() {
        for (from, to, said) in [
            ("years = { value = 5", "years = { value = 0", "years"),
            ("years = { value = 5", "years = { value = nan", "years"),
            ("years = { value = 5", "yeras = { value = 5", "years"),
            (
                "years = { value = 5",
                "colour = { value = 1, unit = \"\", source = \"\" }\nyears = { value = 5",
                "colour",
            ),
            (
                "utilisation = { value = 0.8",
                "utilisation = { value = 80",
                "share",
            ),
            ("threads = 128", "threads = 0", "6338.threads"),
            ("granule_bytes = 512", "granule_bytes = -1", "granule"),
            ("ratio = { value = 2.46", "ratio = { value = 0", "ratio"),
            (
                "baseline = \"zstd on the host\"",
                "baseline = \"x\"",
                "baseline",
            ),
            ("narrows.tco/1\"", "narrows.tco/2\"", "narrows.tco/1"),
            ("tb_per_month", "tb_per_year", "tb_per_month"),
        ] {
            assert!(DECK.contains(from), "{from}");
            let fault = Inputs::parse(&DECK.replacen(from, to, 1))
                .unwrap_err()
                .to_string();
            assert!(fault.contains(said), "{to}: {fault}");
        }
        assert!(matches!(Inputs::parse("years"), Err(Fault::Toml(_))));
    }

    // Goal: own results are a design like the others; doubling what packing takes shows in its bandwidth.
    #[test]
    fn measured_rows_become_a_design_and_the_links_numbers() {
        let case = crate::result::Case {
            codec: Some("zstd:1".into()),
            chunk_bytes: Some(65536),
            ..Default::default()
        };
        let row = Row::new(
            case,
            [
                ("ratio", 2.5),
                ("ratio_4k", 2.2),
                ("pack_cpu_s_per_gb", 4.0),
                ("unpack_cpu_s_per_gb", 1.0),
            ],
        );
        let mut deck = Inputs::deck();
        deck.measured(&row).unwrap();
        let costs = crate::tco::costs(&deck).unwrap();
        assert!(
            (costs[2].allocated_ratio - 2.2).abs() < 1e-6 && costs[2].design == "measured zstd:1"
        );
        assert!(
            (costs[2].gb_per_s - 128.0 * 0.93 / (10.25 + 8.0)).abs() < 1e-6,
            "{:?}",
            costs[2]
        );
        assert_eq!(
            (
                deck.link["ratio"].value,
                deck.link["pack_cpu_s_per_gb"].value
            ),
            (2.5, 4.0)
        );
        // Each of three copies is packed, whenever it is said that there are three.
        deck.set("replication", 3.0).unwrap();
        let costs = crate::tco::costs(&deck).unwrap();
        assert!(
            (costs[2].gb_per_s - 128.0 * 0.93 / (10.25 + 12.0)).abs() < 1e-6,
            "{:?}",
            costs[2]
        );
        assert_eq!(
            Inputs::deck().measured(&Row::new(Default::default(), [])),
            Err(Fault::Missing("a codec: ratio_4k".into()))
        );
    }

    #[test]
    fn inputs_are_set_by_their_full_names() {
        let mut deck = Inputs::deck();
        let names: Vec<_> = deck.all().map(|(name, _)| name).collect();
        for name in &names {
            deck.set(name, 0.5).unwrap();
        }
        assert!(deck.all().all(|(_, input)| input.value == 0.5));
        for name in [
            "colour",
            "link.colour",
            "nobody.ratio",
            "drives that compress.colour",
        ] {
            assert_eq!(deck.set(name, 1.0), Err(Fault::Missing(name.into())));
        }
    }
}
