//! Where a peer listens: `HOST[:PORT]`, `tcp://HOST:PORT`, `unix:/path` or `-`.
//!
//! Why a type of our own: whether an endpoint may go without authentication depends on it ([`Address::is_local`]), so
//! it is read once, printed back as it was meant, and never guessed from strings later.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

/// One endpoint. Printing it gives a text that [`Address::parse`] reads back to the same value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP endpoint; `host` is a name or a literal address without brackets.
    Tcp {
        /// Name or literal address, IPv6 without brackets.
        host: String,
        /// Port; 0 asks the system for a free one when listening.
        port: u16,
    },
    /// A Unix stream socket in the file system.
    Unix(PathBuf),
    /// Standard input and output of this process.
    Stdio,
}

/// Why a text is not an address. Always a mistake of whoever typed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an address: {why}; write HOST, HOST:PORT, [IPV6]:PORT, unix:/path or -")]
pub struct ParseAddressError {
    text: String,
    why: &'static str,
}

impl Address {
    /// Reads `text`; a TCP address without a port gets `default_port`.
    ///
    /// # Errors
    /// Says what is wrong with `text` and shows the accepted forms.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, ParseAddressError> {
        let fault = |why| ParseAddressError {
            text: text.into(),
            why,
        };
        if text == "-" {
            return Ok(Self::Stdio);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            // `unix:///run/x` is how URIs write it; both name `/run/x`.
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() {
                Err(fault("the path is empty"))
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let rest = text.strip_prefix("tcp://").unwrap_or(text);
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let (host, after) = inner
                .split_once(']')
                .ok_or_else(|| fault("a bracket is not closed"))?;
            if !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) {
                return Err(fault("only an IPv6 address stands in brackets"));
            }
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(fault("only :PORT may follow the brackets")),
            }
        } else {
            match rest.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(fault("put an IPv6 address in brackets"));
                }
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            }
        };
        if host.is_empty() {
            return Err(fault(
                "the host is empty (0.0.0.0 or [::] mean every interface)",
            ));
        }
        if host.contains(|c: char| c.is_whitespace() || c.is_control() || "/@?#".contains(c)) {
            return Err(fault("a host holds no slash, space, @, ? or #"));
        }
        let port = match port {
            Some(digits) if digits.starts_with('+') => {
                return Err(fault("the port is not a number up to 65535"));
            }
            Some(digits) => digits
                .parse()
                .map_err(|_| fault("the port is not a number up to 65535"))?,
            None => default_port,
        };
        Ok(Self::Tcp {
            host: host.into(),
            port,
        })
    }

    /// Whether only this machine can reach the endpoint: loopback, a Unix socket, or the pipe whoever started us holds.
    /// Such an endpoint may be plain; see [`crate::secure::require_auth`].
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Stdio => true,
            Self::Tcp { host, .. } => {
                is_localhost(host)
                    || host
                        .parse::<IpAddr>()
                        .is_ok_and(|ip| ip.to_canonical().is_loopback())
            }
        }
    }

    /// The host a certificate must name; `localhost` for what has no host.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(_) | Self::Stdio => "localhost",
        }
    }

    /// Every socket address of a TCP endpoint, in the resolver's order.
    ///
    /// `localhost` gives loopback addresses only, whatever a resolver says, because [`Address::is_local`] trusts it
    /// (RFC 6761 §6.3).
    ///
    /// # Errors
    /// The name does not resolve, or the address is not TCP.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let Self::Tcp { host, port } = self else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{self} is not a TCP address"),
            ));
        };
        let mut found: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
        if is_localhost(host) {
            found.retain(|address| address.ip().is_loopback());
        }
        if found.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{host} resolves to no usable address"),
            ));
        }
        Ok(found)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Stdio => f.write_str("-"),
        }
    }
}

fn is_localhost(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn every_form_is_read_and_printed_back() {
        for (text, want) in [
            ("far", tcp("far", 4242)),
            ("far:9", tcp("far", 9)),
            ("tcp://10.0.0.1:80", tcp("10.0.0.1", 80)),
            ("[::1]", tcp("::1", 4242)),
            ("tcp://[fe80::1]:7", tcp("fe80::1", 7)),
            ("unix:/run/x", Address::Unix("/run/x".into())),
            ("unix:///run/x", Address::Unix("/run/x".into())),
            ("-", Address::Stdio),
        ] {
            let got = Address::parse(text, 4242).unwrap();
            assert_eq!(got, want, "{text}");
            assert_eq!(Address::parse(&got.to_string(), 1), Ok(want), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_forms_that_work() {
        for text in [
            "", ":1", "a:", "a:99999", "a:+1", "::1", "[::1", "[::1]x", "[far]:1", "a/b", "u@h",
            "unix:",
        ] {
            let err = Address::parse(text, 4242).unwrap_err();
            assert!(err.to_string().contains("HOST:PORT"), "{text}: {err}");
        }
    }

    #[test]
    fn only_what_this_machine_alone_reaches_is_local() {
        for text in [
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]:5",
            "[::ffff:127.0.0.1]:5",
            "LocalHost",
            "unix:/x",
            "-",
        ] {
            assert!(Address::parse(text, 1).unwrap().is_local(), "{text}");
        }
        for text in [
            "0.0.0.0",
            "[::]",
            "10.0.0.1",
            "localhost.example",
            "127.0.0.1.example",
        ] {
            assert!(!Address::parse(text, 1).unwrap().is_local(), "{text}");
        }
        for address in tcp("localhost", 1).resolve().unwrap() {
            assert!(address.ip().is_loopback());
        }
    }
}
