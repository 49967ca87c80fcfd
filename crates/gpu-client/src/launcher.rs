//! Where the library is, and how a program finds it under the names that it looks for.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// The file that the build makes.
pub const LIBRARY: &str = "libnarrows_cuda.so";
/// Names it, if it is elsewhere.
pub const LIBRARY_VARIABLE: &str = "NARROWS_GPU_LIBRARY";
/// What programs look for.
const NAMES: [&str; 4] = [
    "libcuda.so.1",
    "libcuda.so",
    "libnvidia-ml.so.1",
    "libnvidia-ml.so",
];

/// Where the library may lie, from the folder of the program `narrows`.
const PLACES: [&str; 4] = [".", "../lib/narrows", "../lib", "deps"];

/// The library: what the variable names, beside this program, or where packages put it.
///
/// # Errors
/// In words, with what to do next.
pub fn find() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE) {
        let path = PathBuf::from(path);
        return whole(&path).ok_or_else(|| {
            format!(
                "{LIBRARY_VARIABLE} names {}, which is not there",
                path.display()
            )
        });
    }
    let exe = env::current_exe().map_err(|fault| format!("cannot tell where I am: {fault}"))?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    PLACES
        .iter()
        .find_map(|place| whole(&dir.join(place).join(LIBRARY)))
        .ok_or_else(|| {
            format!(
                "{LIBRARY} is not beside {}, nor in ../lib/narrows: build it (`cargo build -p narrows-gpu-client`), \
                 or name it in {LIBRARY_VARIABLE}",
                exe.display()
            )
        })
}

fn whole(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok().filter(|path| path.is_file())
}

/// A folder with the library under the names that programs look for; it goes with this value.
#[derive(Debug)]
pub struct LibraryDir(tempfile::TempDir);

impl LibraryDir {
    /// Makes one.
    ///
    /// # Errors
    /// The system's.
    pub fn new(library: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("narrows-gpu-").tempdir()?;
        for name in NAMES {
            symlink(library, dir.path().join(name))?;
        }
        Ok(Self(dir))
    }

    /// What `LD_LIBRARY_PATH` has to be: this folder before what is there.
    #[must_use]
    pub fn search_path(&self) -> std::ffi::OsString {
        let mut path = self.0.path().as_os_str().to_owned();
        if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty()) {
            path.push(":");
            path.push(before);
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_find_the_library_by_all_its_names() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let dir = LibraryDir::new(file.path()).unwrap();
        let path = dir.search_path();
        let first = path
            .to_str()
            .unwrap()
            .split(':')
            .next()
            .unwrap()
            .to_string();
        for name in NAMES {
            assert!(Path::new(&first).join(name).exists(), "{name}");
        }
        drop(dir);
        assert!(!Path::new(&first).exists());
    }
}
