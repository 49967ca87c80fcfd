//! `bewalgo` and `bewalgo2`: repeats of aligned 8-byte words.
//!
//! `bewalgo`: a length, two bytes; then blocks of two sequences, each one byte for the number of literal words, one for
//! that of matching words and two for the distance to these, in words; behind both, the literals of both; at the end
//! what is left of a word. A last block may have an empty second sequence.
//!
//! `bewalgo2`: the offset of the dictionary and a length, two bytes each; tokens of two bytes; the dictionary; what is
//! left of a word. Tokens tell the words from the last to the first: `index << 7 | count` repeats one word of the
//! dictionary, `index << 7 | 64 | count` takes as many words from there on. The dictionary is in order of first
//! appearance, from the last word.

use std::collections::HashMap;

use crate::step::{BETWEEN_MAX, PageError};

/// One sequence: literal words, matching words, distance.
type Sequence = (usize, usize, usize);

pub(super) fn pack_matches(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (words, tail) = raw.as_chunks::<8>();
    let mut sequences: Vec<Sequence> = vec![];
    let mut table = [usize::MAX; 4096];
    let (mut at, mut literals, mut misses) = (0, 0, 0);
    while at < words.len() {
        let hash =
            (u64::from_le_bytes(words[at]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        let before = std::mem::replace(&mut table[hash], at);
        if before == usize::MAX || words[before] != words[at] {
            // Steps widen where nothing matches, as in LZ4.
            misses += 1;
            at += 1 + (misses >> 6);
            continue;
        }
        misses = 0;
        let matching = words[at..]
            .iter()
            .zip(&words[before..])
            .take_while(|(a, b)| a == b)
            .count();
        push(&mut sequences, at - literals, matching, at - before);
        at += matching;
        literals = at;
    }
    push(&mut sequences, words.len() - literals, 0, 0);
    out.extend_from_slice(&u16::try_from(raw.len()).ok()?.to_le_bytes());
    let mut from = 0;
    for pair in sequences.chunks(2) {
        for n in 0..2 {
            let (literals, matching, distance) = pair.get(n).copied().unwrap_or_default();
            out.extend_from_slice(&[literals as u8, matching as u8]);
            out.extend_from_slice(&(distance as u16).to_le_bytes());
        }
        for &(literals, matching, _) in pair {
            out.extend_from_slice(words[from..from + literals].as_flattened());
            from += literals + matching;
        }
    }
    out.extend_from_slice(tail);
    Some(())
}

/// Adds a sequence, cut where a number is above 255.
fn push(sequences: &mut Vec<Sequence>, mut literals: usize, mut matching: usize, distance: usize) {
    while literals > 255 {
        sequences.push((255, 0, 0));
        literals -= 255;
    }
    while matching > 255 {
        sequences.push((literals, 255, distance));
        literals = 0;
        matching -= 255;
    }
    if literals + matching > 0 {
        sequences.push((literals, matching, distance));
    }
}

pub(super) fn unpack_matches(packed: &[u8], out: &mut Vec<u8>) -> Result<(), PageError> {
    const SHORT: PageError = PageError::Corrupt("bewalgo is cut short");
    let (len, mut rest) = packed.split_first_chunk::<2>().ok_or(SHORT)?;
    let len = usize::from(u16::from_le_bytes(*len));
    if len > BETWEEN_MAX {
        return Err(PageError::Corrupt("bewalgo of too many bytes"));
    }
    let whole = len / 8 * 8;
    while out.len() < whole {
        let (&[l1, m1, a1, b1, l2, m2, a2, b2], data) =
            rest.split_first_chunk::<8>().ok_or(SHORT)?;
        rest = data;
        for (literals, matching, distance) in [(l1, m1, [a1, b1]), (l2, m2, [a2, b2])] {
            let (bytes, data) = rest
                .split_at_checked(8 * usize::from(literals))
                .ok_or(SHORT)?;
            rest = data;
            out.extend_from_slice(bytes);
            let distance = 8 * usize::from(u16::from_le_bytes(distance));
            let matching = 8 * usize::from(matching);
            if out.len() + matching > whole
                || (matching > 0 && (distance == 0 || distance > out.len()))
            {
                return Err(PageError::Corrupt("bewalgo matches outside the page"));
            }
            for _ in 0..matching {
                out.push(out[out.len() - distance]);
            }
        }
        // An empty block would go round for ever.
        if l1 | m1 | l2 | m2 == 0 {
            return Err(PageError::Corrupt("bewalgo with an empty block"));
        }
    }
    if rest.len() != len % 8 {
        return Err(PageError::Corrupt("bewalgo of another length"));
    }
    out.extend_from_slice(rest);
    Ok(())
}

const WORDS_MAX: usize = 402;
const COUNT_MAX: usize = 63;
const SEVERAL: u16 = 1 << 6;

pub(super) fn pack_dictionary(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (words, tail) = raw.as_chunks::<8>();
    if looks_diverse(words) {
        return None;
    }
    let mut places: HashMap<[u8; 8], usize> = HashMap::new();
    let mut dictionary = vec![];
    let mut tokens: Vec<u16> = vec![];
    let indices: Vec<usize> = words
        .iter()
        .rev()
        .map(|word| {
            *places.entry(*word).or_insert_with(|| {
                dictionary.push(*word);
                dictionary.len() - 1
            })
        })
        .collect();
    if dictionary.len() > WORDS_MAX {
        return None;
    }
    let mut at = 0;
    while at < indices.len() {
        let rest = &indices[at..];
        let same = rest
            .iter()
            .take(COUNT_MAX)
            .take_while(|&&index| index == rest[0])
            .count();
        let row = rest
            .iter()
            .take(COUNT_MAX)
            .zip(rest[0]..)
            .take_while(|(index, next)| *index == next)
            .count();
        let token = (rest[0] as u16) << 7;
        if row > same {
            tokens.push(token | SEVERAL | row as u16);
        } else {
            tokens.push(token | same as u16);
        }
        at += same.max(row);
    }
    let offset = u16::try_from(4 + 2 * tokens.len()).ok()?;
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&u16::try_from(raw.len()).ok()?.to_le_bytes());
    tokens
        .iter()
        .for_each(|token| out.extend_from_slice(&token.to_le_bytes()));
    out.extend_from_slice(dictionary.as_flattened());
    out.extend_from_slice(tail);
    Some(())
}

/// Whether most of 10, 20 or 30 words are different.
fn looks_diverse(words: &[[u8; 8]]) -> bool {
    let step = (words.len() / 30).max(1);
    let mut seen = vec![];
    for (n, word) in words.iter().step_by(step).take(30).enumerate() {
        if !seen.contains(word) {
            seen.push(*word);
        }
        if matches!((n + 1, seen.len()), (10, 6..) | (20, 13..) | (30, 21..)) {
            return true;
        }
    }
    false
}

pub(super) fn unpack_dictionary(packed: &[u8], out: &mut Vec<u8>) -> Result<(), PageError> {
    const SHORT: PageError = PageError::Corrupt("bewalgo2 is cut short");
    let (&[a, b, c, d], _) = packed.split_first_chunk::<4>().ok_or(SHORT)?;
    let (offset, len) = (
        usize::from(u16::from_le_bytes([a, b])),
        usize::from(u16::from_le_bytes([c, d])),
    );
    if len > BETWEEN_MAX {
        return Err(PageError::Corrupt("bewalgo2 of too many bytes"));
    }
    let tokens = packed.get(4..offset).ok_or(SHORT)?.as_chunks::<2>().0;
    let rest = packed.get(offset..).ok_or(SHORT)?;
    let (dictionary, tail) = rest
        .split_at_checked(rest.len().checked_sub(len % 8).ok_or(SHORT)?)
        .ok_or(SHORT)?;
    let dictionary = dictionary.as_chunks::<8>().0;
    out.resize(len, 0);
    let (words, to) = out.as_chunks_mut::<8>();
    to.copy_from_slice(tail);
    let mut words = words.iter_mut().rev();
    for token in tokens {
        let token = u16::from_le_bytes(*token);
        let index = usize::from(token >> 7);
        for n in 0..usize::from(token & (SEVERAL - 1)) {
            let word = dictionary.get(if token & SEVERAL == 0 {
                index
            } else {
                index + n
            });
            *words
                .next()
                .ok_or(PageError::Corrupt("bewalgo2 of too many words"))? = *word.ok_or(SHORT)?;
        }
    }
    if words.next().is_none() {
        Ok(())
    } else {
        Err(SHORT)
    }
}
