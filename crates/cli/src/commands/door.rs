//! Where peers come in: an address, who may, and a session of each who proves it. `recv`, `tunnel`, `migrate serve` and
//! `offload serve`.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
};

use narrows::{
    Acceptor, End, Endpoint,
    io::{
        Address, Listener, Transport, Tuning,
        secure::{self, Auth, Side},
    },
};

use super::{common, options::Security};

pub struct Door {
    listener: Listener,
    auth: Auth,
}

impl Door {
    /// Listens, if that may be done so, with keys and certificates that are there.
    pub fn open(listen: &str, security: &Security) -> anyhow::Result<Self> {
        let listen = common::address(listen)?;
        let auth = common::auth(security)?;
        secure::require_auth(&listen, &auth, security.insecure)?;
        auth.check(Side::Server)
            .map_err(|fault| common::failed_auth(&fault))?;
        Ok(Self {
            listener: Listener::bind(&listen, &Tuning::default())?,
            auth,
        })
    }

    /// Where it is.
    pub fn local(&self) -> &Address {
        self.listener.local()
    }

    /// The sessions of those who come in, from a thread of its own.
    pub fn sessions(self, acceptor: Acceptor) -> io::Result<Receiver<Endpoint>> {
        let (found, sessions) = mpsc::channel();
        narrows::io::thread::spawn("accept", move || self.accept(&Arc::new(acceptor), &found))?;
        Ok(sessions)
    }

    /// Authenticates each connection on a thread of its own, so that a slow or hostile one holds up nobody.
    fn accept(&self, acceptor: &Arc<Acceptor>, found: &Sender<Endpoint>) {
        for transport in self.listener.incoming() {
            let (auth, acceptor, found) = (self.auth.clone(), acceptor.clone(), found.clone());
            let greet = move || {
                let peer = transport.peer.clone();
                match admit(transport, &auth, &acceptor) {
                    Ok(Some(endpoint)) => drop(found.send(endpoint)),
                    Ok(None) => {}
                    Err(end) => tracing::warn!(peer, "refused: {end}"),
                }
            };
            if let Err(fault) = narrows::io::thread::spawn("greet", greet) {
                tracing::warn!("a connection is dropped: {fault}");
            }
        }
    }
}

fn admit(transport: Transport, auth: &Auth, acceptor: &Acceptor) -> Result<Option<Endpoint>, End> {
    let transport = secure::accept(transport, auth).map_err(|fault| common::failed_auth(&fault))?;
    acceptor.take(transport)
}
