//! Any part of a file is read without the rest.

use std::io::{Cursor, Read, Seek, SeekFrom};

use narrows_rest::{FileOptions, SeekReader, pack};
use narrows_testkit::data::{Kind, Random, make};

// Goal: seeks and reads go where those of a plain file go. Method: at random, beside a cursor over the content; also in
// files that were appended to one another.
#[test]
fn seeks_agree_with_a_plain_cursor() {
    let parts = [
        make(Kind::Text, 100_000, 1),
        make(Kind::Doubles, 4096, 2),
        Vec::new(),
        make(Kind::Random, 30_001, 3),
    ];
    let options = FileOptions::default().chunk_len(8192);
    let file: Vec<u8> = parts
        .iter()
        .flat_map(|part| pack(part, &options).unwrap())
        .collect();
    let content = parts.concat();
    let mut model = Cursor::new(&content);
    let mut reader = SeekReader::new(Cursor::new(&file)).unwrap();
    assert_eq!(reader.content_len(), content.len() as u64);
    let mut rng = Random(11);
    for _ in 0..3000 {
        let to = match rng.below(3) {
            0 => SeekFrom::Start(rng.below(content.len() + 5000) as u64),
            1 => SeekFrom::Current(rng.below(40_000) as i64 - 20_000),
            _ => SeekFrom::End(-(rng.below(content.len() + 50) as i64) + 20),
        };
        match (model.seek(to), reader.seek(to)) {
            (Ok(expected), Ok(got)) => assert_eq!(got, expected, "{to:?}"),
            (Err(_), Err(_)) => {}
            (expected, got) => panic!("{to:?}: {got:?}, not {expected:?}"),
        }
        let len = rng.below(20_000);
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        (&mut model)
            .take(len as u64)
            .read_to_end(&mut expected)
            .unwrap();
        (&mut reader)
            .take(len as u64)
            .read_to_end(&mut got)
            .unwrap();
        assert!(got == expected, "{to:?}, {len} bytes");
    }
}

// Goal: a part costs about what it is long, not what the file is. Method: bytes that the reader takes are counted.
#[test]
fn a_part_is_read_without_the_rest() {
    struct Counted(Cursor<Vec<u8>>, u64);
    impl Read for Counted {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let len = self.0.read(out)?;
            self.1 += len as u64;
            Ok(len)
        }
    }
    impl Seek for Counted {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }
    let content = make(Kind::Random, 4 << 20, 1);
    let file = pack(&content, &FileOptions::default().chunk_len(64 << 10)).unwrap();
    let mut reader = SeekReader::new(Counted(Cursor::new(file), 0)).unwrap();
    let mut part = [0; 1000];
    reader.seek(SeekFrom::Start(3_000_000)).unwrap();
    reader.read_exact(&mut part).unwrap();
    assert_eq!(part, content[3_000_000..3_001_000]);
    let read = reader.into_inner().1;
    assert!(read < 70 << 10, "{read} bytes were read");
}
