//! TLS settings from one directory of PEM files, under the names nbdkit, libnbd and QEMU give them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Once},
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::WebPkiServerVerifier,
    crypto::{CryptoProvider, ring},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject,
};

/// What is wrong with our own TLS files. Their owner corrects it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}; `narrows keys DIR` makes a working set", path.display())]
pub struct FileError {
    path: PathBuf,
    why: String,
}

pub(super) fn server_config(dir: &Path) -> Result<Arc<ServerConfig>, FileError> {
    let (roots, crls) = authority(dir)?;
    let (chain, key) = identity(dir, "server")?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .with_crls(crls)
        .only_check_end_entity_revocation()
        .build()
        .map_err(|err| fault(dir, "ca-cert.pem", &err))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring has TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|err| fault(dir, "server-key.pem", &err))?;
    // A resumed session would skip the look at revocations; a connection lives long enough to pay for a handshake.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

pub(super) fn client_config(dir: &Path) -> Result<Arc<ClientConfig>, FileError> {
    let (roots, crls) = authority(dir)?;
    let (chain, key) = identity(dir, "client")?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .with_crls(crls)
        .only_check_end_entity_revocation()
        .build()
        .map_err(|err| fault(dir, "ca-cert.pem", &err))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring has TLS 1.3")
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .map_err(|err| fault(dir, "client-key.pem", &err))?;
    Ok(Arc::new(config))
}

/// Named rather than taken from the process: a library must not depend on who installed a default first.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

type Authority = (
    Arc<RootCertStore>,
    Vec<CertificateRevocationListDer<'static>>,
);

fn authority(dir: &Path) -> Result<Authority, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(dir, "ca-cert.pem")? {
        roots
            .add(certificate)
            .map_err(|err| fault(dir, "ca-cert.pem", &err))?;
    }
    let name = "ca-crl.pem";
    // A name whose file cannot be read, or has no list in it, revokes nobody: that must not pass for no list.
    if fs::symlink_metadata(dir.join(name)).is_err_and(|err| err.kind() == io::ErrorKind::NotFound)
    {
        return Ok((Arc::new(roots), Vec::new()));
    }
    let crls: Vec<_> = CertificateRevocationListDer::pem_file_iter(dir.join(name))
        .and_then(Iterator::collect)
        .map_err(|err| fault(dir, name, &err))?;
    if crls.is_empty() {
        return Err(fault(dir, name, &"it holds no revocation list in PEM form"));
    }
    Ok((Arc::new(roots), crls))
}

fn identity(
    dir: &Path,
    side: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), FileError> {
    let chain = certificates(dir, &format!("{side}-cert.pem"))?;
    let name = format!("{side}-key.pem");
    let key =
        PrivateKeyDer::from_pem_file(dir.join(&name)).map_err(|err| fault(dir, &name, &err))?;
    // Once: it is read for each connection, and strangers may make many.
    static TOLD: Once = Once::new();
    TOLD.call_once(|| super::warn_of_readers(&dir.join(&name)));
    Ok((chain, key))
}

fn certificates(dir: &Path, name: &str) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(dir.join(name))
        .and_then(Iterator::collect)
        .map_err(|err| fault(dir, name, &err))?;
    if found.is_empty() {
        Err(fault(dir, name, &"it holds no certificate"))
    } else {
        Ok(found)
    }
}

fn fault(dir: &Path, name: &str, why: &dyn std::fmt::Display) -> FileError {
    FileError {
        path: dir.join(name),
        why: why.to_string(),
    }
}
