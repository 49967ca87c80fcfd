//! Conformance tests that every codec runs with one line, and the data they run on.
//!
//! ```ignore
//! narrows_testkit::codec_suite! {
//!     lz4 => by_name("lz4"),
//!     snappy => by_name("snappy"),
//! }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`data`] | kinds of raw bytes, made from a seed |
//! | [`standin`] | libraries that stand in for a device's |
//! | [`suite`] | what any codec must keep, one function a promise |

pub mod data;
pub mod standin;
pub mod suite;

/// Makes one module of tests for each `name => codec` line; `codec` is an expression of type `Arc<dyn Codec>`. After a
/// third part, `declines 4096`, the codec may decline chunks longer than that.
#[macro_export]
macro_rules! codec_suite {
    ($($name:ident => $codec:expr $(, declines $bytes:literal)?;)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn suite() -> $crate::suite::Suite {
                let suite = $crate::suite::Suite::new($codec);
                $(let suite = suite.declines_above($bytes);)?
                suite
            }

            #[test]
            fn round_trips() {
                suite().round_trips();
            }

            #[test]
            fn output_too_small_is_none() {
                suite().output_too_small_is_none();
            }

            #[test]
            fn truncations_are_refused() {
                suite().truncations_are_refused();
            }

            #[test]
            fn other_lengths_are_refused() {
                suite().other_lengths_are_refused();
            }

            #[test]
            fn flipped_bits_never_leave_old_bytes() {
                suite().flipped_bits_never_leave_old_bytes();
            }

            #[test]
            fn garbage_never_panics() {
                suite().garbage_never_panics();
            }

            #[test]
            fn same_input_same_output() {
                suite().same_input_same_output();
            }

            #[test]
            fn history_round_trips() {
                suite().history_round_trips();
            }
        }
    )*};
}
