//! Handshakes and control messages from anybody: read or refused, and what is read has one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_core::{CodecId, Limits};
use narrows_session::{Config, LinkId, Message, Role, Session};

fuzz_target!(|data: &[u8]| {
    let Ok(messages) = Message::parse_all(data) else {
        return;
    };
    let mut again = Vec::new();
    messages
        .iter()
        .for_each(|message| message.write(&mut again));
    assert_eq!(again, data, "two spellings");
    for role in [Role::Initiator, Role::Acceptor] {
        let (limits, codecs) = (Limits::default(), vec![CodecId::RAW]);
        let mut session = Session::<()>::new(Config {
            role,
            limits,
            codecs,
            host: 0,
            agent: "fuzz".into(),
            session: [0; 16],
        });
        for (link, message) in messages.iter().enumerate() {
            if let Message::Hello(hello) = message {
                let mut hello = hello.clone();
                hello.session = [0; 16];
                let _ = session.attach(LinkId(link as u32), hello);
            }
        }
        let _ = session.on_control(LinkId(0), data);
        while session.poll_event().is_some() {}
        while session.poll_send(LinkId(0)).is_some() {}
    }
});
