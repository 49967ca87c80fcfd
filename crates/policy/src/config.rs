//! What users may set of the adaptive policy.

use narrows_core::Level;

use crate::rate::LinkRate;

/// What users may set.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Length of every chunk in bytes, instead of the policy's own choice.
    pub chunk_len: Option<usize>,
    /// What the link is believed to carry before it was measured, in bytes per second.
    pub rate_guess_bytes_per_s: f64,
    /// What an earlier run measured the link to carry, in bytes per second. It counts where it is more than the guess: a
    /// slower link shows itself within milliseconds, a faster one must first be given more to carry.
    pub rate_recalled_bytes_per_s: Option<f64>,
    /// What a second of processor time is worth at least, in seconds of the link's: 0 spends whatever saves time; with
    /// 0.1, ten processor-seconds on either side must save one. In the link's time rather than in bytes, so that a slow
    /// link may take more of it for a byte.
    pub cpu_price: f64,
    /// No zstd level above this one.
    pub level_max: Option<Level>,
    /// Most history, in bytes.
    pub history_len_max: u32,
    /// Whether the receiver unpacks on the same processors (one machine holds both ends): its time then counts as ours.
    pub shared_host: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            chunk_len: None,
            // 400 Mbit/s: on a faster link the first chunks are packed a little too well for some milliseconds, on a
            // slower one a little too badly.
            rate_guess_bytes_per_s: 50e6,
            rate_recalled_bytes_per_s: None,
            cpu_price: 0.0,
            level_max: None,
            history_len_max: u32::MAX,
            shared_host: false,
        }
    }
}

impl Config {
    /// What the link is believed to carry at first.
    pub(crate) fn link_rate(&self) -> LinkRate {
        match self.rate_recalled_bytes_per_s {
            Some(recalled) if recalled > self.rate_guess_bytes_per_s && recalled.is_finite() => {
                LinkRate::recalled(recalled / 1e9)
            }
            _ => LinkRate::new(self.rate_guess_bytes_per_s / 1e9),
        }
    }
}
