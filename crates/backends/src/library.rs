//! Opening device libraries: by soname from where the system's loader looks, or by a path that the user sets.

use std::{env, path::Path};

use narrows_core::Unavailable;

/// Where a library may come from.
pub(crate) struct Source {
    /// Environment variable that names another file.
    pub(crate) variable: &'static str,
    /// Names tried in turn, newest ABI first.
    pub(crate) sonames: &'static [&'static str],
    /// How to get it, for people.
    pub(crate) hint: &'static str,
}

impl Source {
    /// Opens `path`, else the file that the variable names, else the first soname that the loader finds.
    ///
    /// A path is absolute: a relative one would mean whatever directory the program happens to stand in.
    pub(crate) fn open(&self, path: Option<&Path>) -> Result<libloading::Library, Unavailable> {
        only_64_bit()?;
        let named = path
            .map(Path::to_path_buf)
            .or_else(|| env::var_os(self.variable).map(Into::into));
        if let Some(path) = named {
            if !path.is_absolute() {
                return Err(Unavailable(format!(
                    "{} names `{}`, which is not an absolute path",
                    self.variable,
                    path.display()
                )));
            }
            // SAFETY: the user names this file as the library; its initialisers are as trusted as the program.
            return unsafe { libloading::Library::new(&path) }
                .map_err(|error| self.missing(&error));
        }
        let mut error = None;
        for soname in self.sonames {
            // SAFETY: the initialisers of these libraries set up their own state and nothing of ours.
            match unsafe { libloading::Library::new(*soname) } {
                Ok(handle) => return Ok(handle),
                Err(reason) => error = error.or(Some(reason)),
            }
        }
        Err(self.missing(&error.expect("at least one soname")))
    }

    /// The library, or a function in it, is not there.
    pub(crate) fn missing(&self, error: &libloading::Error) -> Unavailable {
        // The loader's own words, which name the file or the function, are the cause.
        let cause =
            std::error::Error::source(error).map_or_else(String::new, |why| format!(": {why}"));
        Unavailable(format!(
            "{} ({}): {error}{cause}",
            self.sonames[0], self.hint
        ))
    }
}

/// The layouts of the libraries' structures are checked for 64-bit programs alone.
pub(crate) fn only_64_bit() -> Result<(), Unavailable> {
    if cfg!(target_pointer_width = "64") {
        Ok(())
    } else {
        let why = "libraries of accelerators and of Ceph are used by 64-bit programs only";
        Err(Unavailable(why.into()))
    }
}

/// Declares the functions of a library by their C symbols, with a `load` that finds them all.
macro_rules! functions {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty = $symbol:literal,)* }) => {
        $(#[$meta])*
        pub(super) struct $name {
            $($field: $type,)*
            /// Keeps the functions' code mapped.
            _handle: libloading::Library,
        }

        impl $name {
            /// Lives as long as the process: its code must outlive whatever a workspace holds.
            ///
            /// # Safety
            /// `handle` is a library whose functions have the declared types.
            unsafe fn load(handle: libloading::Library) -> Result<&'static Self, libloading::Error> {
                // SAFETY: the caller's promise; `handle` lies beside the functions, so it lives as long.
                unsafe {
                    $(let $field = *handle.get::<$type>(concat!($symbol, "\0").as_bytes())?;)*
                    Ok(Box::leak(Box::new(Self { $($field,)* _handle: handle })))
                }
            }
        }
    };
}
pub(crate) use functions;
