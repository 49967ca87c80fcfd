//! `narrows gen`

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal, Write},
};

use anyhow::Context;
use narrows_lab::synthetic;

use crate::{
    args::Gen,
    exit::{OutputClosed, Usage},
};

pub fn run(args: &Gen) -> anyhow::Result<()> {
    let (mut out, to): (Box<dyn Write>, _) = match &args.output {
        Some(path) => {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            (Box::new(file), path.display().to_string())
        }
        None if io::stdout().is_terminal() => {
            return Err(Usage("standard output is a terminal; redirect it, or name a file with -o".into()).into());
        }
        None => (Box::new(BufWriter::new(io::stdout().lock())), "the output".into()),
    };
    let written = synthetic::write(args.kind, args.size.0, args.seed, &mut out).and_then(|()| out.flush());
    written.map_err(|fault| match fault.kind() {
        io::ErrorKind::BrokenPipe => anyhow::Error::new(OutputClosed),
        _ => anyhow::Error::new(fault).context(format!("cannot write {to}")),
    })
}
