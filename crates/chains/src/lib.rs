//! Codecs of memory pages made of up to seven small transform steps, and the choice among them, page by page.
//!
//! Why: what fills memory in simulations (doubles, counters, indices, pixels) holds nothing that LZ codecs can match. A
//! difference of the right width and order leaves small numbers, and small numbers pack. A page names its steps, so it
//! unpacks after the chain that packed it was removed. The bytes: `docs/specs/chain.md`.
//!
//! Floor: above `codecs`, whose block formats are steps here. Starts no thread, reads no clock, does no I/O.
//!
//! | module | holds |
//! |---|---|
//! | [`step`] | what a step is |
//! | [`steps`] | all of them |
//! | [`chain`] | a list of steps, and a page packed by one |
//! | [`chains`] | the set of chains in use, changed at run time |
//! | [`lzt`] | LZ for pages, with codes that were trained |
//! | [`packer`] | [`PagePacker`]: chooses a chain for each page |
//! | [`select`] | a glance at a page, and trees that say what to try |
//! | [`zbewalgo`] | the published chains, to be compared with |
//! | [`simulated`] | memory of simulations, for measurements |

pub mod chain;
pub mod chains;
pub mod lzt;
pub mod packer;
pub mod select;
pub mod simulated;
pub mod step;
pub mod steps;
pub mod zbewalgo;

mod simd;
mod word;

pub use self::{
    chain::Chain,
    chains::Chains,
    packer::{Limit, PagePacker, Profile},
    step::PageError,
};

/// Length of a page in bytes.
pub const PAGE: usize = 4096;

#[cfg(test)]
mod tests;
