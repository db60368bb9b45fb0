//! A persistent tree of labels, from the root of the name space downwards.
//!
//! A copy shares everything with its original; a change then copies the nodes on its path and nothing else. A node
//! without a value exists only while something stands below it: these are DNS' empty non-terminals (RFC 4592 2.2.2).

use std::sync::Arc;

use rpds::HashTrieMapSync;

#[derive(Debug, Clone)]
pub(crate) struct Node<T> {
    value: Option<T>,
    // The hash is keyed at random: who may choose names must not be able to choose collisions.
    children: HashTrieMapSync<Arc<[u8]>, Arc<Node<T>>>,
}

impl<T> Node<T> {
    pub(crate) fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// A `*` is a label like any other here (RFC 4592 2.1.1); it stands for others only where a query says so.
    pub(crate) fn child(&self, label: &[u8]) -> Option<&Self> {
        self.children.get(label).map(AsRef::as_ref)
    }

    fn is_needless(&self) -> bool {
        self.value.is_none() && self.children.is_empty()
    }
}

impl<T: Clone> Node<T> {
    /// Sets or, with `None`, removes what stands at `path`, whose first label is the one nearest to this node.
    pub(crate) fn set(&mut self, path: &[&[u8]], value: Option<T>) {
        let Some((&label, below)) = path.split_first() else {
            self.value = value;
            return;
        };
        if let Some(child) = self.children.get_mut(label) {
            let child = Arc::make_mut(child);
            child.set(below, value);
            if child.is_needless() {
                self.children.remove_mut(label);
            }
        } else if value.is_some() {
            let mut child = Self::default();
            child.set(below, value);
            self.children.insert_mut(label.into(), Arc::new(child));
        }
    }

    pub(crate) fn value_mut(&mut self, path: &[&[u8]]) -> Option<&mut T> {
        match path.split_first() {
            None => self.value.as_mut(),
            Some((&label, below)) => Arc::make_mut(self.children.get_mut(label)?).value_mut(below),
        }
    }
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { value: None, children: HashTrieMapSync::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<&[u8]> {
        text.split('/').filter(|label| !label.is_empty()).map(str::as_bytes).collect()
    }

    fn at<'a>(root: &'a Node<u8>, text: &str) -> Option<&'a Node<u8>> {
        path(text).into_iter().try_fold(root, Node::child)
    }

    #[test]
    fn nodes_without_a_value_come_and_go_with_what_is_below_them() {
        let mut root = Node::default();
        root.set(&path("a/b/c"), Some(1));
        assert!(at(&root, "a/b").is_some_and(|node| node.value().is_none()));
        root.set(&path("a"), Some(2));
        root.set(&path("a/b/c"), None);
        assert!(at(&root, "a/b").is_none());
        assert_eq!(at(&root, "a").and_then(Node::value), Some(&2));
        root.set(&path("a"), None);
        assert!(root.is_needless());
    }

    #[test]
    fn removing_what_is_not_there_changes_nothing() {
        let mut root = Node::default();
        root.set(&path("a/b"), Some(1));
        for absent in ["a", "a/c", "a/b/c", "d/e"] {
            root.set(&path(absent), None);
        }
        assert_eq!(at(&root, "a/b").and_then(Node::value), Some(&1));
        assert!(at(&root, "a/b/c").is_none() && at(&root, "d").is_none());
    }

    #[test]
    fn a_copy_shares_all_but_the_changed_path() {
        let mut before = Node::default();
        for name in ["a/x", "a/y", "b/x"] {
            before.set(&path(name), Some(1));
        }
        let mut after = before.clone();
        after.set(&path("a/x"), Some(2));
        let shared = |name| std::ptr::eq(at(&before, name).unwrap(), at(&after, name).unwrap());
        assert!(shared("b") && shared("a/y"));
        assert!(!shared("a") && !shared("a/x"));
        assert_eq!(at(&before, "a/x").and_then(Node::value), Some(&1));
    }
}
