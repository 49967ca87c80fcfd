//! Size classes: how objects of a length share frames.
//!
//! As zsmalloc does it: lengths in steps of 16 bytes; a slab is 1 to 8 frames, as many as leave least over at its end;
//! neighbouring lengths of which as many fit share a class. So the loss is a few bytes an object and, for the largest,
//! some percent at the end of a slab.

use std::sync::LazyLock;

use narrows_io::region::FRAME;

/// Most frames of a slab.
pub(crate) const FRAMES_MAX: usize = 8;
/// Longest object that shares frames. Of longer ones no 8 frames hold more than 8, so such a page is stored raw.
pub(crate) const OBJECT_LEN_MAX: usize = 3632;

const STEP: usize = 16;

/// One kind of slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    /// Bytes from one object to the next, a multiple of 16.
    pub(crate) stride: usize,
    /// Objects of a slab.
    pub(crate) objects: u16,
    /// Frames of a slab.
    pub(crate) frames: usize,
}

/// All classes.
#[derive(Debug)]
pub(crate) struct Classes {
    list: Vec<Class>,
    /// Class by length in steps, rounded up.
    by_steps: [u8; FRAME / STEP + 1],
}

/// Computed once.
pub(crate) static CLASSES: LazyLock<Classes> = LazyLock::new(Classes::new);

impl Classes {
    fn new() -> Self {
        let mut list: Vec<Class> = vec![Class { stride: FRAME, objects: FRAMES_MAX as u16, frames: FRAMES_MAX }];
        let mut by_steps = [0; FRAME / STEP + 1];
        for steps in (1..=OBJECT_LEN_MAX / STEP).rev() {
            let class = best(steps * STEP);
            let last = list.last().expect("one stands from the start");
            if (last.frames, last.objects) != (class.frames, class.objects) {
                list.push(class);
            }
            by_steps[steps] = (list.len() - 1) as u8;
        }
        by_steps[0] = by_steps[1];
        Self { list, by_steps }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Number of the class for objects of `len` bytes, at most a frame.
    pub(crate) fn of_len(&self, len: usize) -> u8 {
        self.by_steps[len.div_ceil(STEP)]
    }

    pub(crate) fn class(&self, number: u8) -> Class {
        self.list[usize::from(number)]
    }
}

/// The fewest frames among those that leave least over, by the percent.
fn best(stride: usize) -> Class {
    let left_percent = |frames: usize| (frames * FRAME % stride) * 100 / (frames * FRAME);
    let frames = (1..=FRAMES_MAX).min_by_key(|&frames| left_percent(frames)).expect("the range is not empty");
    Class { stride, objects: (frames * FRAME / stride) as u16, frames }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_a_class_that_holds_it_and_wastes_little() {
        assert!(CLASSES.len() < 256);
        let mut wasted = 0.0;
        for len in 1..=FRAME {
            let class = CLASSES.class(CLASSES.of_len(len));
            assert!(class.stride >= len && class.stride.is_multiple_of(STEP), "{len}: {class:?}");
            assert!(class.stride * usize::from(class.objects) <= class.frames * FRAME);
            let share = (class.frames * FRAME) as f64 / f64::from(class.objects);
            if (256..=OBJECT_LEN_MAX).contains(&len) {
                wasted += share / len as f64 - 1.0;
            }
        }
        let mean = wasted / (OBJECT_LEN_MAX - 255) as f64;
        assert!(mean < 0.04, "{mean}");
    }
}
