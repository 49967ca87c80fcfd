//! Tells a service manager how a server goes: `sd_notify(3)`, without its library.

use std::{
    env,
    ffi::OsStr,
    os::{linux::net::SocketAddrExt, unix::ffi::OsStrExt, unix::net},
};

/// Clients can connect now. Does nothing where no service manager asked to be told (`NOTIFY_SOCKET`).
pub fn ready() {
    tell("READY=1");
}

/// It ends now, in good order.
pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => net::SocketAddr::from_abstract_name(name),
        name => net::SocketAddr::from_pathname(OsStr::from_bytes(name)),
    };
    // A manager that does not hear it waits until its own time-out; nothing that we could do.
    let _ = address.and_then(|address| {
        let socket = net::UnixDatagram::unbound()?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
}
