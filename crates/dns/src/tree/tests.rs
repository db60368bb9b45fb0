use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

impl Value for u8 {
    fn is_nothing(&self) -> bool {
        *self == 0
    }
}

fn path(text: &str) -> Vec<&[u8]> {
    text.split('/').filter(|label| !label.is_empty()).map(str::as_bytes).collect()
}

fn value(tree: &Tree<u8>, text: &str) -> Option<u8> {
    tree.at(path(text)).map(|node| tree.node(node).value)
}

#[test]
fn nodes_without_a_value_come_and_go_with_what_is_below_them() {
    let mut tree = Tree::default();
    tree.set(path("a/b/c"), 1);
    assert_eq!(value(&tree, "a/b"), Some(0));
    tree.set(path("a"), 2);
    tree.set(path("a/b/c"), 0);
    assert_eq!((value(&tree, "a/b"), value(&tree, "a")), (None, Some(2)));
    tree.set(path("a"), 0);
    assert_eq!((tree.node(NodeId::ROOT).children, tree.taken), (0, 0));
}

#[test]
fn removing_what_is_not_there_changes_nothing() {
    let mut tree = Tree::default();
    tree.set(path("a/b"), 1);
    for absent in ["a", "a/c", "a/b/c", "d/e"] {
        tree.set(path(absent), 0);
    }
    assert_eq!((value(&tree, "a/b"), value(&tree, "a/b/c"), value(&tree, "d")), (Some(1), None, None));
}

#[test]
fn a_parent_knows_its_star() {
    let mut tree = Tree::default();
    tree.set(path("a/*/b"), 1);
    let a = tree.at(path("a")).unwrap();
    assert_eq!(tree.node(a).star(), tree.at(path("a/*")));
    tree.set(path("a/c"), 1);
    tree.set(path("a/*/b"), 0);
    assert_eq!(tree.node(a).star(), None);
}

#[test]
fn a_name_takes_a_cache_line_and_freed_ones_are_used_again() {
    assert_eq!(size_of::<Node<crate::index::Sets>>(), 64);
    let mut tree = Tree::default();
    for round in 0..3 {
        let names: Vec<String> = (0..1000).map(|number| format!("{round}/{number}")).collect();
        for value in [1, 0] {
            for name in &names {
                tree.set(path(name), value);
            }
        }
    }
    assert_eq!((tree.used, tree.taken), (1002, 0));
}

proptest! {
    /// Beside a map of whole paths, with copies taken on the way that must stay as they were.
    #[test]
    fn the_tree_holds_what_was_set(
        steps in vec((vec(prop::sample::select(vec!["a", "b", "*", "a-label-longer-than-there-is-room-for"]), 0..5), 0u8..3), 0..400),
    ) {
        let mut tree = Tree::default();
        let mut map = BTreeMap::new();
        let mut copies = Vec::new();
        for (number, (labels, value)) in steps.iter().enumerate() {
            tree.set(labels.iter().map(|label| label.as_bytes()), *value);
            if *value == 0 {
                map.remove(labels);
            } else {
                map.insert(labels.clone(), *value);
            }
            if number % 50 == 0 {
                copies.push((tree.clone(), map.clone()));
            }
        }
        let sorted = map.iter().map(|(labels, value)| (labels.iter().map(|label| label.as_bytes()), *value));
        copies.push((Tree::from_sorted(sorted), map.clone()));
        copies.push((tree, map));
        for (tree, map) in copies {
            let found: BTreeMap<Vec<&str>, u8> = tree
                .values()
                .map(|(path, value)| (path.into_iter().map(|label| std::str::from_utf8(label).unwrap()).collect(), *value))
                .collect();
            prop_assert_eq!(&found, &map);
            // Every prefix is there, and nothing else.
            let mut nodes: Vec<&[&str]> = map.keys().flat_map(|path| (1..=path.len()).map(|end| &path[..end])).collect();
            nodes.sort_unstable();
            nodes.dedup();
            prop_assert_eq!(tree.taken, nodes.len());
            for path in nodes {
                prop_assert!(tree.at(path.iter().map(|label| label.as_bytes())).is_some());
            }
        }
    }
}
