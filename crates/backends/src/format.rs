//! DEFLATE's wrappings. Devices make and read the bare stream; header and checksum are put around it here.

use libdeflate_sys as libdeflate;
use narrows_core::{CodecId, Info};

/// What stands around a DEFLATE stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Nothing (RFC 1951).
    Deflate,
    /// Nothing, and no distance beyond 4 KiB.
    W4k,
    /// Two bytes before, Adler-32 behind (RFC 1950).
    Zlib,
    /// Ten bytes before, CRC-32 and length behind (RFC 1952).
    Gzip,
}

/// CM 8 with a window of 32 KiB, fastest; the two make a multiple of 31.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
/// CM 8, no flags, no time, fastest, unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

impl Format {
    /// The three that everybody reads, with [`Self::info`].
    pub(crate) const fn common(low: i16, high: i16) -> [(Self, Info); 3] {
        [
            (Self::Deflate, Self::Deflate.info(low, high)),
            (Self::Zlib, Self::Zlib.info(low, high)),
            (Self::Gzip, Self::Gzip.info(low, high)),
        ]
    }

    /// The codec's description where its levels are `low..=high`, of which the lowest is the default.
    pub(crate) const fn info(self, low: i16, high: i16) -> Info {
        let (id, name, format) = match self {
            Self::Deflate => (6, "deflate", "RFC 1951"),
            Self::Zlib => (7, "zlib", "RFC 1950"),
            Self::Gzip => (8, "gzip", "RFC 1952"),
            Self::W4k => (11, "deflate-w4k", "RFC 1951, distances up to 4096"),
        };
        Info {
            id: CodecId(id),
            name,
            levels: low..=high,
            level_default: low,
            history: false,
            format,
        }
    }

    /// Bytes before the stream.
    pub(crate) fn header(self) -> &'static [u8] {
        match self {
            Self::Deflate | Self::W4k => &[],
            Self::Zlib => &ZLIB_HEADER,
            Self::Gzip => &GZIP_HEADER,
        }
    }

    /// Length of what stands behind the stream.
    pub(crate) fn trailer_len(self) -> usize {
        match self {
            Self::Deflate | Self::W4k => 0,
            Self::Zlib => 4,
            Self::Gzip => 8,
        }
    }

    /// Where in `out` the stream goes; `None` where not even the wrapping fits.
    pub(crate) fn body_mut(self, out: &mut [u8]) -> Option<&mut [u8]> {
        let end = out.len().checked_sub(self.trailer_len())?;
        out.get_mut(self.header().len()..end)
    }

    /// Puts the wrapping around a stream of `body_len` bytes that [`Self::body_mut`] took; returns the whole length.
    pub(crate) fn seal(self, raw: &[u8], out: &mut [u8], body_len: usize) -> usize {
        let header = self.header();
        out[..header.len()].copy_from_slice(header);
        let trailer = &mut out[header.len() + body_len..][..self.trailer_len()];
        trailer.copy_from_slice(&self.trailer(raw)[..self.trailer_len()]);
        header.len() + body_len + self.trailer_len()
    }

    /// The stream inside `packed` and the trailer behind it. `None` for what is not wrapped plainly: optional fields of
    /// gzip are the CPU's affair.
    pub(crate) fn open(self, packed: &[u8]) -> Option<(&[u8], &[u8])> {
        let plain = match self {
            Self::Deflate | Self::W4k => true,
            Self::Zlib => {
                let &[cmf, flags, ..] = packed else {
                    return None;
                };
                cmf & 0x0f == 8
                    && cmf >> 4 <= 7
                    && flags & 0x20 == 0
                    && u16::from_be_bytes([cmf, flags]) % 31 == 0
            }
            // Method 8 and no flag; time, effort and system are free.
            Self::Gzip => packed.starts_with(&GZIP_HEADER[..4]),
        };
        let end = packed.len().checked_sub(self.trailer_len())?;
        let body = packed.get(self.header().len()..end)?;
        plain.then_some((body, &packed[end..]))
    }

    /// Whether `trailer` is that of `raw`.
    pub(crate) fn fits(self, trailer: &[u8], raw: &[u8]) -> bool {
        trailer == &self.trailer(raw)[..self.trailer_len()]
    }

    fn trailer(self, raw: &[u8]) -> [u8; 8] {
        let (start, len) = (raw.as_ptr().cast(), raw.len());
        let mut trailer = [0; 8];
        match self {
            Self::Deflate | Self::W4k => {}
            Self::Zlib => {
                // SAFETY: reads `len` bytes from `start`, which are `raw`.
                let adler = unsafe { libdeflate::libdeflate_adler32(1, start, len) };
                trailer[..4].copy_from_slice(&adler.to_be_bytes());
            }
            Self::Gzip => {
                // SAFETY: as above.
                let crc = unsafe { libdeflate::libdeflate_crc32(0, start, len) };
                trailer[..4].copy_from_slice(&crc.to_le_bytes());
                trailer[4..].copy_from_slice(&(len as u32).to_le_bytes());
            }
        }
        trailer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_and_fits_nothing_else() {
        let (raw, body) = (b"sixteen byte str", b"a stream");
        for format in [Format::Deflate, Format::W4k, Format::Zlib, Format::Gzip] {
            let mut out = [0; 64];
            format.body_mut(&mut out).unwrap()[..body.len()].copy_from_slice(body);
            let len = format.seal(raw, &mut out, body.len());
            let (opened, trailer) = format.open(&out[..len]).unwrap();
            assert_eq!(opened, body);
            assert!(format.fits(trailer, raw));
            assert_eq!(
                format.fits(trailer, b"sixteen byte stR"),
                format.trailer_len() == 0
            );
            for cut in 0..len - body.len() {
                assert_eq!(format.open(&out[..cut]), None, "{format:?} cut at {cut}");
            }
        }
    }

    // RFC 1950 §2.2, RFC 1952 §2.3: what a device is not asked to understand.
    #[test]
    fn headers_with_more_in_them_are_the_cpus() {
        assert!(
            Format::Zlib.open(&[0x78, 0x9c, 0, 0, 0, 0, 0]).is_some(),
            "another effort"
        );
        assert_eq!(
            Format::Zlib.open(&[0x78, 0xbb, 0, 0, 0, 0, 0]),
            None,
            "a dictionary"
        );
        assert_eq!(
            Format::Zlib.open(&[0x78, 0x02, 0, 0, 0, 0, 0]),
            None,
            "a wrong check"
        );
        let mut gzip = [0; 20];
        gzip[..10].copy_from_slice(&GZIP_HEADER);
        gzip[4..10].fill(7);
        assert!(
            Format::Gzip.open(&gzip).is_some(),
            "another time, effort and system"
        );
        gzip[3] = 8;
        assert_eq!(Format::Gzip.open(&gzip), None, "a name");
    }
}
