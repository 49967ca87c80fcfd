//! What a thread needs while it works on pages, lent from a pool so that connections need not know of it.

use std::ops::{Deref, DerefMut};

use narrows_chains::{Chains, Limit, PAGE, PagePacker, lzt::Corrupt};
use parking_lot::Mutex;

pub use narrows_chains::Profile;

use crate::{
    cluster::{self, Bundler},
    page::{Fetched, LoadError, Page},
    slab::OBJECT_LEN_MAX,
};

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
    /// What is stored of a page that is read.
    pub(crate) copied: Vec<u8>,
}

impl Tools {
    /// Fills `page`. `fetch` copies what is stored of it; that is unpacked when the shard's lock is free again.
    pub(crate) fn load(
        &mut self,
        page: &mut Page,
        fetch: impl for<'a> FnOnce(&'a mut Vec<u8>, &mut Page) -> Result<Fetched<'a>, LoadError>,
    ) -> Result<(), LoadError> {
        let Self {
            packer,
            bundler,
            copied,
            ..
        } = self;
        match fetch(copied, page)? {
            Fetched::Whole => {}
            Fetched::Packed(bytes) => packer.unpack(bytes, page)?,
            Fetched::Primed { bytes, dictionary } => {
                let dictionary = dictionary.ok_or(Corrupt("its dictionary is gone"))?;
                dictionary.unpack(bytes, page, &mut bundler.workspace)?;
            }
            Fetched::Cluster {
                bytes,
                dictionary,
                member,
            } => {
                bundler.unpack(bytes, dictionary.as_deref())?;
                *page = *bundler.page(member);
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
            copied: Vec::with_capacity(cluster::LEN),
        };
        Self {
            tools,
            image: Box::new([0; PAGE]),
        }
    }
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
