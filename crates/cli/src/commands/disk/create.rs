//! `narrows disk create`

use std::path::PathBuf;

use narrows_core::units::Size;
use narrows_disk::{Creation, Provision};
use serde_json::json;

use super::{ProfileName, of_make, size};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// File, block device, or `rbd:POOL/IMAGE[:id=USER][:conf=FILE]`; a file or image is made where there is none
    #[arg(long, value_name = "BACKING")]
    pub backing: PathBuf,
    /// Size of the device: 512M, 100G
    #[arg(long)]
    pub size: Size,
    /// Bytes of a new backing; enough for data that does not pack if not given. It takes room only as it is written
    #[arg(long, value_name = "SIZE")]
    pub physical: Option<Size>,
    /// Whether the device may be larger than what the backing surely holds
    #[arg(long, value_enum, default_value_t)]
    pub provision: ProvisionName,
    /// How hard to compress, unless `serve` says otherwise
    #[arg(long, value_enum, default_value = "balanced")]
    pub profile: ProfileName,
    /// Length of segments, 64K to 16M; by the backing's length if not given
    #[arg(long, value_name = "SIZE")]
    pub segment: Option<Size>,
    /// Overwrite what is there
    #[arg(long)]
    pub force: bool,
    /// Print what was made as JSON
    #[arg(long)]
    pub json: bool,
}

/// Whether a device may promise more than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ProvisionName {
    /// Yes: watch how full it is
    #[default]
    Thin,
    /// No: even data that does not pack fits
    Guaranteed,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    let mut creation = Creation::new(args.size.0)
        .profile(args.profile.into())
        .provision(match args.provision {
            ProvisionName::Thin => Provision::Thin,
            ProvisionName::Guaranteed => Provision::Guaranteed,
        })
        .force(args.force);
    if let Some(segment) = args.segment {
        // Longer than any segment may be is refused with the bounds.
        creation = creation.segment_len(u32::try_from(segment.0).unwrap_or(u32::MAX));
    }
    let physical = args.physical.map(|size| size.0);
    let made = narrows_disk::make(&args.backing, physical, &creation).map_err(of_make)?;
    if args.json {
        let document = json!({
            "schema": "narrows.disk-create/1", "backing": made.backing, "size": made.logical,
            "physical_bytes": made.physical,
        });
        return output::print(&document.to_string());
    }
    if !quiet {
        let (device, physical) = (size(made.logical), size(made.physical));
        crate::log::tell!("made a device of {device} on {}, {physical}", made.backing);
        crate::log::tell!(
            "to serve it: narrows disk serve --backing {}",
            args.backing.display()
        );
    }
    Ok(())
}
