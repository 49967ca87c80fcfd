//! `huffman`: a length, two bytes; the number of symbols less one; each symbol and its count, two bytes, rarest first;
//! then codes, highest bit first. The tree follows from the counts: the two lightest nodes become one, the first of
//! equal ones going first, leaves before what was made of them; the first is 0.

use super::counts;
use crate::step::{BETWEEN_MAX, PageError};

const SYMBOLS_MAX: usize = 200;
const CODE_MAX: u32 = 24;

/// A leaf has no children.
#[derive(Clone, Copy)]
struct Node {
    weight: u32,
    children: [usize; 2],
}

/// The nodes of the tree over symbols of these counts, rarest first: leaves, then inner nodes, the root last.
fn tree(weights: impl Iterator<Item = u32>) -> Vec<Node> {
    let mut nodes: Vec<Node> = weights
        .map(|weight| Node {
            weight,
            children: [usize::MAX; 2],
        })
        .collect();
    let leaves = nodes.len();
    let (mut leaf, mut inner) = (0, leaves);
    while nodes.len() + 1 < 2 * leaves {
        let children = [0; 2].map(|_: usize| {
            let is_leaf = leaf < leaves
                && (inner == nodes.len() || nodes[leaf].weight <= nodes[inner].weight);
            let next = if is_leaf { &mut leaf } else { &mut inner };
            *next += 1;
            *next - 1
        });
        nodes.push(Node {
            weight: children.iter().map(|&child| nodes[child].weight).sum(),
            children,
        });
    }
    nodes
}

pub(super) fn pack(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let counts = counts(raw);
    let mut symbols: Vec<u8> = (0..=255)
        .filter(|&symbol| counts[usize::from(symbol)] > 0)
        .collect();
    if symbols.is_empty() || symbols.len() > SYMBOLS_MAX {
        return None;
    }
    symbols.sort_by_key(|&symbol| counts[usize::from(symbol)]);
    out.extend_from_slice(&u16::try_from(raw.len()).ok()?.to_le_bytes());
    out.push((symbols.len() - 1) as u8);
    for &symbol in &symbols {
        out.push(symbol);
        out.extend_from_slice(&(counts[usize::from(symbol)] as u16).to_le_bytes());
    }
    let nodes = tree(
        symbols
            .iter()
            .map(|&symbol| counts[usize::from(symbol)] as u32),
    );
    let mut codes = vec![(0u32, 0u32); nodes.len()];
    for n in (symbols.len()..nodes.len()).rev() {
        let (code, len) = codes[n];
        for (bit, &child) in nodes[n].children.iter().enumerate() {
            codes[child] = (code << 1 | bit as u32, len + 1);
        }
    }
    if codes.iter().any(|&(_, len)| len > CODE_MAX) {
        return None;
    }
    let mut of_symbol = [(0, 0); 256];
    symbols
        .iter()
        .zip(&codes)
        .for_each(|(&symbol, &code)| of_symbol[usize::from(symbol)] = code);
    let (mut held, mut fill) = (0u64, 0);
    for &byte in raw {
        let (code, len) = of_symbol[usize::from(byte)];
        held = held << len | u64::from(code);
        fill += len;
        while fill >= 8 {
            fill -= 8;
            out.push((held >> fill) as u8);
        }
    }
    if fill > 0 {
        out.push((held << (8 - fill)) as u8);
    }
    Some(())
}

pub(super) fn unpack(packed: &[u8], out: &mut Vec<u8>) -> Result<(), PageError> {
    const SHORT: PageError = PageError::Corrupt("huffman is cut short");
    let (&[low, high, symbols], rest) = packed.split_first_chunk::<3>().ok_or(SHORT)?;
    let len = usize::from(u16::from_le_bytes([low, high]));
    let (symbols, bytes) = rest
        .split_at_checked(3 * (usize::from(symbols) + 1))
        .ok_or(SHORT)?;
    let symbols = symbols.as_chunks::<3>().0;
    if len > BETWEEN_MAX || symbols.len() > SYMBOLS_MAX {
        return Err(PageError::Corrupt("huffman of too many bytes or symbols"));
    }
    let nodes = tree(
        symbols
            .iter()
            .map(|[_, low, high]| u32::from(u16::from_le_bytes([*low, *high]))),
    );
    let mut bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| usize::from(byte >> bit & 1)));
    while out.len() < len {
        let mut at = nodes.len() - 1;
        while at >= symbols.len() {
            at = nodes[at].children[bits.next().ok_or(SHORT)?];
        }
        out.push(symbols[at][0]);
    }
    Ok(())
}
