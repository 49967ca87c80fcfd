//! The codecs this process can run.

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use crate::{Backend, Codec, CodecId, Level, Unavailable};

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
                    if entries
                        .iter()
                        .any(|e| e.backend == name || e.codec.info().name != codec.info().name)
                    {
                        return Err(DuplicateCodec { id, backend: name });
                    }
                    entries.push(Entry {
                        backend: name,
                        priority,
                        codec,
                    });
                    entries.sort_by_key(|e| Reverse(e.priority));
                }
                self.probed.push((name, Ok(())));
            }
            Err(reason) => self.probed.push((name, Err(reason))),
        }
        Ok(self)
    }

    /// Who packs with this codec at this level: the best backend that has the level.
    #[must_use]
    pub fn packer(&self, id: CodecId, level: Level) -> Option<&Entry> {
        self.by_id
            .get(&id)?
            .iter()
            .find(|entry| entry.codec.info().levels.contains(&level.0))
    }

    /// The levels of this codec: those that some backend has.
    #[must_use]
    pub fn levels(&self, id: CodecId) -> Option<RangeInclusive<i16>> {
        let levels = || {
            self.by_id
                .get(&id)
                .into_iter()
                .flatten()
                .map(|entry| &entry.codec.info().levels)
        };
        Some(
            *levels().map(RangeInclusive::start).min()?
                ..=*levels().map(RangeInclusive::end).max()?,
        )
    }

    /// The codec of this id on its best backend.
    #[must_use]
    pub fn by_id(&self, id: CodecId) -> Option<&Arc<dyn Codec>> {
        self.by_id
            .get(&id)
            .and_then(|entries| entries.first())
            .map(|e| &e.codec)
    }

    /// The codec of this name on its best backend.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<dyn Codec>> {
        self.entries()
            .map(|entries| &entries[0].codec)
            .find(|codec| codec.info().name == name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeError, Info, Workspace};

    const fn info(levels: RangeInclusive<i16>) -> Info {
        Info {
            id: CodecId(200),
            name: "same",
            levels,
            level_default: 1,
            history: false,
            format: "",
        }
    }
    static QUICK: Info = info(0..=1);
    static PLAIN: Info = info(0..=12);

    #[derive(Debug)]
    struct Fake(&'static Info);

    impl Codec for Fake {
        fn info(&self) -> &'static Info {
            self.0
        }

        fn pack(
            &self,
            _: &[u8],
            _: Level,
            _: &[u8],
            _: &mut [u8],
            _: &mut Workspace,
        ) -> Option<usize> {
            None
        }

        fn unpack(
            &self,
            _: &[u8],
            _: &[u8],
            _: &mut [u8],
            _: &mut Workspace,
        ) -> Result<(), DecodeError> {
            Ok(())
        }
    }

    impl Backend for (&'static str, i32, &'static Info) {
        fn name(&self) -> &'static str {
            self.0
        }

        fn priority(&self) -> i32 {
            self.1
        }

        fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable> {
            Ok(vec![Arc::new(Fake(self.2))])
        }
    }

    #[test]
    fn a_level_goes_to_the_best_backend_that_has_it_and_nowhere_if_none_has() {
        let mut registry = Registry::default();
        registry
            .add(&("plain", 0, &PLAIN))
            .unwrap()
            .add(&("quick", 10, &QUICK))
            .unwrap();
        let packer = |level| {
            registry
                .packer(CodecId(200), Level(level))
                .map(|entry| entry.backend)
        };
        assert_eq!(
            [-1, 0, 1, 2, 12, 13].map(packer),
            [
                None,
                Some("quick"),
                Some("quick"),
                Some("plain"),
                Some("plain"),
                None
            ]
        );
        assert_eq!(registry.levels(CodecId(200)), Some(0..=12));
        assert_eq!(registry.levels(CodecId(201)), None);
        assert!(registry.packer(CodecId(201), Level(0)).is_none());
    }
}
