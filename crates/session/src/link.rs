//! One connection's control frames: the session's own messages, gathered and numbered.
//!
//! Invariants: each waiting payload is of at most `CONTROL_LEN_MAX` bytes; numbers are those of the frames on this
//! link, both ways, and the Hellos were number 0. What waits is bounded: a peer that asks and does not read the answers
//! gets no more of them.

use std::collections::{BTreeMap, VecDeque};

use narrows_core::{ChannelId, Seq, limits};

use crate::{Message, SessionError};

/// One connection of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u32);

#[derive(Debug)]
pub(crate) struct Link {
    /// Payloads of control frames to come.
    messages: VecDeque<Vec<u8>>,
    /// The last credit of each channel, still to be said: a peer that reads nothing and sends on makes no queue of
    /// them.
    credits: BTreeMap<ChannelId, (u64, u64)>,
    next_tx: u64,
    next_rx: u64,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            messages: VecDeque::new(),
            credits: BTreeMap::new(),
            next_tx: 1,
            next_rx: 1,
        }
    }
}

impl Link {
    pub(crate) fn say(&mut self, message: &Message) {
        let matters = !matches!(
            message,
            Message::Pong | Message::Ping | Message::Feedback(_)
        );
        if !matters && self.messages.len() > UNREAD_MAX {
            return;
        }
        match self.messages.back_mut() {
            Some(batch) if batch.len() + MESSAGE_LEN_MAX <= limits::CONTROL_LEN_MAX => {
                message.write(batch)
            }
            _ => {
                let mut batch = Vec::new();
                message.write(&mut batch);
                self.messages.push_back(batch);
            }
        }
    }

    /// Says how far a channel's chunks are consumed, before anything else that waits.
    pub(crate) fn credit(&mut self, channel: ChannelId, next_seq: u64, bytes: u64) {
        self.credits.insert(channel, (next_seq, bytes));
    }

    /// A control frame has come.
    pub(crate) fn heard(&mut self) -> Result<(), SessionError> {
        self.next_rx += 1;
        if self.messages.len() > MESSAGES_MAX {
            return Err(SessionError::Protocol(
                "the peer asks and does not read the answers",
            ));
        }
        Ok(())
    }

    /// Number of the control frame that comes next.
    pub(crate) fn next_seq(&self) -> Seq {
        Seq(self.next_rx)
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.messages.is_empty() || !self.credits.is_empty()
    }

    /// The next control frame's number and payload.
    pub(crate) fn pop(&mut self) -> Option<(Seq, Vec<u8>)> {
        let mut credits = Vec::new();
        while credits.len() + MESSAGE_LEN_MAX <= limits::CONTROL_LEN_MAX
            && let Some((channel, (next_seq, bytes))) = self.credits.pop_first()
        {
            Message::Credit {
                channel,
                next_seq,
                bytes,
            }
            .write(&mut credits);
        }
        let payload = if credits.is_empty() {
            self.messages.pop_front()?
        } else {
            credits
        };
        let seq = Seq(self.next_tx);
        self.next_tx += 1;
        Some((seq, payload))
    }
}

/// Payloads of control frames that may wait for a peer that reads nothing while it asks for more.
const MESSAGES_MAX: usize = 1024;
/// From so many on, what is true only for a moment is not said.
const UNREAD_MAX: usize = 16;
/// No message is longer: a Hello is 94 bytes and a text.
const MESSAGE_LEN_MAX: usize = 1280;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_share_frames_and_those_of_the_moment_are_left_out_where_nobody_reads() {
        let mut link = Link::default();
        let text = "x".repeat(1000);
        let bye = Message::Bye {
            code: crate::Code::FAILED,
            text,
        };
        while link.messages.len() <= UNREAD_MAX {
            link.say(&bye);
            link.say(&Message::Ping);
        }
        let said = |link: &Link| link.messages.iter().map(Vec::len).sum::<usize>();
        let before = said(&link);
        link.say(&Message::Ping);
        assert_eq!(said(&link), before);
        link.say(&bye);
        assert!(said(&link) > before);
        assert!(
            link.messages
                .iter()
                .all(|frame| frame.len() <= limits::CONTROL_LEN_MAX)
        );
        assert_eq!(link.pop().unwrap().0, Seq(1));
        assert_eq!(link.pop().unwrap().0, Seq(2));
        assert_eq!(link.next_seq(), Seq(1));
        link.heard().unwrap();
        assert_eq!(link.next_seq(), Seq(2));
    }

    #[test]
    fn of_credits_that_nobody_reads_only_the_last_is_kept() {
        let mut link = Link::default();
        link.say(&Message::Ping);
        for next_seq in 1..=100_000 {
            link.credit(ChannelId(1), next_seq, 64);
        }
        link.credit(ChannelId(2), 7, 8);
        let mut expected = Vec::new();
        Message::Credit {
            channel: ChannelId(1),
            next_seq: 100_000,
            bytes: 64,
        }
        .write(&mut expected);
        Message::Credit {
            channel: ChannelId(2),
            next_seq: 7,
            bytes: 8,
        }
        .write(&mut expected);
        assert_eq!(link.pop(), Some((Seq(1), expected)));
        let mut ping = Vec::new();
        Message::Ping.write(&mut ping);
        assert_eq!(link.pop(), Some((Seq(2), ping)));
        assert!(!link.has_messages());
    }

    #[test]
    fn a_peer_that_asks_and_reads_nothing_is_put_out() {
        let mut link = Link::default();
        let end = (0..).find(|_| {
            link.say(&Message::Bye {
                code: crate::Code::FAILED,
                text: "x".repeat(1000),
            });
            link.heard().is_err()
        });
        assert!(
            link.messages.len() > MESSAGES_MAX && end < Some(100_000),
            "after {end:?}"
        );
    }
}
