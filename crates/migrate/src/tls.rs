//! QEMU's own TLS, with the certificates that narrows itself uses: for a QEMU that connects without a tunnel.
//!
//! QEMU reads the same files under the same names. It is given them for one migration and no longer, and only where
//! nobody has given it others: what those are good for is not ours to judge, and whoever set them expects to find them
//! there.

use std::path::{Path, absolute};

use serde_json::{Value, json};

use crate::{monitor::Monitor, qmp::QmpError};

/// The object in QEMU. One that is there was left by a narrows that was killed.
const ID: &str = "narrows-tls";

/// Which part a QEMU plays in a handshake.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// Connects, and takes no server whose certificate does not carry this name.
    Client(&'a str),
    /// Is connected to, and takes no client without a certificate of its authority.
    Server,
}

/// Why a QEMU has no certificates of ours. It can be moved all the same, through the tunnel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LendError {
    /// It has others.
    #[error("its tls-creds are set already, to {0}, and are left as they are")]
    Held(String),
    /// It cannot use them: not readable by its user, for example, or such as its TLS library does not take.
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

/// Takes away what a narrows that was killed has left: QEMU would use it for its next connection, whatever that is.
///
/// # Errors
/// [`QmpError`]
pub fn clear(monitor: &mut Monitor) -> Result<(), QmpError> {
    let held = monitor.ask("query-migrate-parameters", &Value::Null)?;
    if held["tls-creds"] == ID {
        monitor.ask(
            "migrate-set-parameters",
            &json!({ "tls-creds": "", "tls-hostname": "" }),
        )?;
    }
    let _ = monitor.ask("object-del", &json!({ "id": ID }));
    Ok(())
}

/// What is to be put back.
#[derive(Debug)]
pub struct Lent {
    hostname: String,
}

impl Lent {
    /// Gives the QEMU behind `monitor` the certificates in `dir`. It uses them for every connection of its next
    /// migrations.
    ///
    /// # Errors
    /// [`LendError`]; QEMU is then as it was.
    pub fn new(monitor: &mut Monitor, dir: &Path, part: Part<'_>) -> Result<Self, LendError> {
        clear(monitor)?;
        let held = monitor.ask("query-migrate-parameters", &Value::Null)?;
        let word = |name: &str| held[name].as_str().unwrap_or_default().to_owned();
        if !word("tls-creds").is_empty() {
            return Err(LendError::Held(word("tls-creds")));
        }
        let lent = Self {
            hostname: word("tls-hostname"),
        };
        let (endpoint, hostname) = match part {
            Part::Client(name) => ("client", name),
            Part::Server => ("server", lent.hostname.as_str()),
        };
        // QEMU's working directory is its own.
        let dir = absolute(dir).unwrap_or_else(|_| dir.into());
        let object = json!({ "qom-type": "tls-creds-x509", "id": ID, "endpoint": endpoint, "dir": dir, "verify-peer": true });
        monitor.ask("object-add", &object)?;
        let parameters = json!({ "tls-creds": ID, "tls-hostname": hostname });
        if let Err(fault) = monitor.ask("migrate-set-parameters", &parameters) {
            lent.take_back(monitor);
            return Err(fault.into());
        }
        Ok(lent)
    }

    /// Leaves QEMU as it was before. One that does not answer any more has nothing to be left with.
    pub fn take_back(&self, monitor: &mut Monitor) {
        let _ = monitor.ask(
            "migrate-set-parameters",
            &json!({ "tls-creds": "", "tls-hostname": self.hostname }),
        );
        let _ = monitor.ask("object-del", &json!({ "id": ID }));
    }
}
