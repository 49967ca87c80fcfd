//! Opens a transport to an [`Address`].

use std::{io, time::Duration};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{Transport, Tuning, from_tcp, from_unix, stdio};
use crate::address::Address;

/// Why no connection came about. Each variant is one thing the caller should look at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name has no address. Check its spelling, then the resolver.
    #[error("cannot resolve {address}: {source}")]
    Resolve {
        /// What was asked for.
        address: Address,
        /// The resolver's word.
        source: io::Error,
    },
    /// The host answered that nothing listens. Start the other side, or correct the port.
    #[error("nothing listens at {address}; start the other side first, or check the port or path")]
    Refused {
        /// What was asked for.
        address: Address,
    },
    /// No answer. A firewall, a wrong address or a dead host.
    #[error("{address} did not answer within {} s; check the address and any firewall", after.as_secs())]
    Timeout {
        /// What was asked for.
        address: Address,
        /// How long one address was tried.
        after: Duration,
    },
    /// Anything else the system says.
    #[error("cannot connect to {address}: {source}")]
    Io {
        /// What was asked for.
        address: Address,
        /// The system's word.
        source: io::Error,
    },
}

/// Connects to `address`: every resolved address in turn for TCP, the path for Unix, this process's own pipes for `-`.
///
/// The stream is plain; pass it through [`crate::secure::connect`] before any application byte.
///
/// # Errors
/// See [`ConnectError`]; with several addresses, the last one's.
pub fn connect(address: &Address, tuning: &Tuning) -> Result<Transport, ConnectError> {
    let explain = |source: io::Error| {
        let address = address.clone();
        match source.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                ConnectError::Refused { address }
            }
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ConnectError::Timeout {
                address,
                after: tuning.connect_timeout,
            },
            _ => ConnectError::Io { address, source },
        }
    };
    match address {
        Address::Stdio => stdio().map_err(explain),
        Address::Unix(path) => {
            let open = || {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // Where a listener's queue is full it waits as a write does; what it says then is "would block".
                socket.set_write_timeout(Some(tuning.connect_timeout))?;
                socket.connect(&SockAddr::unix(path)?)?;
                socket.set_write_timeout(None)?;
                Ok(from_unix(socket, address.to_string()))
            };
            open().map_err(explain)
        }
        Address::Tcp { .. } => {
            let found = address.resolve().map_err(|source| ConnectError::Resolve {
                address: address.clone(),
                source,
            })?;
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            for target in found {
                let open = || {
                    let socket = Socket::new(
                        Domain::for_address(target),
                        Type::STREAM,
                        Some(Protocol::TCP),
                    )?;
                    buffer_sizes(&socket, tuning)?;
                    socket.connect_timeout(&target.into(), tuning.connect_timeout)?;
                    from_tcp(socket, target.to_string(), tuning)
                };
                match open() {
                    Ok(transport) => return Ok(transport),
                    Err(err) => last = err,
                }
            }
            Err(explain(last))
        }
    }
}

/// Sets buffer sizes; before `connect` or `listen`, because the window's scale is agreed in the first packet.
pub(crate) fn buffer_sizes(socket: &Socket, tuning: &Tuning) -> io::Result<()> {
    if let Some(bytes) = tuning.recv_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(bytes) = tuning.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(())
}
