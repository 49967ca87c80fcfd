//! What a thread needs while it works on pages, lent from a pool so that connections need not know of it.

use std::ops::{Deref, DerefMut};

use narrows_chains::{Chains, Limit, PAGE, PagePacker, lzt::Corrupt};
use parking_lot::Mutex;

pub use narrows_chains::Profile;

use crate::{
    cluster::Bundler,
    shard::{Fetched, LoadError},
    slab::OBJECT_LEN_MAX,
};

/// A page of bytes.
pub(crate) type Page = [u8; PAGE];

/// Packers and scratch memory of one thread.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) tools: Tools,
    /// Where a page is packed before its shard is locked.
    pub(crate) image: Box<Page>,
}

/// What a page is packed and unpacked with.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) packer: PagePacker,
    pub(crate) bundler: Bundler,
    pub(crate) packed: Box<Page>,
}

impl Tools {
    /// Fills `page` with what a shard left here of it.
    pub(crate) fn finish(&mut self, fetched: Fetched, page: &mut Page) -> Result<(), LoadError> {
        match fetched {
            Fetched::Whole => {}
            Fetched::Packed(len) => self.packer.unpack(&self.packed[..len], page)?,
            Fetched::Primed(len) => {
                let Bundler {
                    dictionary,
                    workspace,
                    ..
                } = &mut self.bundler;
                let dictionary = dictionary.take().ok_or(Corrupt("its dictionary is gone"))?;
                dictionary.unpack(&self.packed[1..len], page, workspace)?;
            }
            Fetched::Cluster(member) => {
                self.bundler.unpack()?;
                *page = *self.bundler.page(member);
            }
        }
        Ok(())
    }
}

impl Kit {
    pub(crate) fn new(profile: Profile, chains: &Chains) -> Self {
        let limit = Limit::default();
        limit.set(OBJECT_LEN_MAX);
        let packer = PagePacker::with(profile, limit, chains.clone());
        let tools = Tools {
            packer,
            bundler: Bundler::default(),
            packed: Box::new([0; PAGE]),
        };
        Self {
            tools,
            image: Box::new([0; PAGE]),
        }
    }
}

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

/// Kits that nobody uses just now. As many exist as threads ever worked at once.
#[derive(Debug)]
pub(crate) struct Pool {
    profile: Profile,
    chains: Chains,
    #[expect(
        clippy::vec_box,
        reason = "lending moves a pointer, not a kit of several KiB"
    )]
    free: Mutex<Vec<Box<Kit>>>,
}

impl Pool {
    pub(crate) fn new(profile: Profile, chains: Chains) -> Self {
        Self {
            profile,
            chains,
            free: Mutex::default(),
        }
    }

    pub(crate) fn lend(&self) -> Lent<'_> {
        let kit = self
            .free
            .lock()
            .pop()
            .unwrap_or_else(|| Box::new(Kit::new(self.profile, &self.chains)));
        Lent {
            pool: self,
            kit: Some(kit),
        }
    }
}

/// Goes back to its pool on drop.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    pool: &'a Pool,
    kit: Option<Box<Kit>>,
}

impl Deref for Lent<'_> {
    type Target = Kit;

    fn deref(&self) -> &Kit {
        self.kit.as_ref().expect("taken on drop only")
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Kit {
        self.kit.as_mut().expect("taken on drop only")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.pool.free.lock().extend(self.kit.take());
    }
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
