//! The set of chains that packers may choose from, changed while they work.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;

use crate::chain::{Chain, ChainError};

/// Most chains of a set.
pub const CHAINS_MAX: usize = 256;

/// Up to 256 chains, shared by all packers that were given them. Pages unpack whatever is in the set or not.
#[derive(Debug, Clone, Default)]
pub struct Chains(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chains: RwLock<Arc<[Chain]>>,
    /// Grows by one with every change, so that packers see one without taking the lock.
    version: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            chains: RwLock::new(Chain::builtins().into()),
            version: AtomicU64::new(0),
        }
    }
}

/// Why a set of chains stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainsError {
    /// A name in the list.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// A set holds at most 256.
    #[error("there are {CHAINS_MAX} chains already")]
    Full,
    /// It is not in the set.
    #[error("no chain {0:?} is in the set")]
    Absent(String),
    /// Pages would have nothing to be packed by.
    #[error("a set holds at least one chain")]
    Last,
}

impl Chains {
    /// Adds the chain of these steps; one that is there already stays where it is.
    ///
    /// # Errors
    /// [`ChainsError`] for a list that is no chain, or when the set is full.
    pub fn add(&self, steps: &str) -> Result<(), ChainsError> {
        let chain = known(Chain::parse(steps)?);
        self.change(|chains| {
            if chains.contains(&chain) {
                return Ok(());
            }
            if chains.len() == CHAINS_MAX {
                return Err(ChainsError::Full);
            }
            chains.push(chain);
            Ok(())
        })
    }

    /// Makes the chain of these steps the only one.
    ///
    /// # Errors
    /// [`ChainsError`] for a list that is no chain.
    pub fn set(&self, steps: &str) -> Result<(), ChainsError> {
        let chain = known(Chain::parse(steps)?);
        self.change(|chains| {
            *chains = vec![chain];
            Ok(())
        })
    }

    /// Removes the chain of these steps. Pages packed by it still unpack.
    ///
    /// # Errors
    /// [`ChainsError`] for a list that is no chain, is not in the set, or is the last one there.
    pub fn remove(&self, steps: &str) -> Result<(), ChainsError> {
        let chain = Chain::parse(steps)?;
        self.change(|chains| {
            let at = chains
                .iter()
                .position(|c| *c == chain)
                .ok_or_else(|| ChainsError::Absent(steps.to_owned()))?;
            if chains.len() == 1 {
                return Err(ChainsError::Last);
            }
            chains.remove(at);
            Ok(())
        })
    }

    /// Back to the built-in chains.
    pub fn reset(&self) {
        let _ = self.change(|chains| {
            *chains = Chain::builtins().to_vec();
            Ok(())
        });
    }

    /// The set as it is now.
    #[must_use]
    pub fn now(&self) -> Arc<[Chain]> {
        self.0.chains.read().clone()
    }

    /// Another number after each change.
    pub(crate) fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Chain>) -> Result<(), ChainsError>,
    ) -> Result<(), ChainsError> {
        let mut held = self.0.chains.write();
        let mut chains = held.to_vec();
        change(&mut chains)?;
        *held = chains.into();
        self.0.version.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// The built-in chain of the same steps, which packs them under one byte, or else `chain`.
fn known(chain: Chain) -> Chain {
    Chain::builtins()
        .iter()
        .find(|builtin| **builtin == chain)
        .copied()
        .unwrap_or(chain)
}
