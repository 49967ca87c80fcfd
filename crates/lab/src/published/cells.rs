//! Cells of tables.

use crate::{report::Cell, trial::digits};

/// Heads of columns: text, and whether it is one of numbers.
#[must_use]
pub fn columns(heads: &[(&str, bool)]) -> Vec<(String, bool)> {
    heads
        .iter()
        .map(|(name, number)| ((*name).to_string(), *number))
        .collect()
}

/// A number in three digits; a dash where there is none.
#[must_use]
pub fn number(value: Option<f64>) -> Cell {
    match value {
        Some(value) if value >= 1e4 => thousands(value).into(),
        Some(value) => digits(value).into(),
        None => text("–"),
    }
}

/// Plain text.
#[must_use]
pub fn text(text: &str) -> Cell {
    text.to_string().into()
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_groups() {
        for (value, text) in [
            (Some(1.543), "1.54"),
            (Some(1_662_723.1), "1,662,723"),
            (Some(40_468.28), "40,468"),
            (None, "–"),
        ] {
            assert_eq!(number(value).text, text);
        }
    }
}
