//! What carrying data over a link costs, raw and packed: time, egress, processors.

use serde::Serialize;

use super::{Fault, Inputs};

/// A month of transfers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transfer {
    /// Hours the link is busy, raw.
    pub raw_hours: f64,
    /// Hours the link is busy, packed.
    pub packed_hours: f64,
    /// Whether the packed bytes leave time over in the month; raw bytes that do not fit are why people pack.
    pub fits_packed: bool,
    /// The same of raw bytes.
    pub fits_raw: bool,
    /// USD of egress, raw.
    pub raw_egress_usd: f64,
    /// USD of egress, packed.
    pub packed_egress_usd: f64,
    /// Thread-hours of packing and unpacking.
    pub thread_hours: f64,
    /// USD of those.
    pub cpu_usd: f64,
    /// USD that packing saves; negative where it costs.
    pub saved_usd: f64,
    /// Threads that packing keeps busy at the link's rate.
    pub pack_threads: f64,
    /// Egress price in USD per GB at which packing neither saves nor costs.
    pub break_even_usd_per_gb: f64,
}

/// A month of transfers with the inputs of `[link]`. Energy is not in it: nobody measured it, and a rented processor's
/// price holds it.
///
/// # Errors
/// [`Fault::Missing`] where the file has no `[link]`.
pub fn month(inputs: &Inputs) -> Result<Transfer, Fault> {
    let of = |name: &str| {
        inputs
            .link
            .get(name)
            .map(|input| input.value)
            .ok_or_else(|| Fault::Missing(format!("link.{name}")))
    };
    let (gb, ratio) = (of("tb_per_month")? * 1e3, of("ratio")?.max(1.0));
    let gb_per_s = of("rate_mbit_s")? / 8e3;
    let (pack, unpack) = (of("pack_cpu_s_per_gb")?, of("unpack_cpu_s_per_gb")?);
    let (egress, core) = (of("egress_usd_per_gb")?, of("core_usd_per_hour")?);
    let raw_hours = gb / gb_per_s / 3600.0;
    let packed_hours = raw_hours / ratio;
    let thread_hours = gb * (pack + unpack) / 3600.0;
    let (raw_egress_usd, packed_egress_usd, cpu_usd) =
        (gb * egress, gb / ratio * egress, thread_hours * core);
    let saved_gb = gb - gb / ratio;
    Ok(Transfer {
        raw_hours,
        packed_hours,
        fits_packed: packed_hours <= HOURS_PER_MONTH,
        fits_raw: raw_hours <= HOURS_PER_MONTH,
        raw_egress_usd,
        packed_egress_usd,
        thread_hours,
        cpu_usd,
        saved_usd: raw_egress_usd - packed_egress_usd - cpu_usd,
        pack_threads: gb_per_s * ratio * pack,
        break_even_usd_per_gb: if saved_gb > 0.0 {
            cpu_usd / saved_gb
        } else {
            f64::INFINITY
        },
    })
}

const HOURS_PER_MONTH: f64 = 8766.0 / 12.0;

#[cfg(test)]
mod tests {
    use super::*;

    // By hand: 100 TB at 125 MB/s are 800,000 s; at 9 cents a GB 9,000 USD.
    #[test]
    fn a_month_is_what_a_pocket_calculator_says() {
        let mut inputs = Inputs::deck();
        inputs.set("link.ratio", 2.0).unwrap();
        let month = month(&inputs).unwrap();
        let close = |found: f64, by_hand: f64| {
            assert!((found / by_hand - 1.0).abs() < 1e-9, "{found} {by_hand}")
        };
        close(month.raw_hours, 800_000.0 / 3600.0);
        close(month.packed_hours, 400_000.0 / 3600.0);
        close(month.raw_egress_usd, 9000.0);
        close(month.cpu_usd, 100_000.0 * 2.7 / 3600.0 * 0.04);
        close(month.saved_usd, 4500.0 - 3.0);
        close(month.pack_threads, 0.125 * 2.0 * 2.0);
        close(month.break_even_usd_per_gb, 3.0 / 50_000.0);
        assert!(month.fits_raw && month.fits_packed);
    }

    #[test]
    fn what_does_not_shrink_saves_nothing() {
        let mut inputs = Inputs::deck();
        inputs.set("link.ratio", 0.98).unwrap();
        let month = month(&inputs).unwrap();
        assert!(month.saved_usd < 0.0 && month.packed_hours == month.raw_hours);
    }
}
