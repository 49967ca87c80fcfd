//! `narrows keys`

use std::path::PathBuf;

use narrows_io::secure::keys::{Request, generate, is_server_name};

use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the files; made if absent, nothing in it is overwritten
    pub dir: PathBuf,
    /// Names and addresses under which the receiver is reached
    #[arg(long = "host", value_name = "NAME", value_parser = host)]
    pub hosts: Vec<String>,
}

fn host(text: &str) -> Result<String, String> {
    is_server_name(text)
        .then(|| text.into())
        .ok_or_else(|| "not a host name or an address".into())
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let request = Request {
        server_names: &args.hosts,
        ..Request::default()
    };
    for path in generate(&args.dir, &request)? {
        output::print(&path.display().to_string())?;
    }
    Ok(())
}
