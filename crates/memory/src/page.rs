//! A page: as it is stored, as it is found, and why it is not.

use std::{io, sync::Arc};

use narrows_chains::{
    PAGE, PageError, PagePacker,
    lzt::{Corrupt, dictionary::Dictionary},
};
use narrows_core::DecodeError;

/// A page of bytes.
pub(crate) type Page = [u8; PAGE];

/// What a page is stored as.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Image<'a> {
    Zero,
    Same([u8; 8]),
    Packed(&'a [u8]),
    Raw(&'a Page),
}

impl<'a> Image<'a> {
    /// Looks at a page and packs it.
    pub(crate) fn of(page: &'a Page, packer: &mut PagePacker, packed: &'a mut Page) -> Self {
        match same_filled(page) {
            Some(word) if word == [0; 8] => Self::Zero,
            Some(word) => Self::Same(word),
            None => match packer.pack(page, packed) {
                Some(len) => Self::Packed(&packed[..len]),
                None => Self::Raw(page),
            },
        }
    }
}

/// The word that a page consists of, if it is one.
fn same_filled(page: &Page) -> Option<[u8; 8]> {
    let (words, _) = page.as_chunks::<8>();
    let first = words[0];
    // Most pages differ in the first or the last words; the rest is compared in strides that become vector code.
    let differs = |words: &[[u8; 8]]| {
        words
            .iter()
            .fold(false, |differs, word| differs | (*word != first))
    };
    let alike = words[words.len() - 1] == first && !words.chunks(64).any(differs);
    alike.then_some(first)
}

/// What was found of a page.
#[derive(Debug)]
pub(crate) enum Fetched<'a> {
    /// All of it; nothing is left to be done.
    Whole,
    /// The page, packed.
    Packed(&'a [u8]),
    /// The page packed with a dictionary, which is `None` if it is gone.
    Primed {
        bytes: &'a [u8],
        dictionary: Option<Arc<Dictionary>>,
    },
    /// The packed cluster of which the page is a member, and the dictionary that it needs, if any.
    Cluster {
        bytes: &'a [u8],
        dictionary: Option<Arc<Dictionary>>,
        member: usize,
    },
}

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("a stored page is damaged: {0}")]
    Chain(#[from] PageError),
    #[error("a stored cluster is damaged: {0}")]
    Cluster(#[from] DecodeError),
    #[error("a stored page with a dictionary is damaged: {0}")]
    Primed(#[from] Corrupt),
    #[error("the backing file: {0}")]
    Backing(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_differing_byte_anywhere_makes_a_page_not_same_filled() {
        let mut page = [0xa5; PAGE];
        assert_eq!(same_filled(&page), Some([0xa5; 8]));
        for at in 0..PAGE {
            page[at] ^= 1;
            assert_eq!(same_filled(&page), None, "{at}");
            page[at] ^= 1;
        }
    }
}
