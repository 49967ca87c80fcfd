//! Makes a certificate authority, a server's and a client's certificate, and a pre-shared key, for `narrows keys`.
//!
//! Good for two hosts of one owner and for tests; an organisation has its own authority and puts its files under the
//! same names.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::{self, Write},
    iter::once,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// Name of the pre-shared key file in the directory.
pub const PSK_FILE: &str = "keys.psk";
/// Name of the authority's private key; only who issues more certificates needs it.
pub const CA_KEY_FILE: &str = "ca-key.pem";

const CA_CERT_FILE: &str = "ca-cert.pem";

const DAY: Duration = Duration::from_secs(86_400);

/// What to make.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Host names and addresses the server is reached by, beside `localhost` and its addresses.
    pub server_names: &'a [String],
    /// Name in the client's certificate.
    pub client: &'a str,
    /// User in the key file.
    pub psk_user: &'a str,
    /// Directory of an earlier call: its authority signs, and its pre-shared key is taken. For a further host.
    pub authority: Option<&'a Path>,
    /// How long the server's and client's certificates are valid. The authority's is valid for ten years.
    pub valid_for: Duration,
}

impl Default for Request<'_> {
    /// No further names, user `narrows`, an authority of its own, 825 days.
    fn default() -> Self {
        Self {
            server_names: &[],
            client: "narrows client",
            psk_user: "narrows",
            authority: None,
            valid_for: 825 * DAY,
        }
    }
}

/// Why no keys were made. Files made before the fault stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// A file is there; it may be in use, so it is left alone.
    #[error("{} exists; remove it or choose another directory", .0.display())]
    Exists(PathBuf),
    /// A server name that a certificate cannot carry.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The file system says no.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// A file of the authority that is to sign.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
}

/// Whether clients could compare `name` with what they connect to: a host name, one with `*.` before it, or an address.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    rustls::pki_types::ServerName::try_from(name.strip_prefix("*.").unwrap_or(name)).is_ok()
}

/// Makes all files in `dir`, which is created (mode 0700) if absent; private ones get mode 0600. Returns their paths.
///
/// # Errors
/// See [`KeysError`]; nothing is ever overwritten.
pub fn generate(dir: &Path, request: &Request<'_>) -> Result<Vec<PathBuf>, KeysError> {
    let today = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // From yesterday on: the other host's clock may be behind ours.
    let begin = date_time_ymd(1970, 1, 1) + today.saturating_sub(DAY);

    let authority = request.authority.map(Authority::read).transpose()?;
    let ca_key = match &authority {
        Some(authority) => KeyPair::from_pem(&authority.key)?,
        None => KeyPair::generate()?,
    };
    let mut ca = CertificateParams::default();
    ca.distinguished_name
        .push(DnType::CommonName, "narrows test authority");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (ca.not_before, ca.not_after) = (begin, begin + 3653 * DAY);
    let (ca_cert, ca_key_pem, psk) = match authority {
        Some(authority) => (authority.cert, None, authority.psk),
        None => {
            let psk = format!("{}:{}\n", request.psk_user, random_hex());
            let cert = ca.self_signed(&ca_key)?.pem();
            (cert, Some(ca_key.serialize_pem()), psk)
        }
    };
    // Of an earlier authority a certificate needs no more than its name and its key, and the name is always the same.
    let issuer = Issuer::new(ca, ca_key);

    let leaf = |common: &str, names: Vec<String>, usage| -> Result<_, KeysError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, common);
        // TLS 1.3 only signs. QEMU asks for the other, whatever the key (`crypto/tlscredsx509.c`: 10.0 does, 7.2.22
        // does not).
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (begin, begin + DAY + request.valid_for);
        Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    };
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
    names.extend(
        request
            .server_names
            .iter()
            .filter(|name| !names.contains(name))
            .cloned()
            .collect::<Vec<_>>(),
    );
    let (server_cert, server_key) =
        leaf("narrows server", names, ExtendedKeyUsagePurpose::ServerAuth)?;
    let (client_cert, client_key) = leaf(
        request.client,
        Vec::new(),
        ExtendedKeyUsagePurpose::ClientAuth,
    )?;

    let ca_key_file = ca_key_pem.map(|pem| (CA_KEY_FILE, pem, 0o600));
    let files = [
        ("server-cert.pem", server_cert, 0o644),
        ("server-key.pem", server_key, 0o600),
        ("client-cert.pem", client_cert, 0o644),
        ("client-key.pem", client_key, 0o600),
        (PSK_FILE, psk, 0o600),
    ];
    let files: Vec<_> = once((CA_CERT_FILE, ca_cert, 0o644))
        .chain(ca_key_file)
        .chain(files)
        .collect();
    write_all(dir, files)
}

/// What [`generate`] made for another host.
struct Authority {
    cert: String,
    key: String,
    psk: String,
}

impl Authority {
    fn read(dir: &Path) -> Result<Self, KeysError> {
        let read = |name| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|source| KeysError::Read { path, source })
        };
        Ok(Self {
            cert: read(CA_CERT_FILE)?,
            key: read(CA_KEY_FILE)?,
            psk: read(PSK_FILE)?,
        })
    }
}

/// Writes files of that name, content and mode, or none if one is there.
fn write_all(dir: &Path, files: Vec<(&str, String, u32)>) -> Result<Vec<PathBuf>, KeysError> {
    // All are looked at before any is written: half a new set beside half an old one would not work.
    if let Some((name, ..)) = files
        .iter()
        .find(|(name, ..)| fs::symlink_metadata(dir.join(name)).is_ok())
    {
        return Err(KeysError::Exists(dir.join(name)));
    }
    let fault = |path: &Path, source| KeysError::Write {
        path: path.into(),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|err| fault(dir, err))?;
    let mut made = Vec::new();
    for (name, content, mode) in files {
        let path = dir.join(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .map_err(|source| fault(&path, source))?;
        file.write_all(content.as_bytes())
            .map_err(|source| fault(&path, source))?;
        made.push(path);
    }
    Ok(made)
}

/// 32 random bytes.
fn random_hex() -> String {
    let mut key = [0; 32];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut key)
        .expect("the system gives random bytes");
    key.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a String takes all");
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::secure::{Auth, Psk, Side};

    #[test]
    fn made_files_load_are_private_and_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("pki");
        let made = generate(&dir, &Request::default()).unwrap();
        assert_eq!(made.len(), 7);
        for path in &made {
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o077;
            let secret = !path.to_string_lossy().ends_with("cert.pem");
            assert_eq!(mode == 0, secret, "{}", path.display());
        }
        assert!(matches!(
            generate(&dir, &Request::default()),
            Err(KeysError::Exists(_))
        ));
        let auth = Auth::Tls {
            dir: dir.clone(),
            server_name: None,
        };
        auth.check(Side::Client).unwrap();
        auth.check(Side::Server).unwrap();
        assert_eq!(
            Psk::load(&dir.join(PSK_FILE), None).unwrap().user(),
            "narrows"
        );
        fs::remove_file(dir.join("client-key.pem")).unwrap();
        let words = auth.check(Side::Client).unwrap_err().to_string();
        assert!(
            words.contains("client-key.pem") && words.contains("narrows keys"),
            "{words}"
        );
    }
}
