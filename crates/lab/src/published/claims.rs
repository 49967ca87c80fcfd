//! What the publications conclude, and whether it holds here: one line each, with both figures.

mod devices;
mod penaranda;
mod warnke;

use super::held::Held;
use crate::study::pictures::Verdict;

pub use penaranda::threshold;

/// A conclusion of theirs and what came out here.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Whose.
    pub of: &'static str,
    /// What they say.
    pub claim: &'static str,
    /// Their figure.
    pub theirs: String,
    /// Ours.
    pub ours: String,
    /// Whether it holds; none where it could not be measured.
    pub verdict: Option<Verdict>,
}

/// All of them, in the order of the page.
#[must_use]
pub fn all(held: &Held<'_>) -> Vec<Claim> {
    let mut claims = penaranda::penaranda(held);
    claims.extend(warnke::warnke(held));
    claims.extend(devices::qatzip(held));
    claims.extend(devices::bluefield(held));
    claims.extend(devices::ceph(held));
    claims
}

const PENARANDA: &str = "Peñaranda";
const WARNKE: &str = "Warnke";
const QATZIP: &str = "QEMU QATzip";
const BLUEFIELD: &str = "BlueField-2";
const CEPH: &str = "Ceph, drives";

fn claim(
    of: &'static str,
    claim: &'static str,
    theirs: impl Into<String>,
    ours: Option<(String, Verdict)>,
) -> Claim {
    let (ours, verdict) = match ours {
        Some((ours, verdict)) => (ours, Some(verdict)),
        None => ("not measured in this run".into(), None),
    };
    Claim {
        of,
        claim,
        theirs: theirs.into(),
        ours,
        verdict,
    }
}

fn graded(holds: bool, mostly: bool) -> Verdict {
    match (holds, mostly) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::Mostly,
        (false, false) => Verdict::DoesNot,
    }
}
