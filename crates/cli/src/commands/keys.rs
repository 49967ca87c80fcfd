//! `narrows keys`

use std::path::PathBuf;

use narrows_io::secure::keys::{Request, generate, is_server_name};

use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the files; made if absent, nothing in it is overwritten
    pub dir: PathBuf,
    /// Name or address under which the receiver is reached, beside localhost; may be given more than once
    #[arg(long = "host", value_name = "NAME", value_parser = host)]
    pub hosts: Vec<String>,
    /// For a further host: sign with the authority in this directory, which `narrows keys` made with its ca-key.pem, and
    /// take its pre-shared key
    #[arg(long, value_name = "DIR")]
    pub authority: Option<PathBuf>,
    /// Name in the client's certificate, for --allow of servers, and user of the pre-shared key
    #[arg(long, value_name = "NAME", value_parser = client)]
    pub client: Option<String>,
}

fn host(text: &str) -> Result<String, String> {
    is_server_name(text)
        .then(|| text.into())
        .ok_or_else(|| "not a host name or an address".into())
}

fn client(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    (!text.is_empty() && text.len() <= 64 && text.chars().all(plain))
        .then(|| text.into())
        .ok_or_else(|| "not a name of letters, digits and -_.@".into())
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let request = Request {
        server_names: &args.hosts,
        client: args.client.as_deref().unwrap_or("narrows client"),
        psk_user: args.client.as_deref().unwrap_or("narrows"),
        authority: args.authority.as_deref(),
        ..Request::default()
    };
    for path in generate(&args.dir, &request)? {
        output::print(&path.display().to_string())?;
    }
    Ok(())
}
