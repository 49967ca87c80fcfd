//! A run of whole pages stored at once, and only if they pack.

use narrows_chains::PAGE;
use narrows_core::BlockError;

use crate::{
    page::{Image, Page},
    store::{Store, put},
};

/// Where a run of pages is packed before any of it is stored.
#[derive(Debug)]
pub struct PackedRun {
    images: Vec<Page>,
}

impl PackedRun {
    /// For at most `pages` pages.
    #[must_use]
    pub fn new(pages: usize) -> Self {
        Self {
            images: vec![[0; PAGE]; pages],
        }
    }
}

impl Store {
    /// Stores whole pages if they pack to `len_max` bytes or less, and says whether they did. If not, what was stored
    /// there before still is.
    ///
    /// # Errors
    /// As of a write.
    ///
    /// # Panics
    /// `data` is not of whole pages, or of more than `run` has room for.
    pub fn write_packed(
        &self,
        offset: u64,
        data: &[u8],
        len_max: usize,
        run: &mut PackedRun,
    ) -> Result<bool, BlockError> {
        self.check(offset, data.len() as u64)?;
        let (pages, []) = data.as_chunks::<PAGE>() else {
            panic!("whole pages are stored");
        };
        let mut kit = self.pool.lend();
        let tools = &mut kit.tools;
        let mut packed = Vec::with_capacity(pages.len());
        let mut len = 0;
        for (page, image) in pages.iter().zip(&mut run.images[..pages.len()]) {
            let image = Image::of(page, &mut tools.packer, image);
            len += match image {
                Image::Zero => 0,
                Image::Same(_) => 8,
                Image::Packed(bytes) => bytes.len(),
                Image::Raw(_) => PAGE,
            };
            if len > len_max {
                return Ok(false);
            }
            packed.push(image);
        }
        for (at, (page, image)) in pages.iter().zip(packed).enumerate() {
            let home = self.home(offset / PAGE as u64 + at as u64);
            let stored = put(
                &mut self.shards()[home.shard].lock(),
                home.slot,
                page,
                image,
                tools,
            );
            stored.map_err(|fault| self.explain(&fault))?;
        }
        Ok(true)
    }
}
