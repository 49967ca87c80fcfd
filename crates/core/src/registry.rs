//! The codecs this process can run.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use crate::{Backend, Codec, CodecId, Unavailable};

/// Codecs this process can run, and what became of each backend. Built once at start-up, then read-only: no lock
/// per lookup.
#[derive(Debug, Default)]
pub struct Registry {
    by_id: BTreeMap<CodecId, Vec<Entry>>,
    probed: Vec<(&'static str, Result<(), Unavailable>)>,
}

/// One way to run a codec.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Who runs it.
    pub backend: &'static str,
    priority: i32,
    /// The codec itself.
    pub codec: Arc<dyn Codec>,
}

/// Two codecs on one id and backend, or two names for one id: a build mistake, so it fails rather than replaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("codec id {id} is registered twice by backend `{backend}`, or under two names")]
pub struct DuplicateCodec {
    /// The id taken twice.
    pub id: CodecId,
    /// Who offered it second.
    pub backend: &'static str,
}

impl Registry {
    /// Probes `backend` and adds its codecs. A backend that is not there is recorded with its reason, not an error.
    ///
    /// # Errors
    /// [`DuplicateCodec`] where the backend offers an id it already offered, or one that carries another name.
    pub fn add(&mut self, backend: &dyn Backend) -> Result<&mut Self, DuplicateCodec> {
        let (name, priority) = (backend.name(), backend.priority());
        match backend.probe() {
            Ok(codecs) => {
                for codec in codecs {
                    let id = codec.id();
                    let entries = self.by_id.entry(id).or_default();
                    if entries.iter().any(|e| e.backend == name || e.codec.info().name != codec.info().name) {
                        return Err(DuplicateCodec { id, backend: name });
                    }
                    entries.push(Entry { backend: name, priority, codec });
                    entries.sort_by_key(|e| Reverse(e.priority));
                }
                self.probed.push((name, Ok(())));
            }
            Err(reason) => self.probed.push((name, Err(reason))),
        }
        Ok(self)
    }

    /// The codec of this id on its best backend.
    #[must_use]
    pub fn by_id(&self, id: CodecId) -> Option<&Arc<dyn Codec>> {
        self.by_id.get(&id).and_then(|entries| entries.first()).map(|e| &e.codec)
    }

    /// The codec of this name on its best backend.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<dyn Codec>> {
        self.entries().map(|entries| &entries[0].codec).find(|codec| codec.info().name == name)
    }

    /// Every codec with the ways to run it, best first, in order of id.
    pub fn entries(&self) -> impl Iterator<Item = &[Entry]> {
        self.by_id.values().map(Vec::as_slice)
    }

    /// Ids of all codecs, in order.
    pub fn ids(&self) -> impl Iterator<Item = CodecId> {
        self.by_id.keys().copied()
    }

    /// Every backend that was asked, with the reason where it is not there.
    pub fn probed(&self) -> &[(&'static str, Result<(), Unavailable>)] {
        &self.probed
    }
}
