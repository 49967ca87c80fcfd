//! All steps, by number and by name, and the chains that are built in.
//!
//! | module | steps | what they do |
//! |---|---|---|
//! | [`difference`] | `d1` `d2` `d4` `d8`, `dk1` `dk2` `dk4` `dk8` | differences of neighbours, once or up to six times |
//! | [`zigzag`] | `zz1` `zz2` `zz4` `zz8` | small negative numbers to small positive ones |
//! | [`bitpack`] | `pk1` `pk2` `pk4` `pk8` | blocks of 16 words, each as wide as its widest |
//! | [`block`] | `lz4`, `zstd`, `deflate` | the block formats of others |

pub mod bitpack;
pub mod block;
pub mod difference;
pub mod zigzag;

use crate::step::{Step, StepId, UnpackError};

/// The step of this number.
///
/// # Errors
/// [`UnpackError::UnknownStep`] if there is none.
pub fn by_id(id: StepId) -> Result<&'static dyn Step, UnpackError> {
    all().find(|step| step.id() == id).ok_or(UnpackError::UnknownStep(id))
}

/// The step of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Step> {
    all().find(|step| step.name() == name)
}

/// All steps.
pub fn all() -> impl Iterator<Item = &'static dyn Step> {
    GROUPS.iter().flat_map(|group| group.iter().copied())
}

const GROUPS: &[&[&dyn Step]] = &[difference::STEPS, zigzag::STEPS, bitpack::STEPS, block::STEPS];

/// One stage in place of the first of `ids`, and in place of how many.
pub(crate) fn fused(_ids: &[StepId]) -> Option<(&'static dyn Step, usize)> {
    None
}

/// The built-in chains by number. One that was released keeps its number for ever.
pub(crate) const BUILTINS: &[&str] =
    &["lz4", "zstd", "deflate", "dk8-zz8-pk8", "dk4-zz4-pk4", "dk2-zz2-pk2", "dk1-zz1-pk1", "d8-lz4", "d8-zstd"];
