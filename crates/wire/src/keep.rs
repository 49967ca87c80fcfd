//! Owners, access lists and extended attributes of entries: read at the sender, and set at the receiver.
//!
//! What is set by a peer's word gives rights away, so a receiver sets what its own user allows, and nothing else. Of
//! attributes `user.` and `trusted.` travel; `security.` are the host's affair (labels, capabilities of programs), as
//! set-user-id bits are.

use std::{
    collections::HashMap,
    fs::{File, Metadata, Permissions},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
};

use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::{AtFlags, CWD, chownat, fchown};
use serde::{Deserialize, Serialize};
use xattr::FileExt;

use crate::tree::{Attribute, Extras, Owner};

/// Access lists, which the kernel shows as attributes.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Names of users and groups that are remembered.
const NAMES_MAX: usize = 4096;

/// What is kept of an entry beside content, mode and time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keep {
    /// Names of one file stay names of one file.
    pub hard_links: bool,
    /// Who owns it.
    pub user: bool,
    /// Which group owns it.
    pub group: bool,
    /// Its access lists, with the numbers of users and groups.
    pub acls: bool,
    /// Its extended attributes.
    pub attributes: bool,
}

impl Keep {
    /// Whether anything is.
    #[must_use]
    pub fn any(self) -> bool {
        self.hard_links || self.extras()
    }

    /// Whether entries have [`Extras`].
    pub(crate) fn extras(self) -> bool {
        self.user || self.group || self.acls || self.attributes
    }

    /// Whether `allowed` lacks something of this. Links of a tree to its own files need nobody's leave.
    pub(crate) fn is_beyond(self, allowed: Self) -> bool {
        (self.user && !allowed.user)
            || (self.group && !allowed.group)
            || (self.acls && !allowed.acls)
            || (self.attributes && !allowed.attributes)
    }

    fn takes(self, name: &[u8]) -> bool {
        (self.acls && ACLS.contains(&name))
            || (self.attributes && (name.starts_with(b"user.") || name.starts_with(b"trusted.")))
    }
}

/// Names and numbers of users and groups, as this host has them.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    names: HashMap<(bool, u32), Vec<u8>>,
    numbers: HashMap<(bool, Vec<u8>), Option<u32>>,
    /// Owners go by number.
    numeric: bool,
}

impl Owners {
    /// By number, or by name too.
    pub(crate) fn numbered(numeric: bool) -> Self {
        Self {
            numeric,
            ..Self::default()
        }
    }

    fn owner(&mut self, is_group: bool, id: u32) -> Owner {
        let name = if self.numeric {
            Vec::new()
        } else {
            self.name(is_group, id)
        };
        Owner { id, name }
    }

    /// Empty where it has none, or one that does not fit.
    fn name(&mut self, is_group: bool, id: u32) -> Vec<u8> {
        bound(&mut self.names);
        let look = || {
            let name = if is_group {
                let group = Group::from_gid(Gid::from_raw(id)).ok().flatten();
                group.map(|group| group.name)
            } else {
                let user = User::from_uid(Uid::from_raw(id)).ok().flatten();
                user.map(|user| user.name)
            };
            let fits = |name: &String| name.len() <= usize::from(u8::MAX);
            name.filter(fits).unwrap_or_default().into_bytes()
        };
        self.names
            .entry((is_group, id))
            .or_insert_with(look)
            .clone()
    }

    /// The one of that name here; else of that number, as of all without a name. Root is root.
    fn number(&mut self, is_group: bool, owner: &Owner) -> u32 {
        if owner.id == 0 || owner.name.is_empty() {
            return owner.id;
        }
        bound(&mut self.numbers);
        let look = || {
            let name = str::from_utf8(&owner.name).ok()?;
            if is_group {
                Some(Group::from_name(name).ok()??.gid.as_raw())
            } else {
                Some(User::from_name(name).ok()??.uid.as_raw())
            }
        };
        let key = (is_group, owner.name.clone());
        let found = *self.numbers.entry(key).or_insert_with(look);
        found.unwrap_or(owner.id)
    }

    /// What `keep` wants of an entry; `file` is there for files and directories.
    pub(crate) fn read(
        &mut self,
        keep: Keep,
        meta: &Metadata,
        file: Option<&File>,
    ) -> io::Result<Extras> {
        let attributes = match file {
            Some(file) if keep.acls || keep.attributes => Some(attributes(keep, file)?),
            _ => None,
        };
        Ok(Extras {
            user: keep.user.then(|| self.owner(false, meta.uid())),
            group: keep.group.then(|| self.owner(true, meta.gid())),
            attributes,
        })
    }

    /// Sets mode and extras of an open file or directory.
    ///
    /// # Errors
    /// The first thing that could not be set, in words; the others are.
    pub(crate) fn set(
        &mut self,
        file: &File,
        mode: u32,
        keep: Keep,
        extras: &Extras,
    ) -> Result<(), String> {
        let meta = file.metadata().map_err(|fault| fault.to_string())?;
        // Another owner first, since that takes bits of the mode away; attributes while the file may be written to;
        // access lists last, since they change with the mode.
        let owned = self.own(&meta, extras, |user, group| fchown(file, user, group));
        let there = match &extras.attributes {
            Some(wanted) => set_attributes(file, &meta, keep, wanted),
            None => Ok(()),
        };
        let mode = Permissions::from_mode(mode);
        let moded = file
            .set_permissions(mode)
            .map_err(|fault| format!("mode: {fault}"));
        let listed = match &extras.attributes {
            Some(wanted) => set_acls(file, keep, wanted),
            None => Ok(()),
        };
        owned.and(there).and(moded).and(listed)
    }

    /// The same for a link, which has an owner only.
    pub(crate) fn set_link(
        &mut self,
        path: &Path,
        meta: &Metadata,
        extras: &Extras,
    ) -> Result<(), String> {
        self.own(meta, extras, |user, group| {
            chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW)
        })
    }

    fn own(
        &mut self,
        meta: &Metadata,
        extras: &Extras,
        set: impl FnOnce(Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) -> rustix::io::Result<()>,
    ) -> Result<(), String> {
        let user = extras.user.as_ref().map(|owner| self.number(false, owner));
        let group = extras.group.as_ref().map(|owner| self.number(true, owner));
        // -1 means `leave it` to the kernel.
        let user = user.filter(|id| *id != meta.uid() && *id != u32::MAX);
        let group = group.filter(|id| *id != meta.gid() && *id != u32::MAX);
        if user.is_none() && group.is_none() {
            return Ok(());
        }
        set(
            user.map(rustix::fs::Uid::from_raw),
            group.map(rustix::fs::Gid::from_raw),
        )
        .map_err(|fault| format!("owner: {}", io::Error::from(fault)))
    }
}

fn bound<K, V>(names: &mut HashMap<K, V>) {
    if names.len() >= NAMES_MAX {
        names.clear();
    }
}

fn attributes(keep: Keep, file: &File) -> io::Result<Vec<Attribute>> {
    let names = match file.list_xattr() {
        Ok(names) => names,
        Err(fault) if is_unsupported(&fault) => return Ok(Vec::new()),
        Err(fault) => return Err(fault),
    };
    let mut found = Vec::new();
    for name in names {
        if keep.takes(name.as_bytes())
            && let Some(value) = file.get_xattr(&name)?
        {
            found.push(Attribute {
                name: name.into_vec(),
                value,
            });
        }
    }
    found.sort();
    Ok(found)
}

/// File systems without attributes have none.
fn is_unsupported(fault: &io::Error) -> bool {
    fault.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
        || fault.kind() == io::ErrorKind::Unsupported
}

/// Makes what is there what is wanted, but for access lists. A write-protected file of ours is opened for that long.
fn set_attributes(
    file: &File,
    meta: &Metadata,
    keep: Keep,
    wanted: &[Attribute],
) -> Result<(), String> {
    let keep = Keep {
        acls: false,
        ..keep
    };
    let words = |fault: io::Error| format!("attributes: {fault}");
    let there = attributes(keep, file).map_err(words)?;
    let wanted: Vec<_> = wanted.iter().filter(|one| keep.takes(&one.name)).collect();
    if there.iter().eq(wanted.iter().copied()) {
        return Ok(());
    }
    if meta.mode() & 0o200 == 0 {
        let open = Permissions::from_mode(meta.mode() & 0o7777 | 0o200);
        file.set_permissions(open).map_err(words)?;
    }
    change(file, &there, &wanted).map_err(words)
}

fn set_acls(file: &File, keep: Keep, wanted: &[Attribute]) -> Result<(), String> {
    let keep = Keep {
        attributes: false,
        ..keep
    };
    let words = |fault: io::Error| format!("access list: {fault}");
    let there = attributes(keep, file).map_err(words)?;
    let wanted: Vec<_> = wanted.iter().filter(|one| keep.takes(&one.name)).collect();
    change(file, &there, &wanted).map_err(words)
}

fn change(file: &File, there: &[Attribute], wanted: &[&Attribute]) -> io::Result<()> {
    for one in there {
        if !wanted.iter().any(|other| other.name == one.name) {
            file.remove_xattr(std::ffi::OsStr::from_bytes(&one.name))?;
        }
    }
    for one in wanted {
        if !there.contains(one) {
            file.set_xattr(std::ffi::OsStr::from_bytes(&one.name), &one.value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_numbers_and_root_is_root() {
        let mut owners = Owners::default();
        assert_eq!(owners.name(false, 0), b"root");
        let owner = |id, name: &[u8]| Owner {
            id,
            name: name.into(),
        };
        assert_eq!(owners.number(false, &owner(7, b"root")), 0);
        assert_eq!(owners.number(true, &owner(7, b"no such group")), 7);
        assert_eq!(owners.number(false, &owner(0, b"daemon")), 0);
        assert_eq!(owners.number(false, &owner(9, b"")), 9);
        assert_eq!(owners.number(false, &owner(9, b"\xff")), 9);
    }

    #[test]
    fn labels_and_capabilities_are_not_taken() {
        let all = Keep {
            acls: true,
            attributes: true,
            ..Keep::default()
        };
        for name in [
            "security.capability",
            "security.selinux",
            "system.other",
            "",
        ] {
            assert!(!all.takes(name.as_bytes()), "{name}");
        }
        assert!(all.takes(b"user.x") && all.takes(ACLS[0]));
        let none = Keep::default();
        assert!(all.is_beyond(none) && !none.is_beyond(none));
    }
}
