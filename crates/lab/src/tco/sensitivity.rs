//! Which assumptions carry a saving: every input at both ends of its range, the others as they are.

use serde::Serialize;

use super::{Fault, Inputs, Saving, costs};

/// What one input does to a design's saving against the baseline.
#[derive(Debug, Clone, Serialize)]
pub struct Swing {
    /// The input's full name.
    pub input: String,
    /// Its unit.
    pub unit: String,
    /// Its low end.
    pub low: f64,
    /// Its high end.
    pub high: f64,
    /// The saving at its low end.
    pub at_low: Saving,
    /// The saving at its high end.
    pub at_high: Saving,
}

impl Swing {
    /// How far a kind of saving moves between the two ends.
    #[must_use]
    pub fn width(&self, of: impl Fn(&Saving) -> f64) -> f64 {
        (of(&self.at_low) - of(&self.at_high)).abs()
    }
}

/// The swings of one design, widest first by the saving per server.
///
/// # Errors
/// [`Fault`] where an end of a range is none the model can take.
///
/// # Panics
/// Where `design` is none of the inputs'.
pub fn swings(inputs: &Inputs, design: usize) -> Result<Vec<Swing>, Fault> {
    let baseline = inputs
        .baseline()
        .ok_or_else(|| Fault::Baseline(inputs.baseline.clone()))?;
    let mut swings = Vec::new();
    for (name, input) in inputs.all().filter(|(name, _)| !name.starts_with("link.")) {
        let (low, high) = (
            input.low.unwrap_or(input.value),
            input.high.unwrap_or(input.value),
        );
        if low == high {
            continue;
        }
        let at = |value: f64| {
            let mut changed = inputs.clone();
            changed.set(&name, value)?;
            let costs = costs(&changed)?;
            Ok::<_, Fault>(costs[design].saving(&costs[baseline]))
        };
        swings.push(Swing {
            low,
            high,
            at_low: at(low)?,
            at_high: at(high)?,
            unit: input.unit.clone(),
            input: name,
        });
    }
    swings.sort_by(|a, b| {
        b.width(|saving| saving.per_server)
            .total_cmp(&a.width(|saving| saving.per_server))
    });
    Ok(swings)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what carries the deck's claims is seen. The 9 % hangs on which processors suffice, and on what the fitted
    // drives cost; the 31 % on bandwidth per server.
    #[test]
    fn what_carries_the_claims_is_among_the_widest() {
        let swings = swings(&Inputs::deck(), 1).unwrap();
        let place = |name: &str| swings.iter().position(|swing| swing.input == name).unwrap();
        for name in [
            "stack_cpu_s_per_gb",
            "io_gb_per_s",
            "cpu_load_max",
            "drive_usd_per_tb",
            "drives",
            "drive_tb",
        ] {
            assert!(place(name) < 7, "{name}: {}", place(name));
        }
        assert_eq!(swings[0].input, "drives that compress.drive_price_factor");
        let io = &swings[place("io_gb_per_s")];
        assert!(io.width(|saving| saving.per_gb_per_s) > 0.1, "{io:?}");
        assert_eq!(
            swings[place("demand_tb")].width(|saving| saving.per_server),
            0.0
        );
    }
}
