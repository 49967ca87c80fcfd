//! A library that is loaded into a program and keeps the cold part of its large memory packed.
//!
//! ```text
//!  malloc, mmap of 1 MiB and more ──▶ hooks ──▶ Pager: arena, blocks ◀── faults ── kernel
//! ```
//!
//! `narrows memory run` preloads it. Its threads take no signals and allocate nothing from what they manage: small
//! memory is the C library's, by the C library's own names.
//!
//! | module | holds |
//! |---|---|
//! | `hooks` | the functions of the C library that it stands before: large allocations |
//! | `maps` | the same of `mmap` and its family |
//! | `start` | settings, threads, what a forked child is told |
//! | `pager` | the arena, and what is known of its blocks |
//! | `serve` | faults, and blocks brought ahead of them |
//! | `evict` | blocks taken away |
//! | `stage` | pages on their way |
//! | `blocks`, `streams`, `extents` | states and order of blocks, streams of faults, free runs: no system calls |
//! | `gauge` | how many blocks the limit leaves |
//! | `counters` | what the parent reads |
//! | `sys` | system calls |
//!
//! Locks, outermost first: the pager's table, then a shard's of the store or the stage's, one at a time.

#![cfg_attr(
    test,
    allow(dead_code, reason = "tests do not export what the program calls")
)]

mod blocks;
mod counters;
mod evict;
mod extents;
mod gauge;
mod hooks;
mod maps;
mod pager;
mod serve;
mod stage;
mod start;
mod streams;
mod sys;
