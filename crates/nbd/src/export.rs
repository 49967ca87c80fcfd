//! What a server offers, under which name.

use std::sync::Arc;

use narrows_core::{BlockDevice, block::Shape};

use crate::proto::flag;

/// Longest name of an export, in bytes (the protocol's own bound).
pub const NAME_LEN_MAX: usize = 4096;

/// One device under a name.
#[derive(Debug, Clone)]
pub struct Export {
    /// What a client asks for; empty for the one it gets when it asks for none.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Refuses writes even where the device would take them.
    pub read_only: bool,
}

impl Export {
    /// The device's shape, as this export has it.
    pub(crate) fn shape(&self) -> Shape {
        let shape = self.device.shape();
        Shape {
            read_only: shape.read_only || self.read_only,
            ..shape
        }
    }

    /// Transmission flags.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        let shape = self.shape();
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_CACHE;
        let mut add = |when: bool, flag: u16| flags |= if when { flag } else { 0 };
        add(structured, flag::SEND_DF);
        add(shape.rotational, flag::ROTATIONAL);
        add(shape.shared, flag::CAN_MULTI_CONN);
        add(shape.read_only, flag::READ_ONLY);
        add(!shape.read_only, flag::SEND_TRIM | flag::SEND_WRITE_ZEROES);
        add(!shape.read_only && shape.fast_zero, flag::SEND_FAST_ZERO);
        flags
    }
}

/// All that a server offers, in the order in which it is listed.
#[derive(Debug, Clone, Default)]
pub struct Exports(Vec<Arc<Export>>);

/// Why an export was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// Two exports may not share a name.
    #[error("export `{0}` is there already")]
    Duplicate(String),
    /// The protocol has no room for it.
    #[error("an export's name of {0} bytes; the protocol takes {NAME_LEN_MAX}")]
    NameTooLong(usize),
}

impl Exports {
    /// Adds one.
    ///
    /// # Errors
    /// See [`ExportError`].
    pub fn add(&mut self, export: Export) -> Result<&mut Self, ExportError> {
        if export.name.len() > NAME_LEN_MAX {
            return Err(ExportError::NameTooLong(export.name.len()));
        }
        if self.0.iter().any(|there| there.name == export.name) {
            return Err(ExportError::Duplicate(export.name));
        }
        self.0.push(Arc::new(export));
        Ok(self)
    }

    /// The export of this name; an empty name means the first where none is nameless.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Export>> {
        let default = || name.is_empty().then(|| self.0.first()).flatten();
        self.0
            .iter()
            .find(|export| export.name == name)
            .or_else(default)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.0.iter()
    }
}
