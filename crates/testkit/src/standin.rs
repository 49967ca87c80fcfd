//! Stand-ins for device libraries: the ABI of the real one, zlib for the device, and faults on demand.
//!
//! They are C (`standin/`), so that a C compiler lays out the structures that our bindings declare by hand, and built
//! when a test asks for one. A program that opens one (`NARROWS_QATZIP_LIB` and its like) suffers the faults that
//! `NARROWS_STANDIN_FAULT` names; a test that has it in its own process calls `standin_fault` (see
//! `standin/standin.h`).

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
};

/// A file in a test's folder for temporary files, which the test removes.
#[derive(Debug)]
pub struct StandIn {
    path: PathBuf,
}

impl StandIn {
    /// Builds `source` (`qatzip`, `qpl`, `doca`, `nvcomp`) in `folder`, with more `flags` for the compiler. `None`, and a line
    /// that says why, without a C compiler or zlib's header.
    ///
    /// Every call makes a file of its own, because the loader gives one file's globals to all who open it.
    ///
    /// # Panics
    /// Where `source` is none of them.
    #[must_use]
    pub fn build(source: &str, flags: &[&str], folder: &Path) -> Option<Self> {
        static BUILT: AtomicU32 = AtomicU32::new(0);
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let code = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("standin")
            .join(source)
            .with_extension("c");
        assert!(code.exists(), "{}", code.display());
        let path = folder.join(format!("{source}-{}-{number}.so", process::id()));
        let compiler = env::var_os("CC").unwrap_or_else(|| OsString::from("cc"));
        let built = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"])
            .args([&path, &code])
            .args(flags)
            .args(["-lz", "-lpthread"])
            .output();
        match built {
            Ok(output) if output.status.success() => return Some(Self { path }),
            Ok(output) => println!(
                "skipped: no stand-in: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => println!("skipped: no stand-in: {}: {error}", compiler.display()),
        }
        None
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // Whoever has it mapped keeps it.
        let _ = std::fs::remove_file(&self.path);
    }
}
