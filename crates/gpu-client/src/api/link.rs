//! Linking: inputs are kept and go to the server together, which links them as it loads them.
//!
//! What `cuLinkComplete` gives is not machine code but the inputs in a frame of ours, which only `cuModuleLoadData` and
//! its like take: `NRWLINK1`, the length of the rest, then each input with its length before it.

use std::fs;

use narrows_gpu_abi::Status;

use crate::{
    call::{api, say},
    ffi::{Answer, Handle, In, Kind, Out, Text},
    state::client,
};

const MAGIC: &[u8; 8] = b"NRWLINK1";
const HEAD_LEN: usize = 16;

/// A link under way.
pub(crate) struct Link {
    image: Vec<u8>,
}

/// Whether an image is a link's.
pub(crate) fn is_linked(address: usize) -> Answer<bool> {
    for (at, byte) in MAGIC.iter().enumerate() {
        if In::<u8>::at(address).get_at(at)? != *byte {
            return Ok(false);
        }
    }
    Ok(true)
}

fn create(link: Out<Handle>) -> Answer {
    let client = client()?;
    client.current()?;
    let id = client.remote.id();
    let mut image = MAGIC.to_vec();
    image.extend_from_slice(&[0; 8]);
    client.links.lock().insert(id, Link { image });
    link.set(Kind::Link.handle(id))
}

fn add(link: Handle, bytes: &[u8]) -> Answer {
    let mut links = client()?.links.lock();
    let link = links
        .get_mut(&Kind::Link.id(link)?)
        .ok_or(Status::INVALID_HANDLE)?;
    link.image
        .extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    link.image.extend_from_slice(bytes);
    let len = (link.image.len() - HEAD_LEN) as u64;
    link.image[8..HEAD_LEN].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

api! {
    fn cuLinkCreate, cuLinkCreate_v2(
        count: u32, options: In<u32>, values: In<usize>, link: Out<Handle>,
    ) {
        create(link)
    }

    fn cuLinkAddData, cuLinkAddData_v2(
        link: Handle, kind: u32, data: In<u8>, len: usize, name: In<u8>, count: u32,
        options: In<u32>, values: In<usize>,
    ) {
        add(link, &data.bytes(len)?)
    }

    fn cuLinkAddFile, cuLinkAddFile_v2(
        link: Handle, kind: u32, path: Text, count: u32, options: In<u32>, values: In<usize>,
    ) {
        let path = path.get()?;
        let bytes = fs::read(&path).map_err(|fault| {
            say(&format!("cannot read {path}: {fault}"));
            Status::FILE_NOT_FOUND
        })?;
        add(link, &bytes)
    }

    fn cuLinkComplete(link: Handle, image: Out<usize>, len: Out<usize>) {
        let links = client()?.links.lock();
        let link = links.get(&Kind::Link.id(link)?).ok_or(Status::INVALID_HANDLE)?;
        len.offer(link.image.len());
        // The bytes stay where they are until the link is destroyed, as the API has it.
        image.set(link.image.as_ptr() as usize)
    }

    fn cuLinkDestroy(link: Handle) {
        let found = client()?.links.lock().remove(&Kind::Link.id(link)?);
        found.map(drop).ok_or(Status::INVALID_HANDLE)
    }
}
