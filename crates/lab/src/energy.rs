//! Joules of the processor packages, where the kernel shows them (Intel and AMD RAPL through `powercap`).
//!
//! The counters are of whole packages, whoever uses them, and since 2020 only root may read them. Where they are not
//! readable there is no number: nothing here guesses one.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Reads the counters of all packages.
#[derive(Debug)]
pub struct Meter {
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    counter: PathBuf,
    /// Where the counter begins again, µJ.
    range_uj: u64,
    began_uj: u64,
}

/// Why there are no joules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// The kernel shows none: no such hardware, a virtual machine, no driver.
    #[error("absent: this machine shows no energy counters")]
    NoCounters,
    /// It shows them to root.
    #[error("absent: the energy counters may not be read; run as root")]
    NotReadable,
}

impl Meter {
    /// Begins to measure.
    ///
    /// # Errors
    /// [`Absent`].
    pub fn open() -> Result<Self, Absent> {
        Self::below(Path::new("/sys/class/powercap"))
    }

    fn below(dir: &Path) -> Result<Self, Absent> {
        let entries = fs::read_dir(dir).map_err(|_| Absent::NoCounters)?;
        // `intel-rapl:0` is a package (AMD's too), `intel-rapl:0:0` a part of it, which would count twice. Beside the
        // packages stands `psys`, the whole machine with them in it; so what a zone is, its name says.
        let is_package = |path: &PathBuf| {
            let zone = path.file_name().unwrap_or_default().to_string_lossy();
            zone.starts_with("intel-rapl:")
                && zone.matches(':').count() == 1
                && fs::read_to_string(path.join("name"))
                    .is_ok_and(|name| name.trim().starts_with("package"))
        };
        let names = entries.flatten().map(|entry| entry.path());
        let paths: Vec<_> = names.filter(is_package).collect();
        if paths.is_empty() {
            return Err(Absent::NoCounters);
        }
        let zone = |path: PathBuf| {
            let counter = path.join("energy_uj");
            let range_uj = number(&path.join("max_energy_range_uj"))?;
            let began_uj = number(&counter)?;
            Some(Zone {
                counter,
                range_uj,
                began_uj,
            })
        };
        let zones: Option<Vec<_>> = paths.into_iter().map(zone).collect();
        zones.map(|zones| Self { zones }).ok_or(Absent::NotReadable)
    }

    /// Joules of all packages since it was opened. Right as long as no counter goes round twice, some minutes at
    /// hundreds of watts.
    #[must_use]
    pub fn joules(&self) -> Option<f64> {
        let spent = |zone: &Zone| {
            let now = number(&zone.counter)?;
            let round = if now < zone.began_uj {
                zone.range_uj
            } else {
                0
            };
            Some((now + round).saturating_sub(zone.began_uj) as f64 / 1e6)
        };
        self.zones.iter().map(spent).sum()
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(dir: &Path, name: &str, uj: u64) {
        fs::create_dir_all(dir.join(name)).unwrap();
        let kind = match name {
            "intel-rapl:0:0" => "core",
            "intel-rapl:2" => "psys",
            "intel-rapl:3" => "dram",
            "intel-rapl:1" => "package-1-die-0",
            _ => "package-0",
        };
        fs::write(dir.join(name).join("name"), format!("{kind}\n")).unwrap();
        fs::write(dir.join(name).join("energy_uj"), format!("{uj}\n")).unwrap();
        fs::write(dir.join(name).join("max_energy_range_uj"), "1000000000\n").unwrap();
    }

    #[test]
    fn packages_are_summed_parts_and_the_whole_are_not_and_counters_go_round() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Meter::below(dir.path()).unwrap_err(), Absent::NoCounters);
        zone(dir.path(), "intel-rapl:0", 5_000_000);
        zone(dir.path(), "intel-rapl:1", 999_000_000);
        zone(dir.path(), "intel-rapl:0:0", 0);
        // The whole machine, and memory beside the packages.
        zone(dir.path(), "intel-rapl:2", 0);
        zone(dir.path(), "intel-rapl:3", 0);
        let meter = Meter::below(dir.path()).unwrap();
        zone(dir.path(), "intel-rapl:0", 7_500_000);
        zone(dir.path(), "intel-rapl:1", 1_000_000);
        zone(dir.path(), "intel-rapl:0:0", 900_000_000);
        zone(dir.path(), "intel-rapl:2", 900_000_000);
        zone(dir.path(), "intel-rapl:3", 900_000_000);
        assert_eq!(meter.joules(), Some(4.5));
        fs::remove_file(dir.path().join("intel-rapl:1/energy_uj")).unwrap();
        assert_eq!(meter.joules(), None);
        assert_eq!(Meter::below(dir.path()).unwrap_err(), Absent::NotReadable);
    }
}
