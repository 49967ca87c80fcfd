//! What the system allows this process.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::lobby::STRANGERS_MAX;

/// Raises the number of files that may be open to what the system allows without asking anybody.
///
/// The usual soft limit of 1,024 is there for programs that use `select`, which this is not.
pub fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        limit.current = limit.maximum;
        // Where even that is refused, the limit stays as it was.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Connections of strangers that may wait at once: [`STRANGERS_MAX`], and no more than an eighth of the files and
/// threads that the process may have, so that those who were admitted have the rest.
#[must_use]
pub fn strangers_max() -> usize {
    let share = |resource| {
        getrlimit(resource).current.map_or(usize::MAX, |most| {
            usize::try_from(most / 8).unwrap_or(usize::MAX)
        })
    };
    STRANGERS_MAX
        .min(share(Resource::Nofile))
        .min(share(Resource::Nproc))
        .max(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_open_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert!((4..=STRANGERS_MAX).contains(&strangers_max()));
    }
}
