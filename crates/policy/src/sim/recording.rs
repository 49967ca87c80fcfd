//! What every candidate really cost on every block of real data, so that a policy can be run on it without the noise of
//! a machine. `narrows-lab`'s example `replay` makes and runs them. Units: [`Cost`], bytes.

use crate::{offers::Offer, prior::PriorCost};

/// Real data and its costs.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Whole blocks, and [`AHEAD`] bytes of the start again, so that any chunk can be looked at.
    pub bytes: Vec<u8>,
    /// Costs of each block as a chunk, in the order of the offers.
    pub chunks: Vec<Vec<PriorCost>>,
    /// Costs of the slice that an audition takes of each block.
    pub slices: Vec<Vec<PriorCost>>,
}

/// The name of a candidate in a recording.
#[must_use]
pub fn recorded_name(offer: &Offer) -> String {
    let candidate = offer.candidate;
    let history = match candidate.history_len {
        0 => String::new(),
        len => format!("h{}", len >> 10),
    };
    format!("{}:{}{history}", offer.name, candidate.level)
}

/// What is measured as one, in bytes.
pub const BLOCK_LEN: usize = 256 << 10;
/// The longest chunk.
pub const AHEAD: usize = 1 << 20;

impl Recording {
    /// Puts together what `replay record` of `narrows-lab` wrote: the data, and lines of block, candidate ([`recorded_name`]), length, packed
    /// share, packing and unpacking time. Candidates that are not offered are left out.
    ///
    /// # Errors
    /// A line that is not of this form.
    pub fn parse(mut bytes: Vec<u8>, costs: &str, offers: &[Offer]) -> Result<Self, String> {
        let vacant = vec![vec![PriorCost::RAW; offers.len()]; bytes.len() / BLOCK_LEN];
        let (mut chunks, mut slices) = (vacant.clone(), vacant);
        let names: Vec<String> = offers.iter().map(recorded_name).collect();
        for line in costs.lines() {
            let wrong = || format!("not a line of a recording: {line}");
            let fields: Vec<&str> = line.split(' ').collect();
            let &[block, candidate, len, size, pack, unpack] = &fields[..] else {
                return Err(wrong());
            };
            let number = |text: &str| text.parse::<f32>().map_err(|_| wrong());
            let cost = PriorCost {
                size: number(size)?,
                pack: number(pack)?,
                unpack: number(unpack)?,
            };
            let Some(index) = names.iter().position(|name| name == candidate) else {
                continue;
            };
            let to = if len == BLOCK_LEN.to_string() {
                &mut chunks
            } else {
                &mut slices
            };
            let row = block
                .parse()
                .ok()
                .and_then(|block: usize| to.get_mut(block))
                .ok_or_else(wrong)?;
            row[index] = if index == 0 { PriorCost::RAW } else { cost };
        }
        bytes.truncate(chunks.len() * BLOCK_LEN);
        while bytes.len() < chunks.len() * BLOCK_LEN + AHEAD && !bytes.is_empty() {
            bytes.extend_from_within(..AHEAD.min(bytes.len()));
        }
        Ok(Self {
            bytes,
            chunks,
            slices,
        })
    }

    /// The same data from a block on, what comes before it at the end.
    #[must_use]
    pub fn from_block(&self, block: usize) -> Self {
        let mut rotated = self.clone();
        rotated.bytes.truncate(self.chunks.len() * BLOCK_LEN);
        rotated.bytes.rotate_left(block * BLOCK_LEN);
        rotated
            .bytes
            .extend_from_within(..AHEAD.min(rotated.bytes.len()));
        rotated.chunks.rotate_left(block);
        rotated.slices.rotate_left(block);
        rotated
    }

    /// The bytes at an offset into the endlessly repeated data.
    #[must_use]
    pub fn bytes_at(&self, offset: u64, len: usize) -> &[u8] {
        let start = self.place(offset);
        &self.bytes[start..start + len]
    }

    /// What `index` costs on the chunk of `len` bytes at `offset`, before the correction for its length.
    #[must_use]
    pub fn cost(&self, offset: u64, len: usize, index: usize, audition: bool) -> PriorCost {
        let blocks = if audition { &self.slices } else { &self.chunks };
        let first = self.place(offset) / BLOCK_LEN;
        let count = len.div_ceil(BLOCK_LEN);
        let mut sum = PriorCost {
            size: 0.0,
            pack: 0.0,
            unpack: 0.0,
        };
        for block in first..first + count {
            let cost = blocks[block % blocks.len()][index];
            sum.size += cost.size / count as f32;
            sum.pack += cost.pack / count as f32;
            sum.unpack += cost.unpack / count as f32;
        }
        sum
    }

    fn place(&self, offset: u64) -> usize {
        (offset % (self.chunks.len() * BLOCK_LEN) as u64) as usize
    }
}
