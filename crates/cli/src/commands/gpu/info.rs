//! `narrows gpu info`

use narrows::Size;
use serde_json::json;

use super::Way;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub way: Way,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.way.variables()?.apply();
    let device = narrows_cuda::device().map_err(anyhow::Error::msg)?;
    let attribute = |id| {
        let found = device
            .attributes
            .iter()
            .find(|attribute| attribute.id == id);
        found.map_or(0, |attribute| attribute.value)
    };
    let (major, minor) = (attribute(75), attribute(76));
    let driver = device.driver_version;
    if args.json {
        return output::print(
            &json!({
                "schema": "narrows.gpu-info/1", "backend": device.backend, "device": device.name,
                "memory_bytes": device.memory, "driver_version": driver, "compute_capability": format!("{major}.{minor}"),
                "multiprocessors": attribute(16), "pci_bus_id": device.pci_bus_id,
            })
            .to_string(),
        );
    }
    output::print(&format!(
        "{}\n  back end            {}\n  memory              {}\n  compute capability  {major}.{minor}\n  \
         multiprocessors     {}\n  CUDA of the driver  {}.{}",
        device.name,
        device.backend,
        Size(device.memory),
        attribute(16),
        driver / 1000,
        driver % 1000 / 10,
    ))
}
