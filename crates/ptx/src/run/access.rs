//! Loads, stores and atomics. Every access is checked for its bounds and its alignment.

use super::call::lanes_of;
use super::{Outcome, Runner, fault};
use crate::inst::{
    Address, Element, LOCAL_WINDOW, Lanes, PARAM_WINDOW, Place, Reg, SHARED_WINDOW, Src, WARP,
};
use crate::num::int::{ones, sign_extend};
use crate::{Atomic, ErrorKind, Memory};

impl<M: Memory> Runner<'_, M> {
    /// The addresses of a group's access, within their place.
    fn addresses(&self, address: &Address) -> Lanes {
        let base = self.warp.lanes(self.constants, address.base);
        let mut offset = address.offset;
        if address.place == Place::Frame {
            offset = offset.wrapping_add(i64::from(self.warp.window.local));
        }
        let limit = if address.is_narrow {
            0xffff_ffff
        } else {
            u64::MAX
        };
        base.map(|base| base.wrapping_add(offset as u64) & limit)
    }

    /// Checks alignment, and resolves generic addresses to a place.
    fn resolve(&self, place: Place, address: u64, len: u32, lane: usize) -> Outcome<(Place, u64)> {
        if address & u64::from(len - 1) != 0 {
            let space = place.name();
            return fault(
                ErrorKind::Misaligned {
                    address,
                    len,
                    space,
                },
                Some(lane),
            );
        }
        if place != Place::Generic {
            return Ok((place, address));
        }
        Ok(match address & !0xffff_ffff {
            SHARED_WINDOW => (Place::Shared, address - SHARED_WINDOW),
            LOCAL_WINDOW => (Place::Local, address - LOCAL_WINDOW),
            PARAM_WINDOW => (Place::Param, address - PARAM_WINDOW),
            _ => (Place::Global, address),
        })
    }

    pub(crate) fn load(
        &mut self,
        mask: u32,
        d: &[Reg],
        address: &Address,
        element: Element,
    ) -> Outcome<()> {
        if mask == 0 {
            return Ok(());
        }
        // Parameters are the same for all threads.
        if address.place == Place::Param
            && let Some(at) = self.uniform(address)
        {
            return self.load_param(mask, d, at, element);
        }
        let addresses = self.addresses(address);
        if self.load_span(mask, d, (address.place, &addresses), element) {
            return Ok(());
        }
        let len = element.bytes * d.len() as u32;
        let mut out = [[0; WARP]; 8];
        for lane in lanes_of(mask) {
            let (place, at) = self.resolve(address.place, addresses[lane], len, lane)?;
            if d.len() == 1 {
                out[0][lane] = self.load_one(place, at, element.bytes, lane)?;
                continue;
            }
            let mut bytes = [0; 64];
            let bytes = &mut bytes[..len as usize];
            self.read(place, at, bytes, lane)?;
            for (index, part) in bytes.chunks_exact(element.bytes as usize).enumerate() {
                out[index][lane] = little(part);
            }
        }
        for (index, &d) in d.iter().enumerate() {
            extend(&mut out[index], element);
            self.warp.write(d, mask, &out[index]);
        }
        Ok(())
    }

    /// The address, if it is a constant.
    fn uniform(&self, address: &Address) -> Option<u64> {
        let (slot, is_constant) = address.base.slot();
        is_constant.then(|| self.constants[slot][0].wrapping_add(address.offset as u64))
    }

    fn load_param(&mut self, mask: u32, d: &[Reg], at: u64, element: Element) -> Outcome<()> {
        let lane = mask.trailing_zeros() as usize;
        for (index, &d) in d.iter().enumerate() {
            let at = at + u64::from(element.bytes) * index as u64;
            let mut out = [self.load_one(Place::Param, at, element.bytes, lane)?; WARP];
            extend(&mut out, element);
            self.warp.write(d, mask, &out);
        }
        Ok(())
    }

    /// The usual case, threads side by side in global memory: one access for all of them.
    fn load_span(
        &mut self,
        mask: u32,
        d: &[Reg],
        (place, addresses): (Place, &Lanes),
        element: Element,
    ) -> bool {
        let len = element.bytes as usize * d.len();
        let Some(count) = side_by_side(mask, place, addresses, len) else {
            return false;
        };
        let mut bytes = [0; WARP * 64];
        let bytes = &mut bytes[..count * len];
        if self.memory.load(addresses[0], bytes).is_err() {
            return false;
        }
        for (index, &d) in d.iter().enumerate() {
            let mut out = [0; WARP];
            let width = element.bytes as usize;
            for (lane, bytes) in bytes.chunks_exact(len).enumerate() {
                out[lane] = little(&bytes[index * width..][..width]);
            }
            extend(&mut out, element);
            self.warp.write(d, mask, &out);
        }
        true
    }

    fn load_one(&self, place: Place, at: u64, len: u32, lane: usize) -> Outcome<u64> {
        if place != Place::Global {
            return match self.window(place, at, len, lane) {
                Some(bytes) => Ok(little(bytes)),
                None => self.out_of_bounds(place, at, len, lane),
            };
        }
        let loaded = match len {
            1 => self.memory.load_u8(at).map(u64::from),
            2 => self.memory.load_u16(at).map(u64::from),
            4 => self.memory.load_u32(at).map(u64::from),
            _ => self.memory.load_u64(at),
        };
        match loaded {
            Ok(value) => Ok(value),
            Err(error) => fault(ErrorKind::of_memory(error, at, len), Some(lane)),
        }
    }

    /// Reads bytes of any place.
    pub(crate) fn read(&self, place: Place, at: u64, out: &mut [u8], lane: usize) -> Outcome<()> {
        let len = out.len() as u32;
        if place == Place::Global {
            return match self.memory.load(at, out) {
                Ok(()) => Ok(()),
                Err(error) => fault(ErrorKind::of_memory(error, at, len), Some(lane)),
            };
        }
        match self.window(place, at, len, lane) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => self.out_of_bounds(place, at, len, lane),
        }
    }

    /// The bytes of an access to memory that the interpreter holds.
    fn window(&self, place: Place, at: u64, len: u32, lane: usize) -> Option<&[u8]> {
        let end = at.checked_add(u64::from(len))?;
        match place {
            Place::Shared => self.shared.get(at as usize..end as usize),
            Place::Param => self.launch.params.get(at as usize..end as usize),
            _ => Some(&self.warp.local[self.warp.stack(lane, at, len)?]),
        }
    }

    fn out_of_bounds<T>(&self, place: Place, address: u64, len: u32, lane: usize) -> Outcome<T> {
        let space = place.name();
        fault(
            ErrorKind::Address {
                address,
                len,
                space,
            },
            Some(lane),
        )
    }

    pub(crate) fn store(
        &mut self,
        mask: u32,
        s: &[Src],
        address: &Address,
        element: Element,
    ) -> Outcome<()> {
        if mask == 0 {
            return Ok(());
        }
        let addresses = self.addresses(address);
        let width = element.bytes as usize;
        let len = width * s.len();
        if let Some(count) = side_by_side(mask, address.place, &addresses, len) {
            let mut bytes = [0; WARP * 64];
            for (index, &s) in s.iter().enumerate() {
                let value = self.warp.lanes(self.constants, s);
                for lane in 0..count {
                    put(
                        &mut bytes[lane * len + index * width..][..width],
                        value[lane],
                    );
                }
            }
            if self
                .memory
                .store(addresses[0], &bytes[..count * len])
                .is_ok()
            {
                return Ok(());
            }
        }
        for lane in lanes_of(mask) {
            let (place, at) = self.resolve(address.place, addresses[lane], len as u32, lane)?;
            let mut bytes = [0; 64];
            for (index, &s) in s.iter().enumerate() {
                let value = self.warp.lanes(self.constants, s)[lane];
                put(&mut bytes[index * width..][..width], value);
            }
            self.write_bytes(place, at, &bytes[..len], lane)?;
        }
        Ok(())
    }

    /// Writes bytes of any place that can be written.
    pub(crate) fn write_bytes(
        &mut self,
        place: Place,
        at: u64,
        bytes: &[u8],
        lane: usize,
    ) -> Outcome<()> {
        let len = bytes.len() as u32;
        let range = match place {
            Place::Global => {
                let stored = match *bytes {
                    [a] => self.memory.store_u8(at, a),
                    [a, b] => self.memory.store_u16(at, u16::from_le_bytes([a, b])),
                    [a, b, c, d] => self.memory.store_u32(at, u32::from_le_bytes([a, b, c, d])),
                    _ => self.memory.store(at, bytes),
                };
                return match stored {
                    Ok(()) => Ok(()),
                    Err(error) => fault(ErrorKind::of_memory(error, at, len), Some(lane)),
                };
            }
            Place::Shared => at
                .checked_add(u64::from(len))
                .and_then(|end| self.shared.get_mut(at as usize..end as usize)),
            // Parameters of a kernel are constant.
            Place::Param => None,
            _ => self
                .warp
                .stack(lane, at, len)
                .map(|range| &mut self.warp.local[range]),
        };
        match range {
            Some(to) => {
                to.copy_from_slice(bytes);
                Ok(())
            }
            None => self.out_of_bounds(place, at, len, lane),
        }
    }

    pub(crate) fn copy_async(
        &mut self,
        mask: u32,
        to: &Address,
        from: &Address,
        (bytes, source): (u32, Option<Src>),
    ) -> Outcome<()> {
        let (to_at, from_at) = (self.addresses(to), self.addresses(from));
        for lane in lanes_of(mask) {
            let count = source.map_or(bytes, |source| {
                self.warp
                    .lane(self.constants, source, lane)
                    .min(u64::from(bytes)) as u32
            });
            let mut buffer = [0; 16];
            let (place, at) = self.resolve(from.place, from_at[lane], bytes, lane)?;
            self.read(place, at, &mut buffer[..count as usize], lane)?;
            let (place, at) = self.resolve(to.place, to_at[lane], bytes, lane)?;
            self.write_bytes(place, at, &buffer[..bytes as usize], lane)?;
        }
        Ok(())
    }

    pub(crate) fn atomic(
        &mut self,
        mask: u32,
        d: Option<Reg>,
        address: &Address,
        (request, s): (Atomic, [Src; 2]),
    ) -> Outcome<()> {
        let addresses = self.addresses(address);
        let [operands, compares] = s.map(|s| *self.warp.lanes(self.constants, s));
        let len = request.width.bytes();
        let mut out = [0; WARP];
        for lane in lanes_of(mask) {
            let (place, at) = self.resolve(address.place, addresses[lane], len, lane)?;
            let limit = ones(len * 8);
            let request = Atomic {
                operand: operands[lane] & limit,
                compare: compares[lane] & limit,
                ..request
            };
            if place == Place::Global {
                match self.memory.atomic(at, request) {
                    Ok(old) => out[lane] = old & limit,
                    Err(error) => return fault(ErrorKind::of_memory(error, at, len), Some(lane)),
                }
                continue;
            }
            let old = self.load_one(place, at, len, lane)?;
            let new = request.apply(old).to_le_bytes();
            self.write_bytes(place, at, &new[..len as usize], lane)?;
            out[lane] = old;
        }
        if let Some(d) = d {
            self.warp.write(d, mask, &out);
        }
        Ok(())
    }

    /// The address in shared memory that one thread gives, for matrices.
    pub(crate) fn shared_address(&self, address: &Address, lane: usize) -> Outcome<u64> {
        let at = self.addresses(address)[lane];
        let (place, at) = self.resolve(address.place, at, 16, lane)?;
        if place == Place::Shared {
            Ok(at)
        } else {
            self.out_of_bounds(place, at, 16, lane)
        }
    }
}

/// Whether the threads of `mask` are the first ones of the warp and access global memory side by
/// side; how many they are.
fn side_by_side(mask: u32, place: Place, addresses: &Lanes, len: usize) -> Option<usize> {
    if mask & mask.wrapping_add(1) != 0 || !matches!(place, Place::Global | Place::Generic) {
        return None;
    }
    let first = addresses[0];
    if !first.is_multiple_of(len as u64) || place == Place::Generic && first >= SHARED_WINDOW {
        return None;
    }
    let count = mask.count_ones() as usize;
    let step = len as u64;
    let mut differs = 0;
    for (lane, address) in addresses[..count].iter().enumerate() {
        differs |= address ^ first.wrapping_add(step * lane as u64);
    }
    (differs == 0).then_some(count)
}

fn little(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

fn put(to: &mut [u8], value: u64) {
    to.copy_from_slice(&value.to_le_bytes()[..to.len()]);
}

fn extend(lanes: &mut Lanes, element: Element) {
    if element.sign_to != 0 {
        let limit = ones(element.sign_to);
        for lane in lanes {
            *lane = sign_extend(*lane, element.bytes * 8) as u64 & limit;
        }
    }
}
