//! `rle`: a control byte, and if its highest bit is set one byte to repeat, else bytes as they are, in both cases as
//! many as its other bits say, and one.

use crate::step::{BETWEEN_MAX, PageError};

const MOST: usize = 128;
/// A run of two among literals would save nothing.
const RUN_MIN: usize = 3;

pub(super) fn pack(raw: &[u8], out: &mut Vec<u8>) {
    let mut literals = 0;
    let mut at = 0;
    while at < raw.len() {
        let run = raw[at..]
            .iter()
            .take(MOST)
            .take_while(|&&byte| byte == raw[at])
            .count();
        if run < RUN_MIN && !(run == 2 && literals == at) {
            at += run;
            continue;
        }
        put_literals(&raw[literals..at], out);
        out.extend_from_slice(&[0x80 | (run - 1) as u8, raw[at]]);
        at += run;
        literals = at;
    }
    put_literals(&raw[literals..], out);
}

fn put_literals(bytes: &[u8], out: &mut Vec<u8>) {
    for bytes in bytes.chunks(MOST) {
        out.push((bytes.len() - 1) as u8);
        out.extend_from_slice(bytes);
    }
}

pub(super) fn unpack(mut packed: &[u8], out: &mut Vec<u8>) -> Result<(), PageError> {
    const SHORT: PageError = PageError::Corrupt("rle is cut short");
    while let Some((&control, rest)) = packed.split_first() {
        let len = usize::from(control & 0x7f) + 1;
        if out.len() + len > BETWEEN_MAX {
            return Err(PageError::Corrupt("rle of too many bytes"));
        }
        if control & 0x80 != 0 {
            let (&byte, rest) = rest.split_first().ok_or(SHORT)?;
            out.resize(out.len() + len, byte);
            packed = rest;
        } else {
            let (bytes, rest) = rest.split_at_checked(len).ok_or(SHORT)?;
            out.extend_from_slice(bytes);
            packed = rest;
        }
    }
    Ok(())
}
