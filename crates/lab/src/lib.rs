//! The laboratory: measures narrows on a user's own data and links, and reports it.
//!
//! Floor: above the data paths, below the command. Whatever measures does so from outside, by running the program
//! itself, so that processor time is that of each end and nothing is flattered by a shared process.
//!
//! | module | holds |
//! |---|---|
//! | [`data`] | the user's files as one stream, and excerpts of it |
//! | [`sample`] | real data for users who bring none |
//! | [`synthetic`] | the published study's kinds of data (`docs/specs/gen.md`) |
//! | [`race`] | one transfer between two processes over an emulated link |
//! | [`trial`] | `narrows try`: a race of policies, its document and its pictures |
//! | [`machine`] | what it was measured on |
//! | [`pages`] | codecs, chains and profiles on pages of memory |
//! | [`mod@bench`] | codec × level × chunk × threads on the user's data |
//! | [`advise`] | what to send with, predicted from a calibration and then tried |
//! | [`study`] | the published study, measured again |
//! | [`published`] | every published table beside ours |
//! | [`tco`] | what storage or a link costs over the years, with and without compression |
//! | [`result`] | `narrows.result/1`, the lines that every measurement is written as |
//! | [`energy`] | joules, where the machine shows them |
//! | [`album`] | any set of results as one report |
//! | [`report`] | one offline HTML file with pictures and tables, for any measurement |
#![forbid(unsafe_code)]

pub mod advise;
pub mod album;
pub mod bench;
pub mod data;
pub mod energy;
pub mod machine;
pub mod pages;
pub mod published;
pub mod race;
pub mod report;
pub mod result;
pub mod sample;
pub mod study;
pub mod synthetic;
pub mod tco;
pub mod trial;
