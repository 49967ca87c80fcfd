//! A batch: the unit of commitment. Header, payloads, table of records, padding to 4 KiB.
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 8 | `NRWBATCH` |
//! | 8 | 16 | uuid of the store |
//! | 24 | 8 | epoch: drawn anew each time the store is opened |
//! | 32 | 8 | sequence number, dense |
//! | 40 | 8 | highest sequence number that was durable when this batch was sealed |
//! | 48 | 4 | CRC-32C of this header (these 4 bytes as zero) and the table |
//! | 52 | 4 | the CRC of the batch before it |
//! | 56 | 4 | segment it was written to |
//! | 60 | 4 | offset in it |
//! | 64 | 4 | length in bytes, padding with it |
//! | 68 | 4 | offset of the table in the batch |
//! | 72 | 4 | records |
//! | 76 | 8 | the two segments the log goes to when this one is full |
//! | 84 | 12 | zero |
//! | 96 | | payloads, each a multiple of 16 bytes, in the order of their records |

use super::{BLOCK, FormatError, GRANULE, UNIT_BLOCKS, crc, field, u16_at, u32_at, u64_at};

/// Length of the header in bytes; the first payload follows.
pub const HEADER: usize = 96;
/// Length of a record in bytes.
pub const RECORD: usize = 16;

const MAGIC: &[u8; 8] = b"NRWBATCH";
const CRC_AT: usize = 48;

/// What a batch says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Of the store.
    pub uuid: [u8; 16],
    /// Drawn anew each time the store is opened.
    pub epoch: u64,
    /// Dense within an epoch, and growing over epochs.
    pub seq: u64,
    /// Everything up to this was durable when the batch was sealed.
    pub durable: u64,
    /// Checksum of header and table.
    pub crc: u32,
    /// [`BatchHeader::crc`] of the batch before.
    pub previous: u32,
    /// Where it was written.
    pub segment: u32,
    /// Offset in that segment.
    pub offset: u32,
    /// Length in bytes, padding with it.
    pub len: u32,
    /// Where its table begins.
    pub table: u32,
    /// Records in the table.
    pub records: u32,
    /// The segments that follow.
    pub next: [u32; 2],
}

impl BatchHeader {
    /// Reads the header and checks its lengths against the segment's; the checksum needs the table
    /// too, see [`BatchHeader::check`].
    ///
    /// # Errors
    /// [`FormatError::Damaged`] if there is no header.
    pub fn parse(bytes: &[u8], segment_len: u32) -> Result<Self, FormatError> {
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return Err(FormatError::Damaged("no batch begins here"));
        }
        let header = Self {
            uuid: field(bytes, 8),
            epoch: u64_at(bytes, 24),
            seq: u64_at(bytes, 32),
            durable: u64_at(bytes, 40),
            crc: u32_at(bytes, CRC_AT),
            previous: u32_at(bytes, 52),
            segment: u32_at(bytes, 56),
            offset: u32_at(bytes, 60),
            len: u32_at(bytes, 64),
            table: u32_at(bytes, 68),
            records: u32_at(bytes, 72),
            next: [u32_at(bytes, 76), u32_at(bytes, 80)],
        };
        let table_end = u64::from(header.table) + u64::from(header.records) * RECORD as u64;
        let end = u64::from(header.offset) + u64::from(header.len);
        let sound = (header.table as usize) >= HEADER
            && (header.table as usize).is_multiple_of(GRANULE)
            && table_end <= u64::from(header.len)
            && end <= u64::from(segment_len)
            && (header.len as usize).is_multiple_of(BLOCK)
            && header.records > 0;
        if !sound {
            return Err(FormatError::Damaged("a batch with impossible lengths"));
        }
        Ok(header)
    }

    /// Checks header and table against the checksum. `header` is the first [`HEADER`] bytes.
    ///
    /// # Errors
    /// [`FormatError::Damaged`] if they do not fit.
    pub fn check(&self, header: &[u8], table: &[u8]) -> Result<(), FormatError> {
        if self.crc != checksum(header, table) {
            return Err(FormatError::Damaged("a batch's checksum is wrong"));
        }
        Ok(())
    }

    /// Writes the header over the first bytes of `batch`, whose table is already in place, and
    /// returns the checksum.
    pub fn write(&self, batch: &mut [u8]) -> u32 {
        let head = &mut batch[..HEADER];
        head.fill(0);
        head[..8].copy_from_slice(MAGIC);
        head[8..24].copy_from_slice(&self.uuid);
        head[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        head[32..40].copy_from_slice(&self.seq.to_le_bytes());
        head[40..48].copy_from_slice(&self.durable.to_le_bytes());
        head[52..56].copy_from_slice(&self.previous.to_le_bytes());
        head[56..60].copy_from_slice(&self.segment.to_le_bytes());
        head[60..64].copy_from_slice(&self.offset.to_le_bytes());
        head[64..68].copy_from_slice(&self.len.to_le_bytes());
        head[68..72].copy_from_slice(&self.table.to_le_bytes());
        head[72..76].copy_from_slice(&self.records.to_le_bytes());
        head[76..80].copy_from_slice(&self.next[0].to_le_bytes());
        head[80..84].copy_from_slice(&self.next[1].to_le_bytes());
        let (table, records) = (self.table as usize, self.records as usize);
        let sum = checksum(&batch[..HEADER], &batch[table..table + records * RECORD]);
        batch[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
        sum
    }
}

fn checksum(header: &[u8], table: &[u8]) -> u32 {
    crc(&[
        &header[..CRC_AT],
        &[0; 4],
        &header[CRC_AT + 4..HEADER],
        table,
    ])
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Blocks written by the device's user.
    Data,
    /// Blocks that the store moved.
    Moved,
    /// Blocks that became zero.
    Zero,
    /// Blocks that are no longer wanted.
    Trim,
    /// A page of the map. Means something only to the superblock's tree.
    Page,
}

/// One change of the map, in 16 bytes: 6 of the block's number (of a page its tag's), 1 of kind, 1
/// of mask, 4 of count, 2 of payload length in granules, 2 of zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub kind: Kind,
    /// First block, or a page's tag.
    pub first: u64,
    /// Blocks.
    pub count: u32,
    /// Payload length in granules.
    pub granules: u16,
    /// Of a unit, the blocks whose entries it sets: all, unless some were overwritten while it was
    /// moved.
    pub mask: u8,
}

impl Record {
    /// Appends it to a table.
    pub fn write(&self, table: &mut Vec<u8>) {
        let kind = match self.kind {
            Kind::Data => 1,
            Kind::Moved => 2,
            Kind::Zero => 3,
            Kind::Trim => 4,
            Kind::Page => 5,
        };
        // A page's tag has its level in bits 48 to 56, which is the byte of the kind: pages have no
        // mask, so it goes there.
        let (first, mask) = match self.kind {
            Kind::Page => (self.first & BLOCK_BITS, (self.first >> 48) as u8),
            _ => (self.first, self.mask),
        };
        table.extend_from_slice(&first.to_le_bytes()[..6]);
        table.extend_from_slice(&[kind, mask]);
        table.extend_from_slice(&self.count.to_le_bytes());
        table.extend_from_slice(&self.granules.to_le_bytes());
        table.extend_from_slice(&[0; 2]);
    }

    /// Reads one of a table.
    ///
    /// # Errors
    /// [`FormatError::Damaged`] if it says nothing.
    pub fn parse(bytes: &[u8; RECORD]) -> Result<Self, FormatError> {
        let number = u64_at(bytes, 0) & BLOCK_BITS;
        let kind = match bytes[6] {
            1 => Kind::Data,
            2 => Kind::Moved,
            3 => Kind::Zero,
            4 => Kind::Trim,
            5 => Kind::Page,
            _ => return Err(FormatError::Damaged("a record of an unknown kind")),
        };
        let record = match kind {
            Kind::Page => Self {
                kind,
                first: u64::from(bytes[7]) << 48 | number,
                count: u32_at(bytes, 8),
                granules: u16_at(bytes, 12),
                mask: 0,
            },
            _ => Self {
                kind,
                first: number,
                count: u32_at(bytes, 8),
                granules: u16_at(bytes, 12),
                mask: bytes[7],
            },
        };
        let sound = match kind {
            Kind::Data | Kind::Moved => {
                (1..=UNIT_BLOCKS as u32).contains(&record.count) && record.granules > 0
            }
            Kind::Page => record.granules > 0,
            Kind::Zero | Kind::Trim => record.count > 0 && record.granules == 0,
        };
        if sound {
            Ok(record)
        } else {
            Err(FormatError::Damaged("a record that contradicts itself"))
        }
    }
}

const BLOCK_BITS: u64 = (1 << 48) - 1;

/// Reads a table. Payloads must lie between header and table.
///
/// # Errors
/// [`FormatError::Damaged`] if a record is not sound or payloads do not fit.
pub fn parse_table(header: &BatchHeader, table: &[u8]) -> Result<Vec<Record>, FormatError> {
    let mut records = Vec::with_capacity(table.len() / RECORD);
    let mut end = HEADER;
    for bytes in table.as_chunks::<RECORD>().0 {
        let record = Record::parse(bytes)?;
        end += usize::from(record.granules) * GRANULE;
        records.push(record);
    }
    if end > header.table as usize {
        return Err(FormatError::Damaged("payloads reach into the table"));
    }
    Ok(records)
}
