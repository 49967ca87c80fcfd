//! Lines of a QEMU's control socket, and documents of a migration's peer, from anybody: read or refused, in any pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_migrate::{control, qmp::Qmp};

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let whole = messages(&mut Qmp::default(), [data]);
    let pieces = messages(&mut Qmp::default(), data.chunks(usize::from(first) + 1));
    assert_eq!(whole, pieces, "pieces change what is read");
    if let Ok(message) = serde_json::from_slice::<control::Message>(data) {
        let again = serde_json::to_vec(&message).unwrap();
        assert_eq!(
            serde_json::from_slice::<control::Message>(&again).unwrap(),
            message
        );
    }
});

/// All that can be read until the first line that is none.
fn messages<'a>(qmp: &mut Qmp, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut found = Vec::new();
    for piece in pieces {
        qmp.feed(piece);
        loop {
            match qmp.message() {
                Ok(Some(message)) => found.push(format!("{message:?}")),
                Ok(None) => break,
                Err(fault) => {
                    found.push(fault.to_string());
                    return found;
                }
            }
        }
    }
    found
}
