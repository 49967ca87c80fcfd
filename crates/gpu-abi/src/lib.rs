//! Facts of the CUDA driver's ABI: every symbol with its versions, result and attribute numbers, and the layouts of the
//! structures that cross it.
//!
//! Floor: format. No I/O, no unsafe, no code of anybody else: names and numbers from public headers (`cargo xtask abi`).
#![forbid(unsafe_code)]

mod facts;
pub mod layout;
pub mod result;

pub use facts::{DEVICE_ATTRIBUTES, RESULTS, SYMBOLS};
pub use result::Status;

/// CUDA version of the headers that [`SYMBOLS`] comes from: 1000 × major + 10 × minor.
pub const HEADER_VERSION: u32 = 13_050;

/// One exported function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// As the dynamic linker knows it: `cuMemcpyHtoD_v2_ptds`.
    pub name: &'static str,
    /// As programs ask for it: `cuMemcpyHtoD`.
    pub base: &'static str,
    /// CUDA version from which the base name means this symbol; 0 where no header says.
    pub since: u32,
    /// Its default stream is the calling thread's (`_ptds`, `_ptsz`).
    pub per_thread: bool,
    /// How each parameter is passed: `p` pointer or handle, `q` 64 bits, `w` up to 32 bits, `f` float, `s` structure.
    pub shape: &'static str,
}

impl Symbol {
    pub(crate) const fn new(
        name: &'static str,
        base: &'static str,
        since: u32,
        per_thread: bool,
        shape: &'static str,
    ) -> Self {
        Self {
            name,
            base,
            since,
            per_thread,
            shape,
        }
    }
}

/// The symbol of exactly this name.
#[must_use]
pub fn symbol(name: &str) -> Option<&'static Symbol> {
    let at = SYMBOLS
        .binary_search_by(|symbol| symbol.name.cmp(name))
        .ok()?;
    SYMBOLS.get(at)
}

/// What `base` means to a program built for `version`, as `cuGetProcAddress` answers it. `per_thread` asks for the twin
/// with the calling thread's default stream, which falls back to the plain symbol where a function has no stream.
///
/// # Errors
/// [`NotFound`], with the reason that `cuGetProcAddress_v2` reports.
pub fn resolve(base: &str, version: u32, per_thread: bool) -> Result<&'static Symbol, NotFound> {
    let newest = |twin: bool| {
        let variants = SYMBOLS
            .iter()
            .filter(|symbol| symbol.base == base && symbol.per_thread == twin);
        variants.clone().next()?;
        Some(
            variants
                .filter(|symbol| symbol.since <= version)
                .max_by_key(|symbol| symbol.since),
        )
    };
    let twin = if per_thread { newest(true) } else { None };
    match twin.flatten().or_else(|| newest(false).flatten()) {
        Some(symbol) => Ok(symbol),
        None if newest(false).is_some() || newest(true).is_some() => Err(NotFound::TooOld),
        None => Err(NotFound::Name),
    }
}

/// Why a name has no symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFound {
    /// No function is called so.
    Name,
    /// It came with a later version than was asked for.
    TooOld,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a program gets the variant of its own version. Method: names whose variants differ in their parameters.
    #[test]
    fn names_resolve_by_version_and_stream() {
        let name = |base, version, per_thread| {
            resolve(base, version, per_thread).map(|symbol| symbol.name)
        };
        assert_eq!(name("cuMemcpyHtoD", 2000, false), Ok("cuMemcpyHtoD"));
        assert_eq!(name("cuMemcpyHtoD", 12_000, false), Ok("cuMemcpyHtoD_v2"));
        assert_eq!(
            name("cuMemcpyHtoD", 12_000, true),
            Ok("cuMemcpyHtoD_v2_ptds")
        );
        assert_eq!(name("cuCtxCreate", 12_000, false), Ok("cuCtxCreate_v3"));
        assert_eq!(name("cuCtxCreate", 13_000, false), Ok("cuCtxCreate_v4"));
        assert_eq!(name("cuInit", 12_000, true), Ok("cuInit"));
        assert_eq!(
            name("cuLaunchKernelEx", 11_000, false),
            Err(NotFound::TooOld)
        );
        assert_eq!(name("cuNothing", 12_000, false), Err(NotFound::Name));
    }

    #[test]
    fn symbols_are_sorted_and_named_once() {
        assert!(SYMBOLS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(symbol("cuGLGetDevices_v2").is_some() && symbol("cuVDPAUGetDevice").is_some());
    }
}
