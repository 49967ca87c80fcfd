//! Writes first inputs for the fuzz target of chains, a packed page of every chain and kind of data: `chain_seeds DIR`.

use std::{env, fs, io, path::Path};

use narrows_chains::{Chain, PAGE, chain::Scratch, zbewalgo::Zbewalgo};
use narrows_testkit::data::{KINDS, make};

fn main() -> io::Result<()> {
    let dir = env::args()
        .nth(1)
        .ok_or_else(|| io::Error::other("chain_seeds DIR"))?;
    fs::create_dir_all(&dir)?;
    // The first byte says what is done with the rest.
    let put = |name: String, how: u8, bytes: &[u8]| {
        fs::write(Path::new(&dir).join(name), [&[how], bytes].concat())
    };
    let scratch = &mut Scratch::default();
    for kind in KINDS {
        let page: [u8; PAGE] = make(kind, PAGE, 1).try_into().expect("a page");
        let mut packed = [0; PAGE];
        for chain in Chain::builtins() {
            if let Some(len) = chain.pack(&page, &mut packed, scratch) {
                put(format!("{chain}-{kind:?}"), 0, &packed[..len])?;
            }
        }
        if let Some(len) = Zbewalgo::default().pack(&page, &mut packed) {
            put(format!("zbewalgo-{kind:?}"), 4, &packed[..len])?;
        }
        put(format!("page-{kind:?}"), 7, &page[..512])?;
    }
    Ok(())
}
