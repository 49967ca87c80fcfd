//! Numbers of channels: whose they are, which come next, and which opening is new.
//!
//! Invariants: the initiator's numbers are odd, the acceptor's even, 0 is the session's own. A number serves again once
//! its channel is over; serials, which count all that a side ever opened, only grow, so an opening said again is never
//! taken for a new one.

use narrows_core::ChannelId;

use crate::{Role, SessionError};

#[derive(Debug)]
pub(crate) struct Numbers {
    role: Role,
    next: u16,
    /// Channels opened so far by this side; the highest serial heard from the other.
    serial: u64,
    peer_serial: u64,
}

impl Numbers {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            role,
            next: Self::first(role),
            serial: 0,
            peer_serial: 0,
        }
    }

    fn first(role: Role) -> u16 {
        match role {
            Role::Initiator => 1,
            Role::Acceptor => 2,
        }
    }

    /// Number and serial of a channel that this side opens; some number is free.
    pub(crate) fn take(&mut self, in_use: impl Fn(ChannelId) -> bool) -> (ChannelId, u64) {
        loop {
            let channel = ChannelId(self.next);
            self.next = self.next.checked_add(2).unwrap_or(Self::first(self.role));
            if !in_use(channel) {
                self.serial += 1;
                return (channel, self.serial);
            }
        }
    }

    pub(crate) fn is_ours(&self, channel: ChannelId) -> bool {
        channel.0 % 2 == Self::first(self.role) % 2
    }

    /// Whether what the peer says of a channel opens one that was not open before.
    ///
    /// # Errors
    /// [`SessionError::Protocol`] where the number is not the peer's to open.
    pub(crate) fn is_new(
        &self,
        channel: ChannelId,
        serial: u64,
        again: bool,
    ) -> Result<bool, SessionError> {
        let ours = self.is_ours(channel);
        if channel == ChannelId::CONTROL || ours && (!again || serial > self.serial) {
            return Err(SessionError::Protocol(
                "a channel of this side's numbers, opened by the other",
            ));
        }
        Ok(!ours && serial > self.peer_serial)
    }

    /// The peer opened a channel of this serial.
    pub(crate) fn opened(&mut self, serial: u64) {
        self.peer_serial = serial;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_round_and_skip_those_in_use_and_serials_never_do() {
        for (role, first, parity) in [(Role::Initiator, 1, 1), (Role::Acceptor, 2, 0)] {
            let mut numbers = Numbers::new(role);
            let held = ChannelId(first + 4);
            let mut taken = Vec::new();
            for serial in 1..=40_000 {
                let (channel, now) = numbers.take(|channel| channel == held);
                assert!(
                    now == serial && channel != held && channel.0 % 2 == parity && channel.0 > 0
                );
                taken.push(channel.0);
            }
            assert_eq!(taken[..3], [first, first + 2, first + 6]);
            let second = taken.iter().rposition(|&number| number == first).unwrap();
            assert!(second > 32_000, "round after {second}");
        }
    }

    #[test]
    fn a_side_opens_its_own_numbers_only_and_an_old_serial_is_not_new() {
        let mut ours = Numbers::new(Role::Initiator);
        ours.take(|_| false);
        assert!(ours.is_new(ChannelId(0), 1, false).is_err());
        assert!(ours.is_new(ChannelId(1), 1, false).is_err());
        assert!(ours.is_new(ChannelId(1), 2, true).is_err());
        assert_eq!(ours.is_new(ChannelId(1), 1, true), Ok(false));
        assert_eq!(ours.is_new(ChannelId(2), 1, false), Ok(true));
        ours.opened(1);
        assert_eq!(ours.is_new(ChannelId(2), 1, true), Ok(false));
        assert_eq!(ours.is_new(ChannelId(2), 2, false), Ok(true));
    }
}
