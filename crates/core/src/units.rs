//! Sizes and rates as people write them.
//!
//! Sizes are binary (`64K` is 65,536 bytes and prints `64 KiB`), rates decimal (`100mbit` is 12,500,000 bytes/s), as
//! `zstd` and `tc` have it. Parsing is exact; printing rounds to three digits.

use std::{fmt, str::FromStr};

/// What could not be read as a size or rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}; write it like {example}")]
pub struct ParseUnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// A length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = ParseUnitError;

    /// Reads `512`, `64K`, `64KiB`, `1M`, `2G`; all binary.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let fault = || ParseUnitError {
            text: text.into(),
            what: "size",
            example: "512, 64K, 1M or 2G",
        };
        let (number, unit) = split_unit(text);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(fault()),
        };
        let whole: u64 = number.parse().map_err(|_| fault())?;
        whole.checked_mul(1 << shift).map(Self).ok_or_else(fault)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = "B";
        for larger in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = larger;
        }
        write_short(f, value, unit)
    }
}

/// A speed in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

impl Rate {
    /// From decimal megabits per second, as links are sold.
    #[must_use]
    pub fn from_mbit(mbit: f64) -> Self {
        Self(mbit * 1e6 / 8.0)
    }

    /// In decimal megabits per second.
    #[must_use]
    pub fn mbit(self) -> f64 {
        self.0 * 8.0 / 1e6
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    /// Reads `10mbit`, `1gbit`, `2.5gbit`, `800kbit`, `bit` units only, decimal as `tc` has them.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let fault = || ParseUnitError {
            text: text.into(),
            what: "rate",
            example: "10mbit, 100mbit or 2.5gbit",
        };
        let (number, unit) = split_unit(text);
        let scale = match unit.to_ascii_lowercase().as_str() {
            "bit" | "bit/s" => 1.0,
            "kbit" | "kbit/s" => 1e3,
            "mbit" | "mbit/s" => 1e6,
            "gbit" | "gbit/s" => 1e9,
            _ => return Err(fault()),
        };
        let value: f64 = number.parse().map_err(|_| fault())?;
        if value.is_finite() && value > 0.0 {
            Ok(Self(value * scale / 8.0))
        } else {
            Err(fault())
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = self.mbit();
        if mbit >= 1000.0 {
            write_short(f, mbit / 1000.0, "Gbit/s")
        } else {
            write_short(f, mbit, "Mbit/s")
        }
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Three digits are what a reader takes in at a glance; more would claim a precision nobody measured.
fn write_short(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    if value >= 100.0 || value.fract() == 0.0 {
        write!(f, "{value:.0} {unit}")
    } else if value >= 10.0 {
        write!(f, "{value:.1} {unit}")
    } else {
        write!(f, "{value:.2} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_rates_decimal() {
        assert_eq!("64K".parse(), Ok(Size(65_536)));
        assert_eq!("2GiB".parse(), Ok(Size(2 << 30)));
        assert_eq!("100mbit".parse(), Ok(Rate(12_500_000.0)));
        assert_eq!("2.5gbit".parse::<Rate>().unwrap().mbit(), 2500.0);
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "K", "64X", "-1", "99999999999T", "1.5K"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        for text in ["", "100", "0mbit", "infmbit", "-1mbit"] {
            let err = text.parse::<Rate>().unwrap_err();
            assert!(err.to_string().contains("100mbit"), "{err}");
        }
    }

    #[test]
    fn printing_keeps_three_digits() {
        assert_eq!(Size(65_536).to_string(), "64 KiB");
        assert_eq!(Size(1536).to_string(), "1.50 KiB");
        assert_eq!(Rate::from_mbit(2500.0).to_string(), "2.50 Gbit/s");
        assert_eq!(Rate::from_mbit(95.7).to_string(), "95.7 Mbit/s");
    }
}
