//! What every candidate really cost on every block of real data, so that a policy can be run on it without the noise of
//! a machine. `narrows-lab`'s example `replay` makes and runs them. Units: [`Cost`], bytes.

use crate::prior::PriorCost;

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

/// What is measured as one, in bytes.
pub const BLOCK_LEN: usize = 256 << 10;
/// The longest chunk.
pub const AHEAD: usize = 1 << 20;

impl Recording {
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
