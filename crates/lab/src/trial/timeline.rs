//! Which codecs the adaptive policy took, read from its `--explain` lines.

use std::{fs, path::Path};

use narrows_core::CodecId;
use serde::{Deserialize, Serialize};

/// Chunks in a row that were packed alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Raw bytes before it.
    pub at: u64,
    /// Raw bytes.
    pub len: u64,
    /// Packed bytes.
    pub packed_len: u64,
    /// `zstd:1`, `raw`; `raw` also where packing did not shrink.
    pub codec: String,
}

/// What is used of `narrows.decision/1`.
#[derive(Deserialize)]
struct Line {
    seq: u64,
    codec: u8,
    level: i16,
    raw_len: u64,
    outcome: Outcome,
}

#[derive(Deserialize)]
struct Outcome {
    packed_len: u64,
}

/// Reads the trace of one transfer. A line that cannot be read is left out: the picture is no measurement.
pub(super) fn read(trace: &Path) -> Vec<Span> {
    let text = fs::read_to_string(trace).unwrap_or_default();
    let mut lines: Vec<Line> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    lines.sort_by_key(|line| line.seq);
    let registry = narrows::default_registry();
    let mut spans: Vec<Span> = Vec::new();
    let mut at = 0;
    for line in lines {
        let codec = match registry
            .by_id(CodecId(line.codec))
            .map(|codec| codec.info())
        {
            _ if line.outcome.packed_len >= line.raw_len => "raw".into(),
            Some(info) if info.levels.start() == info.levels.end() => info.name.to_string(),
            Some(info) => format!("{}:{}", info.name, line.level),
            None => format!("codec {}", line.codec),
        };
        match spans.last_mut() {
            Some(last) if last.codec == codec => {
                last.len += line.raw_len;
                last.packed_len += line.outcome.packed_len;
            }
            _ => spans.push(Span {
                at,
                len: line.raw_len,
                packed_len: line.outcome.packed_len,
                codec,
            }),
        }
        at += line.raw_len;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_packed_alike_are_one_span() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let line = |seq: u64, codec: u8, packed: u64| {
            format!(
                r#"{{"seq":{seq},"codec":{codec},"level":1,"raw_len":100,"outcome":{{"packed_len":{packed}}}}}"#
            )
        };
        let lines = [
            line(1, 9, 50),
            line(0, 9, 40),
            "nonsense".into(),
            line(2, 9, 100),
            line(3, 3, 60),
        ];
        fs::write(&path, lines.join("\n")).unwrap();
        let spans = read(&path);
        let told: Vec<_> = spans
            .iter()
            .map(|span| (span.at, span.len, span.packed_len, span.codec.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (0, 200, 90, "zstd:1"),
                (200, 100, 100, "raw"),
                (300, 100, 60, "snappy")
            ]
        );
    }
}
