//! A persistent tree of labels, made for reading: nodes in an arena, and one open-addressing table from a parent and a
//! label to the child. Both consist of pages that a copy shares with its original ([`Pages`]).
//!
//! A node without a value exists only while something stands below it: these are DNS' empty non-terminals (RFC 4592
//! 2.2.2).

mod label;

use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::fast::RandomState;

use crate::pages::Pages;
use label::Label;

/// What a node holds.
pub(crate) trait Value: Clone + Default {
    fn is_nothing(&self) -> bool;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(u32);

impl NodeId {
    pub(crate) const ROOT: Self = Self(0);
    const NONE: Self = Self(u32::MAX);

    fn at(self) -> usize {
        self.0 as usize
    }
}

/// One cache line, for the values of a zone.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Node<V> {
    label: Label,
    /// For a free node the next free one.
    parent: NodeId,
    children: u32,
    /// The child `*`.
    star: NodeId,
    pub(crate) value: V,
}

impl<V: Default> Default for Node<V> {
    fn default() -> Self {
        Self { label: Label::default(), parent: NodeId::NONE, children: 0, star: NodeId::NONE, value: V::default() }
    }
}

impl<V> Node<V> {
    /// The child `*`, which stands for names that do not exist (RFC 4592 2.1.1).
    pub(crate) fn star(&self) -> Option<NodeId> {
        (self.star != NodeId::NONE).then_some(self.star)
    }
}

/// 2 KiB of nodes; a change copies as much.
const NODES_PER_PAGE: usize = 32;
/// 1 KiB of slots.
const SLOTS_PER_PAGE: usize = 128;

/// The hash in the upper half, the node's number in the lower; 0 is empty, since the root has no slot.
type Slot = u64;

#[derive(Debug, Clone)]
pub(crate) struct Tree<V> {
    nodes: Pages<Node<V>, NODES_PER_PAGE>,
    /// How many of them are or were in use.
    used: u32,
    /// Those that are in use no more, through [`Node::parent`].
    free: NodeId,
    slots: Pages<Slot, SLOTS_PER_PAGE>,
    /// How many slots there are, less one: they are a power of two.
    mask: usize,
    /// How many slots are taken.
    taken: usize,
    /// Keyed at random: who may choose names must not be able to choose collisions.
    hasher: RandomState,
}

impl<V: Value> Default for Tree<V> {
    fn default() -> Self {
        let slots = slots_for(0);
        let mut nodes = Pages::with_length(1);
        *nodes.get_mut(0) = Node::default();
        Self {
            nodes,
            used: 1,
            free: NodeId::NONE,
            slots: Pages::with_length(slots),
            mask: slots - 1,
            taken: 0,
            hasher: RandomState::default(),
        }
    }
}

impl<V: Value> Tree<V> {
    /// Of names in their order, each right before those below it: nothing has to be looked for, and the table is filled from
    /// one end to the other. A path's first label is the one nearest to the root.
    pub(crate) fn from_sorted<'p, P>(names: impl Iterator<Item = (P, V)>) -> Self
    where
        P: IntoIterator<Item = &'p [u8]>,
    {
        let mut tree = Self::default();
        let mut slots = Vec::new();
        // The way to the name before.
        let mut way: Vec<(&[u8], NodeId)> = Vec::new();
        for (path, value) in names {
            let (mut node, mut depth) = (NodeId::ROOT, 0);
            for label in path {
                match way.get(depth) {
                    Some((known, child)) if *known == label => node = *child,
                    beside => {
                        debug_assert!(beside.is_none_or(|(known, _)| *known < label), "names come in their order");
                        let hash = tree.hash(node, label);
                        node = tree.append(node, label);
                        slots.push(pack(hash, node));
                        way.truncate(depth);
                        way.push((label, node));
                    }
                }
                depth += 1;
            }
            way.truncate(depth);
            tree.nodes.get_mut(node.at()).value = value;
        }
        tree.mask = slots_for(slots.len()) - 1;
        tree.slots = Pages::with_length(tree.mask + 1);
        tree.taken = slots.len();
        slots.sort_unstable_by_key(|slot| home_of(*slot) & tree.mask);
        for slot in slots {
            tree.put(slot);
        }
        tree
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node<V> {
        self.nodes.get(id.at()).expect("a node's number comes from this tree")
    }

    /// `label` is in lower case. A `*` is a label like any other here (RFC 4592 2.1.1); it stands for others only where
    /// a query says so. `node` is the parent's, which whoever walks down has at hand.
    pub(crate) fn child(&self, parent: NodeId, node: &Node<V>, label: &[u8]) -> Option<(NodeId, &Node<V>)> {
        if node.children == 0 {
            return None;
        }
        self.find(parent, label, self.hash(parent, label)).map(|(_, id, node)| (id, node))
    }

    /// The node at the end of `path`, whose first label is the one nearest to the root.
    pub(crate) fn at<'p>(&self, path: impl IntoIterator<Item = &'p [u8]>) -> Option<NodeId> {
        path.into_iter().try_fold(NodeId::ROOT, |parent, label| self.child_of(parent, label))
    }

    /// Sets what stands at `path`; nothing removes it, and every node that is not needed any more.
    pub(crate) fn set<'p>(&mut self, path: impl IntoIterator<Item = &'p [u8]>, value: V) {
        if value.is_nothing() {
            if let Some(node) = self.at(path) {
                self.nodes.get_mut(node.at()).value = value;
                self.prune(node);
            }
            return;
        }
        let mut node = NodeId::ROOT;
        for label in path {
            node = self.child_of(node, label).unwrap_or_else(|| self.add(node, label));
        }
        self.nodes.get_mut(node.at()).value = value;
    }

    /// Every value and the labels that lead to it, the one nearest to the root first; in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = (Vec<&[u8]>, &V)> {
        // A free node holds nothing.
        let nodes = (0..self.used).map(|number| self.node(NodeId(number)));
        nodes.filter(|node| !node.value.is_nothing()).map(|node| {
            let up =
                std::iter::successors(Some(node), |node| (node.parent != NodeId::NONE).then(|| self.node(node.parent)));
            let mut path: Vec<&[u8]> = up.map(|node| node.label.as_octets()).collect();
            // The root's own.
            path.pop();
            path.reverse();
            (path, &node.value)
        })
    }

    fn child_of(&self, parent: NodeId, label: &[u8]) -> Option<NodeId> {
        self.child(parent, self.node(parent), label).map(|(child, _)| child)
    }

    fn hash(&self, parent: NodeId, label: &[u8]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(parent.0);
        hasher.write(label);
        // Any 32 bits are as good as others.
        #[allow(clippy::cast_possible_truncation)]
        let hash = hasher.finish() as u32;
        hash
    }

    fn slot(&self, at: usize) -> Slot {
        self.slots.get(at).copied().unwrap_or_default()
    }

    /// The child, with its slot.
    fn find(&self, parent: NodeId, label: &[u8], hash: u32) -> Option<(usize, NodeId, &Node<V>)> {
        let mut at = hash as usize & self.mask;
        loop {
            let (found, child) = unpack(self.slot(at))?;
            if found == hash {
                let node = self.node(child);
                if node.parent == parent && node.label.as_octets() == label {
                    return Some((at, child, node));
                }
            }
            at = (at + 1) & self.mask;
        }
    }

    fn add(&mut self, parent: NodeId, label: &[u8]) -> NodeId {
        let child = self.append(parent, label);
        if slots_for(self.taken + 1) > self.mask + 1 {
            self.grow();
        }
        self.taken += 1;
        let hash = self.hash(parent, label);
        self.put(pack(hash, child));
        child
    }

    /// A child that nobody finds yet.
    fn append(&mut self, parent: NodeId, label: &[u8]) -> NodeId {
        let child = self.take_node();
        *self.nodes.get_mut(child.at()) = Node { label: Label::new(label), parent, ..Node::default() };
        let above = self.nodes.get_mut(parent.at());
        above.children += 1;
        if label == b"*" {
            above.star = child;
        }
        child
    }

    fn take_node(&mut self) -> NodeId {
        if self.free == NodeId::NONE {
            let child = NodeId(self.used);
            self.used += 1;
            self.nodes.grow(self.used as usize);
            return child;
        }
        let child = self.free;
        self.free = self.node(child).parent;
        child
    }

    fn put(&mut self, slot: Slot) {
        let mut at = home_of(slot) & self.mask;
        while self.slot(at) != 0 {
            at = (at + 1) & self.mask;
        }
        *self.slots.get_mut(at) = slot;
    }

    fn grow(&mut self) {
        let slots = 2 * (self.mask + 1);
        let before = std::mem::replace(&mut self.slots, Pages::with_length(slots));
        self.mask = slots - 1;
        for at in 0..slots / 2 {
            match before.get(at) {
                None | Some(0) => {}
                Some(slot) => self.put(*slot),
            }
        }
    }

    /// Removes the node and those above it, as long as they hold nothing and lead to nothing.
    fn prune(&mut self, mut id: NodeId) {
        while id != NodeId::ROOT && self.node(id).value.is_nothing() && self.node(id).children == 0 {
            let node = self.node(id);
            let (parent, label) = (node.parent, node.label.clone());
            let hash = self.hash(parent, label.as_octets());
            if let Some((slot, ..)) = self.find(parent, label.as_octets(), hash) {
                self.vacate(slot);
            }
            *self.nodes.get_mut(id.at()) = Node { parent: self.free, ..Node::default() };
            self.free = id;
            let above = self.nodes.get_mut(parent.at());
            above.children -= 1;
            if above.star == id {
                above.star = NodeId::NONE;
            }
            id = parent;
        }
    }

    /// Empties a slot and moves those behind it up, so that no search ends too early (Knuth, volume 3, 6.4 R).
    fn vacate(&mut self, mut hole: usize) {
        self.taken -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slot(at);
            if slot == 0 {
                break;
            }
            // It may move when its home is not between the hole and itself.
            if (at.wrapping_sub(home_of(slot)) & self.mask) >= (at.wrapping_sub(hole) & self.mask) {
                *self.slots.get_mut(hole) = slot;
                hole = at;
            }
        }
        *self.slots.get_mut(hole) = 0;
    }
}

fn pack(hash: u32, node: NodeId) -> Slot {
    u64::from(hash) << 32 | u64::from(node.0)
}

fn unpack(slot: Slot) -> Option<(u32, NodeId)> {
    #[allow(clippy::cast_possible_truncation)]
    let node = NodeId(slot as u32);
    (slot != 0).then_some(((slot >> 32) as u32, node))
}

/// Where a slot belongs when there are no others; to be masked.
fn home_of(slot: Slot) -> usize {
    (slot >> 32) as usize
}

/// At most three quarters of the slots are taken: searches stay at two or three neighbours.
fn slots_for(names: usize) -> usize {
    (names + names / 3 + 1).next_power_of_two().max(SLOTS_PER_PAGE)
}

#[cfg(test)]
mod tests;
