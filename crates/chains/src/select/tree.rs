//! A tree of thresholds.

use super::Features;

/// One node. A tree is a list of them, the root first, every node after its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Goes on with the next node where the feature is at most the threshold, else with the node at `above`.
    Split {
        /// Which of the features.
        feature: u8,
        /// The greatest value that goes to the next node.
        at_most: u8,
        /// Where the others go.
        above: u16,
    },
    /// Numbers of built-in chains, best first.
    Leaf(&'static [u8]),
}

/// The chains that `tree` names for `features`.
#[must_use]
pub fn leaf(tree: &'static [Node], features: &Features) -> &'static [u8] {
    let mut at = 0;
    loop {
        match &tree[at] {
            Node::Split {
                feature,
                at_most,
                above,
            } => {
                at = if features[usize::from(*feature)] <= *at_most {
                    at + 1
                } else {
                    usize::from(*above)
                };
            }
            Node::Leaf(chains) => return chains,
        }
    }
}
