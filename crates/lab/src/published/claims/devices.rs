//! Conclusions on accelerators, offload and storage: QATzip, BlueField-2, Ceph beside drives that compress.

use super::{BLUEFIELD, CEPH, Claim, QATZIP, claim, graded};
use crate::{published::held::Held, study::pictures::Verdict, tco};

pub(super) fn qatzip(held: &Held<'_>) -> Vec<Claim> {
    let value = |method: &str, name: &str| {
        held.last("qatzip", |case| case.device.as_deref() == Some(method))?
            .value(name)
    };
    let time = || {
        let (none, zstd, ours) = (
            value("none", "total_ms")?,
            value("zstd-1", "total_ms")?,
            value("aware", "total_ms")?,
        );
        Some((
            format!(
                "{:.2} × by zstd, {:.2} × by ours, at 1 Gbit/s",
                zstd / none,
                ours / none
            ),
            Verdict::Holds,
        ))
    };
    let cpu = || {
        let (zstd, ours) = (
            value("zstd-1", "send_cpu_percent")?,
            value("aware", "send_cpu_percent")?,
        );
        Some((
            format!(
                "no QAT here; ours {:.2} × zstd's, tunnel and all",
                ours / zstd
            ),
            graded(false, ours < zstd),
        ))
    };
    let memory = || {
        let row = held.last("qatzip memory", |case| case.threads == Some(8))?;
        let (send, recv) = (row.value("send_rss_mb")?, row.value("recv_rss_mb")?);
        Some((
            format!("{send:.0} and {recv:.0} MB: it keeps pages to refer to"),
            Verdict::DoesNot,
        ))
    };
    vec![
        claim(
            QATZIP,
            "zstd shortens a migration of Silesia over 8 channels",
            "0.44 × none, at 10 Gbit/s",
            time(),
        ),
        claim(
            QATZIP,
            "QATzip takes a fifth of zstd's processor time at the sender",
            "160 against 810 %",
            cpu(),
        ),
        claim(
            QATZIP,
            "8 channels take some 20 MB at each end",
            "16 and 20 MB of QAT memory",
            memory(),
        ),
    ]
}

pub(super) fn bluefield(held: &Held<'_>) -> Vec<Claim> {
    let row = |data: &str, codec: &str| {
        held.last("bluefield", |case| {
            case.data.as_deref() == Some(data) && case.codec.as_deref() == Some(codec)
        })
    };
    let speed = || {
        let pack = |data, codec| row(data, codec)?.value("pack_s");
        let times = [
            pack("float", "deflate:6")? / pack("float", "deflate:1")?,
            pack("text", "deflate:6")? / pack("text", "deflate:1")?,
        ];
        let text = format!(
            "no card here; a vector library {:.1} × and {:.1} × the host's DEFLATE 6",
            times[0], times[1]
        );
        Some((text, Verdict::DoesNot))
    };
    let around = || {
        let overs: Vec<f64> = held
            .part("bluefield")
            .filter_map(|row| row.value("over"))
            .collect();
        let most = overs.iter().copied().reduce(f64::max)?;
        Some((
            format!("{most:.2} × at most in {} cells at 10 Gbit/s", overs.len()),
            graded(most > 1.5, most > 1.25),
        ))
    };
    vec![
        claim(
            BLUEFIELD,
            "The card packs DEFLATE 44 × on floats and 26 × on text as fast as one core of the host",
            "0.128 and 0.060 s",
            speed(),
        ),
        claim(
            BLUEFIELD,
            "There and back takes 1.74 × the slower of copying and packing",
            "0.330 against 0.190 s",
            around(),
        ),
    ]
}

pub(super) fn ceph(held: &Held<'_>) -> Vec<Claim> {
    let value = |device: &str, operation: &str, name: &str| {
        let wanted = |case: &crate::result::Case| {
            case.device.as_deref() == Some(device) && case.operation.as_deref() == Some(operation)
        };
        held.last("ceph", wanted)?.value(name)
    };
    let write = || {
        let (zstd, ours) = (
            value("ceph zstd 64K", "seq write 128k", "mb_s")?,
            value("narrows fast above RBD", "seq write 128k", "mb_s")?,
        );
        Some((
            format!("no such drives; packing at the client {:.2} ×", ours / zstd),
            graded(ours / zstd >= 1.3, ours > zstd),
        ))
    };
    let ratio = || {
        let (zstd, fast) = (
            value("ceph zstd 64K", "fill", "ratio")?,
            value("narrows fast above RBD", "fill", "ratio")?,
        );
        let balanced = value("narrows balanced above RBD", "fill", "ratio")?;
        Some((
            format!("zstd {zstd:.3}; ours {fast:.2} and {balanced:.2}"),
            graded((zstd - 2.285).abs() < 0.01, false),
        ))
    };
    let cost = || {
        let costs = tco::costs(&tco::Inputs::deck()).ok()?;
        let saved = costs.get(1)?.saving(costs.first()?);
        let text = format!(
            "{:+.0} % a server, {:+.0} % a GB/s, {:+.0} % a TB",
            -100.0 * saved.per_server,
            -100.0 * saved.per_gb_per_s,
            -100.0 * saved.per_tb
        );
        Some((text, Verdict::Mostly))
    };
    vec![
        claim(
            CEPH,
            "Packing elsewhere than in Ceph writes faster than Ceph's zstd",
            "1.32 × by the drives",
            write(),
        ),
        claim(
            CEPH,
            "Ceph's zstd stores 2.285 to 1, the drives 2 to 1",
            "2.285 and 2",
            ratio(),
        ),
        claim(
            CEPH,
            "It saves money: 9 % a server, 31 % a GB/s",
            "-9 %, -31 %",
            cost(),
        ),
    ]
}
