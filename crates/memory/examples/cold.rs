//! What files take in a store: `cold PROFILE FILE…`. Prints, of each and of all together, the ratio of packed bytes as
//! they were written, of memory used, and both again after the keeper packed everything as cold; and the keeper's
//! seconds.

use std::{env, fs, path::Path, sync::Arc, time::Instant};

use narrows_chains::Chains;
use narrows_core::BlockDevice;
use narrows_io::helper_pool::HelperPool;
use narrows_memory::{Budget, Profile, RecompressorConfig, Store, StoreConfig, recompressor};

/// Rounds after which nothing changes: one sees what is idle, one packs, one makes clusters.
const ROUNDS: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = env::args().skip(1);
    let profile = match args.next().as_deref() {
        Some("fast") => Profile::Fast,
        Some("dense") => Profile::Dense,
        Some("balanced") => Profile::Balanced,
        Some("ratio") => Profile::Ratio,
        _ => return Err("usage: cold fast|dense|balanced|ratio FILE…".into()),
    };
    println!(
        "{:28}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "", "packed", "used", "packed", "used", "s"
    );
    let mut all = Vec::new();
    for path in args {
        let bytes = fs::read(&path)?;
        let name = Path::new(&path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        line(&name, profile, &bytes)?;
        all.extend_from_slice(&bytes[..bytes.len() / 4096 * 4096]);
    }
    line("together", profile, &all)?;
    Ok(())
}

fn line(name: &str, profile: Profile, bytes: &[u8]) -> std::io::Result<()> {
    let bytes = &bytes[..bytes.len() / 4096 * 4096];
    let store = Store::new(StoreConfig {
        size: 1 << 30,
        profile,
        chains: Chains::default(),
        budget: Arc::new(Budget::new(None)),
        backing: None,
        helpers: Arc::new(HelperPool::new("crew", 0)?),
    })?;
    store.write(0, bytes, false).expect("room");
    let ratios = || {
        let stat = store.stat().mm_stat;
        [stat.compr_data_size, stat.mem_used_total].map(|len| bytes.len() as f64 / len as f64)
    };
    let fresh = ratios();
    let config = RecompressorConfig {
        idle_after: std::time::Duration::ZERO,
        recompress: true,
        chains: Chains::default(),
    };
    let began = Instant::now();
    for _ in 0..ROUNDS {
        recompressor::round(&store, &config);
    }
    let seconds = began.elapsed().as_secs_f64();
    let cold = ratios();
    println!(
        "{name:28}{:8.3}{:8.3}{:8.3}{:8.3}{seconds:8.1}",
        fresh[0], fresh[1], cold[0], cold[1]
    );
    Ok(())
}
