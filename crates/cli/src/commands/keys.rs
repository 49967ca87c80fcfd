//! `narrows keys`

use std::path::PathBuf;

use narrows::io::secure::keys::{Request, generate};

use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the files; made if absent, nothing in it is overwritten
    pub dir: PathBuf,
    /// Names and addresses under which the receiver is reached
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let request = Request { server_names: &args.hosts, ..Request::default() };
    for path in generate(&args.dir, &request)? {
        output::print(&path.display().to_string())?;
    }
    Ok(())
}
