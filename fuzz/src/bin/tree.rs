//! A tree's bytes from anybody: read or refused, and what is read has one spelling.
#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use narrows_wire::tree::{Entry, Extent};

fuzz_target!(|data: &[u8]| {
    let mut from = data;
    while let Ok(entry) = read(
        &mut from,
        |from| Entry::read(from),
        |entry: &Entry, out| entry.write(out),
    ) {
        match entry {
            Entry::File(_) | Entry::Content(..) => loop {
                match read(
                    &mut from,
                    |from| Extent::read(from),
                    |extent: &Extent, out| extent.write(out),
                ) {
                    Ok(Extent::Data(len)) => {
                        let mut content = Vec::new();
                        let _ = (&mut from).take(len.into()).read_to_end(&mut content);
                        if content.len() < len as usize {
                            return;
                        }
                    }
                    Ok(Extent::Hole(_)) => {}
                    Ok(Extent::End | Extent::Abandoned) => break,
                    Err(_) => return,
                }
            },
            Entry::End(_) => return,
            Entry::Dir(_)
            | Entry::Link(..)
            | Entry::Offer(..)
            | Entry::Withdrawn
            | Entry::Extras(_)
            | Entry::HardLink(..)
            | Entry::LeftOut(_) => {}
        }
    }
});

fn read<T>(
    from: &mut &[u8],
    read: impl FnOnce(&mut &[u8]) -> std::io::Result<T>,
    write: impl FnOnce(&T, &mut Vec<u8>),
) -> std::io::Result<T> {
    let before = *from;
    let value = read(from)?;
    let mut again = Vec::new();
    write(&value, &mut again);
    assert_eq!(again, before[..before.len() - from.len()]);
    Ok(value)
}
