//! A pipeline, a link and a receiver in virtual time, to test policies on thousands of cases in seconds.
//!
//! Discrete events over fluid rates: packing and unpacking jobs share processors fairly, the sender copies frames into
//! a kernel buffer that the link drains, frames are unpacked in order of arrival, credit and reports take half a round
//! trip. Between two events every rate is constant, so time jumps from event to event.
//!
//! | module | holds |
//! |---|---|
//! | [`data`] | bytes for the probe to look at |
//! | [`scene`] | the world: true costs, link, machines; and the bounds |
//! | [`recording`] | real data with real costs in their place |
//! | [`engine`] | the run |
//! | [`suite`] | scenes by seed, and scores |

pub mod data;
pub mod engine;
pub mod recording;
pub mod scene;
pub mod suite;

#[cfg(test)]
mod tests;
