//! The model fed with a measured comparison: rows that `bench/disk/run.py --deck` wrote.
//!
//! That run is one machine with a small cluster; the model is of servers with 128 threads. What carries over is the
//! *relation* of processor times: Ceph without compression is taken to cost what the bundled inputs say of the stack
//! (`stack_cpu_s_per_gb`), and every other design as many times that as was measured beside it in the same run. Ratios
//! carry over as they are. Bandwidth of the drives is left equal for all, though fewer bytes reach them from a design
//! that compresses above; that is against us.

use super::inputs::{Design, Fault, Input, Inputs};
use crate::result::Row;

/// `part` of the rows that count.
pub const PART: &str = "deck";
/// `operation` of the rows that count: the published comparison's own first line.
pub const OPERATION: &str = "seq write 128k";
/// `operation` of the rows that have the ratio.
const FILL: &str = "fill";
/// The device that the others are scaled by.
const NONE: &str = "ceph none";
/// The device that the others are compared with, as in the publication.
pub const BASELINE: &str = "ceph zstd 64K";

impl Inputs {
    /// These inputs with the designs of a measured comparison in place of their own.
    ///
    /// # Errors
    /// [`Fault::Missing`] where the rows lack a device or a number.
    pub fn from_disk(mut self, rows: &[Row]) -> Result<Self, Fault> {
        let of = |device: &str, operation: &str, value: &str| -> Result<f64, Fault> {
            let is = |row: &&Row| {
                row.case.part.as_deref() == Some(PART)
                    && row.case.device.as_deref() == Some(device)
                    && row.case.operation.as_deref() == Some(operation)
            };
            // The last run counts.
            rows.iter()
                .filter(is)
                .filter_map(|row| row.value(value))
                .next_back()
                .ok_or_else(|| Fault::Missing(format!("{device}, {operation}: {value}")))
        };
        let cpu = |device: &str| -> Result<f64, Fault> {
            Ok(of(device, OPERATION, "server_cpu_s_per_gb")?
                + of(device, OPERATION, "client_cpu_s_per_gb")?)
        };
        let none = cpu(NONE)?;
        if none <= 0.0 {
            return Err(Fault::Missing(format!("{NONE}: processor time above 0")));
        }
        let stack = self.value("stack_cpu_s_per_gb");
        let mut designs = Vec::new();
        for device in devices(rows) {
            let times = cpu(device)? / none;
            designs.push(design(
                device,
                of(device, FILL, "ratio")?,
                times,
                times * stack,
            ));
        }
        self.designs = designs;
        self.baseline = BASELINE.into();
        self.title = "Compression above Ceph RBD, in its BlueStore, and none, as measured".into();
        self.check()?;
        Ok(self)
    }
}

/// Devices that were measured, in order, each once.
fn devices(rows: &[Row]) -> Vec<&str> {
    let mut found = Vec::new();
    for row in rows {
        let counts = row.case.part.as_deref() == Some(PART)
            && row.case.operation.as_deref() == Some(OPERATION)
            && row.value("app_gb_s").is_some();
        if let Some(device) = row.case.device.as_deref().filter(|_| counts)
            && !found.contains(&device)
        {
            found.push(device);
        }
    }
    found
}

fn design(name: &str, ratio: f64, times: f64, cpu_s_per_gb: f64) -> Design {
    let input = |value, unit: &str, source: String| Input {
        value,
        unit: unit.into(),
        low: None,
        high: None,
        source,
    };
    let by = "measured by bench/disk/run.py --deck";
    Design {
        name: name.into(),
        // Measured as room that the stores gave, so it is rounded already.
        unit_bytes: 1e15,
        granule_bytes: 1.0,
        ratio: input(
            ratio,
            "raw per stored byte",
            format!("{by}: after the fill"),
        ),
        pack_cpu_s_per_gb: input(0.0, "thread-s per GB", "in `host_cpu_s_per_gb`".into()),
        host_cpu_s_per_gb: Some(input(
            cpu_s_per_gb,
            "thread-s per GB",
            format!("{by}: stores and clients took {times:.2} times what {NONE} took"),
        )),
        packs_each_copy: false,
        drive_price_factor: input(1.0, "price of a plain drive", "plain drives".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{result::Case, tco};

    fn row(device: &str, operation: &str, values: [(&str, f64); 3]) -> Row {
        let case = Case {
            part: Some(PART.into()),
            device: Some(device.into()),
            operation: Some(operation.into()),
            ..Case::default()
        };
        Row::new(case, values)
    }

    fn of(device: &str, ratio: f64, server: f64) -> [Row; 2] {
        [
            row(device, FILL, [("ratio", ratio), ("x", 0.0), ("y", 0.0)]),
            row(
                device,
                OPERATION,
                [
                    ("app_gb_s", 1.0),
                    ("server_cpu_s_per_gb", server),
                    ("client_cpu_s_per_gb", 1.0),
                ],
            ),
        ]
    }

    // Goal: relations of processor time become relations of bandwidth and cost; the best of both is dearest of none.
    #[test]
    fn relations_carry_over() {
        let rows = [
            of(NONE, 1.0, 4.0),
            of(BASELINE, 2.25, 9.0),
            of("narrows fast above RBD", 2.4, 2.0),
        ]
        .concat();
        let inputs = Inputs::deck().from_disk(&rows).unwrap();
        let costs = tco::costs(&inputs).unwrap();
        assert_eq!(costs.len(), 3);
        // Twice the stack's 10.25 thread-seconds bind the processors; 0.6 of them do not.
        assert!((costs[1].gb_per_s - 128.0 * 0.93 / 20.5).abs() < 1e-6);
        assert!((costs[2].gb_per_s - 8.3).abs() < 1e-6 && !costs[2].cpu_bound);
        assert!((costs[2].allocated_ratio - 2.4).abs() < 1e-6);
        let saving = costs[2].saving(&costs[1]);
        assert!(saving.per_server > 0.0 && saving.per_tb > saving.per_server);
        assert!(saving.per_gb_per_s > 0.25, "{saving:?}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = |rows: &[Row]| Inputs::deck().from_disk(rows).unwrap_err().to_string();
        assert!(missing(&[]).contains(NONE));
        let rows = of(NONE, 1.0, 4.0);
        assert!(missing(&rows).contains(BASELINE), "{}", missing(&rows));
        assert!(missing(&rows[1..]).contains("ratio"));
    }
}
