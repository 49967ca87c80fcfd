//! The kernel's compressed RAM device beside the rest, where there is one that nobody uses.
//!
//! Pages go through the block layer one by one with direct I/O, so a page costs two system calls that the others do
//! not have: what a program gets from it, not what its codec could do. The device is reset before and after.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::Instant,
};

use narrows_chains::PAGE;
use rustix::fs::OFlags;

use super::{Measured, Page, PagesError};

const DEVICE: &str = "/dev/zram0";
const SYSFS: &str = "/sys/block/zram0";

/// Direct I/O wants it so.
#[repr(align(4096))]
struct Aligned(Page);

/// One result for each algorithm the device offers.
pub(super) fn race(pages: &[Page]) -> Result<Vec<Measured>, PagesError> {
    if !Path::new(SYSFS).exists() {
        return Err(PagesError::Zram(
            "there is none; load the module zram".into(),
        ));
    }
    if read("initstate")? != "0" {
        return Err(PagesError::Zram("it is in use".into()));
    }
    let offered = read("comp_algorithm")?;
    let names = offered
        .split_whitespace()
        .map(|name| name.trim_matches(['[', ']']).to_owned());
    names.map(|algorithm| with(&algorithm, pages)).collect()
}

fn with(algorithm: &str, pages: &[Page]) -> Result<Measured, PagesError> {
    write("comp_algorithm", algorithm)?;
    write("disksize", &(pages.len() * PAGE).to_string())?;
    let measured = timed(algorithm, pages);
    write("reset", "1")?;
    measured
}

fn timed(algorithm: &str, pages: &[Page]) -> Result<Measured, PagesError> {
    let flags = (OFlags::DIRECT | OFlags::EXCL).bits() as i32;
    let device: File = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(DEVICE)
        .map_err(fault)?;
    let mut buffer = Box::new(Aligned([0; PAGE]));
    let mut write_all = || -> Result<u128, PagesError> {
        let start = Instant::now();
        for (page, n) in pages.iter().zip(0..) {
            buffer.0 = *page;
            device
                .write_all_at(&buffer.0, n * PAGE as u64)
                .map_err(fault)?;
        }
        Ok(start.elapsed().as_nanos())
    };
    // The first write of a page also allocates what a rewrite has, so the second counts.
    write_all()?;
    let pack_ns = write_all()?;
    let start = Instant::now();
    for n in 0..pages.len() as u64 {
        device
            .read_exact_at(&mut buffer.0, n * PAGE as u64)
            .map_err(fault)?;
    }
    let unpack_ns = start.elapsed().as_nanos();
    let stat = read("mm_stat")?;
    let stored = stat
        .split_whitespace()
        .nth(1)
        .and_then(|bytes| bytes.parse::<f64>().ok());
    let stored = stored.ok_or_else(|| PagesError::Zram(format!("mm_stat says {stat}")))?;
    let raw = (pages.len() * PAGE) as f64;
    let speed = |ns: u128| raw * 1000.0 / ns.max(1) as f64;
    Ok(Measured::new(
        &format!("zram {algorithm}"),
        raw,
        stored,
        speed(pack_ns),
        speed(unpack_ns),
    ))
}

fn read(name: &str) -> Result<String, PagesError> {
    fs::read_to_string(format!("{SYSFS}/{name}"))
        .map(|text| text.trim().to_owned())
        .map_err(fault)
}

fn write(name: &str, value: &str) -> Result<(), PagesError> {
    fs::write(format!("{SYSFS}/{name}"), value)
        .map_err(|source| PagesError::Zram(format!("{name}: {source}")))
}

fn fault(source: std::io::Error) -> PagesError {
    PagesError::Zram(source.to_string())
}
