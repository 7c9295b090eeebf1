//! The kinds of pages of a trace, as traces of Wattle name them: `page,R,inner,LEVEL,TREE`.

use std::collections::HashMap;

/// The part of a page in its tree, as a line of a trace gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its contents.
    pub holds: Holds,
    /// Height above the leaves; `None` if the line does not say.
    pub level: Option<u8>,
    /// The tree; 0 if the line does not say.
    pub tree: u32,
}

/// The contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Separators and children.
    Inner,
    /// Records.
    Leaf,
    /// A part of a large value, outside of the tree.
    Value,
}

impl Holds {
    /// The kind with the name that traces use.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "inner" => Self::Inner,
            "leaf" => Self::Leaf,
            "value" => Self::Value,
            _ => return None,
        })
    }
}

/// The kinds of pages that DGCLOCK weighs (Gilbert 2020, section 1.2.11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The root of a tree.
    Root,
    /// A page one level below the root.
    BelowRoot,
    /// A page further below.
    Lower,
    /// A page outside of trees, or one of which the trace does not say.
    Other,
}

/// The kind of each page. A root is the highest page of its tree. If a line gives no level, an
/// inner page counts as one below the root, and a leaf as further below.
pub fn kinds(places: &[Option<Place>]) -> Vec<Kind> {
    let mut heights = HashMap::<u32, u8>::new();
    for Place { level, tree, .. } in places.iter().flatten() {
        if let Some(level) = level {
            let height = heights.entry(*tree).or_default();
            *height = (*height).max(*level);
        }
    }
    let kind = |place: &Option<Place>| match place {
        None | Some(Place { holds: Holds::Value, .. }) => Kind::Other,
        Some(Place { level: Some(level), tree, .. }) => match heights[tree] - level {
            0 => Kind::Root,
            1 => Kind::BelowRoot,
            _ => Kind::Lower,
        },
        Some(Place { holds: Holds::Inner, .. }) => Kind::BelowRoot,
        Some(Place { holds: Holds::Leaf, .. }) => Kind::Lower,
    };
    places.iter().map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_the_highest_pages_of_their_trees() {
        let place = |holds, level, tree| Some(Place { holds, level, tree });
        let places = [
            place(Holds::Inner, Some(2), 1),
            place(Holds::Inner, Some(1), 1),
            place(Holds::Leaf, Some(0), 1),
            place(Holds::Leaf, Some(0), 2),
            place(Holds::Value, Some(0), 1),
            None,
            place(Holds::Inner, None, 9),
            place(Holds::Leaf, None, 9),
        ];
        use Kind::{BelowRoot, Lower, Other, Root};
        assert_eq!(kinds(&places), [Root, BelowRoot, Lower, Root, Other, Other, BelowRoot, Lower]);
    }
}
