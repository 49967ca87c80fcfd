//! The real program, end to end: what a person runs, what then lies on the disk, which code it exits with.
//!
//! One binary for all of it, because linking costs more than running. Tests that need what a machine may lack
//! (root, network namespaces, `iperf3`, PostgreSQL, fio, the tools of libnbd) skip and print why.
//! `NARROWS_FULL_TESTS=1` runs the long forms.

#![allow(unreachable_pub, reason = "a test exports nothing")]

mod configured;
mod devices;
mod disk;
mod documents;
mod faults;
mod gpu;
mod help;
mod hostile;
mod kept;
mod links;
mod losses;
mod memory;
mod memory_run;
mod migrate;
mod mistakes;
mod netns;
mod offload;
mod pack;
mod packages;
mod pairing;
mod process;
mod prometheus;
mod ramdisk;
mod recipes;
mod rerun;
mod trees;
mod tunnel;
mod units;
