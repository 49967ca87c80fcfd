//! Decoded instructions.
pub(crate) type Lanes = [u64; 32];
/// All functions' instructions.
#[derive(Debug, Default)]
pub(crate) struct Code {}
impl Code {
    pub(crate) fn unsupported(&self) -> impl Iterator<Item = (u32, &str)> {
        std::iter::empty()
    }
    pub(crate) fn link(&self, _addresses: &[u64], _textures: &[u64]) -> Vec<Lanes> {
        Vec::new()
    }
}
