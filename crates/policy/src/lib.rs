//! Policies: which codec and level each chunk gets.
//!
//! Floor: engine. Pure state machines over the words of `narrows_core::policy`: no I/O, no clock, no threads, no random
//! numbers; the same calls always give the same decisions. The simulator (feature `sim`) tests them in virtual time.
//!
//! | module | holds |
//! |---|---|
//! | [`simple`] | [`NonePolicy`] and [`Fixed`], the measures of the adaptive one |
//! | [`adaptive`], [`config`] | [`Adaptive`], the default, put together from the following; what users may set of it |
//! | [`offers`], [`prior`] | the candidates, and what they cost before anything was measured |
//! | [`probe`] | a look at a chunk: what kind of data is it? |
//! | [`table`], [`estimate`] | what candidates cost, per class of data; how far one outcome moves that |
//! | `rows`, `pending` | the classes seen lately; decisions whose outcomes are to come |
//! | `capacity` | expected costs as times of the three stages |
//! | [`rate`], [`cpu_capacity`], [`receiver`] | what the link, our processors and the receiver can take |
//! | [`solve`], [`balance`] | prices of pipeline time, and keeping the stages level |
//! | [`duel`] | raw where the link is as fast as memory and packing is not seen to pay |
//! | [`answer_duel`] | whether messages are answered sooner raw |
//! | [`explore`], [`length`] | what to try; how long chunks should be |
//! | [`tuning`] | every constant of these, and a switch for every rule |
//!
//! Words that they share:
//!
//! | word | means |
//! |---|---|
//! | candidate | a codec at a level, with or without history; raw is number 0 |
//! | cost | what a raw byte becomes, packed, and the processor time to pack and to unpack it |
//! | stage | packing, the link, unpacking; *times* are nanoseconds that a raw byte keeps each of them busy |
//! | weight | what a stage's time is worth: 0 where it has slack; the three sum to 1 |
//! | price | a candidate's times, weighted: the least wins |
//! | kind, class | sorts of data as the probe tells them apart; a kind has several classes, by how well they should pack |
//! | level | how much better or worse than thought *all* candidates do on a class |
//! | row | a class seen lately, with the costs and times of all candidates on it |
//! | slice, audition | a piece of a chunk; packing it by other candidates to compare them, beside the chunk's own: the reference |
//! | typed | a candidate that takes data as numbers of a width: planes, differences or decimals before a codec |
#![forbid(unsafe_code)]

pub mod adaptive;
pub mod answer_duel;
pub mod balance;
mod capacity;
pub mod config;
pub mod cpu_capacity;
pub mod duel;
pub mod estimate;
pub mod explore;
pub mod length;
pub mod offers;
mod pending;
pub mod prior;
pub mod probe;
pub mod rate;
pub mod receiver;
mod rows;
pub mod simple;
pub mod solve;
pub mod table;
pub mod tuning;

#[cfg(any(test, feature = "sim"))]
pub mod sim;

pub use adaptive::Adaptive;
pub use config::Config;
pub use offers::{Offer, default_offers};
pub use simple::{CHUNK_LEN_DEFAULT, Fixed, NonePolicy};
