//! Pages to be measured, of a file or of a simulation.

use std::fs;

use narrows_chains::{PAGE, simulated};

use super::{Page, PagesError};

/// Some pages of one kind.
#[derive(Debug, Clone)]
pub struct Set {
    /// The file's name, or the generator's.
    pub name: String,
    /// The file's name or the generator's, whatever it is called otherwise.
    pub(super) from: String,
    pub(super) pages: Vec<Page>,
    pub(super) same_filled: usize,
}

/// Contiguous stretches that stand for a large file.
const RUNS: usize = 16;

impl Set {
    /// Up to `most` pages of a file, or of a name of [`simulated::named`].
    ///
    /// # Errors
    /// [`PagesError`] where it cannot be read, or has nothing to measure.
    pub fn load(name: &str, most: usize) -> Result<Self, PagesError> {
        let bytes = match simulated::named(name) {
            Some(bytes) => bytes,
            None => fs::read(name).map_err(|source| PagesError::Read {
                path: name.into(),
                source,
            })?,
        };
        let short = name.rsplit('/').next().unwrap_or(name);
        let set = Self::of(short, &bytes, most);
        if set.pages.is_empty() {
            Err(PagesError::Empty(name.into()))
        } else {
            Ok(set)
        }
    }

    /// The first `most` pages.
    #[must_use]
    pub fn part(&self, most: usize) -> Self {
        Self {
            pages: self.pages.iter().take(most).copied().collect(),
            ..self.clone()
        }
    }

    /// Up to `most` pages of `bytes`, in 16 contiguous runs if there are more, none of one repeated word.
    #[must_use]
    pub fn of(name: &str, bytes: &[u8], most: usize) -> Self {
        let all = bytes.as_chunks::<PAGE>().0;
        let mixed: Vec<&Page> = all
            .iter()
            .filter(|page| page[..PAGE - 8] != page[8..])
            .collect();
        let run = most.div_ceil(RUNS);
        let pages: Vec<Page> = if mixed.len() <= most {
            mixed.iter().map(|page| **page).collect()
        } else {
            let apart = (mixed.len() - run) / (RUNS - 1);
            let pages = (0..RUNS).flat_map(|n| mixed[n * apart..][..run].iter().map(|page| **page));
            pages.take(most).collect()
        };
        Self {
            name: name.into(),
            from: name.into(),
            pages,
            same_filled: all.len() - mixed.len(),
        }
    }
}
