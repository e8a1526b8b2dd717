//! The control-flow graph of a function's ops, and where divergent branches join.

use std::collections::HashMap;

use super::builder::{Draft, Next};
use crate::ptx::ast::LabelId;

/// A stretch of ops entered only at its start and left only at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// First op.
    pub(crate) start: usize,
    /// One past the last op.
    pub(crate) end: usize,
    /// Blocks that may follow.
    pub(crate) successors: Vec<usize>,
    /// Whether the kernel may end here.
    pub(crate) ends: bool,
    /// The nearest block that every path from here to the kernel's end passes; `None` when that is the end itself.
    pub(crate) join: Option<usize>,
}

/// The graph of `drafts`.
///
/// # Errors
/// A label that is used but stands nowhere.
pub(crate) fn graph(drafts: &[Draft], labels: &HashMap<LabelId, usize>) -> Result<Vec<Block>, String> {
    let place = |label: &LabelId| labels.get(label).copied().ok_or("a branch to a label of another scope");
    let mut leader = vec![false; drafts.len() + 1];
    leader[0] = true;
    for &at in labels.values() {
        leader[at] = true;
    }
    for (i, draft) in drafts.iter().enumerate() {
        leader[i + 1] |= draft.next != Next::Follow;
    }
    let starts: Vec<usize> = (0..drafts.len()).filter(|&i| leader[i]).collect();
    let block_at: HashMap<usize, usize> = starts.iter().enumerate().map(|(b, &s)| (s, b)).collect();
    let find = |at: usize| block_at.get(&at).copied();
    let mut blocks = Vec::with_capacity(starts.len());
    for (b, &start) in starts.iter().enumerate() {
        let end = starts.get(b + 1).copied().unwrap_or(drafts.len());
        let mut successors = Vec::new();
        let mut ends = false;
        // A place behind the last op is the kernel's end.
        let mut add = |at: usize| match find(at) {
            Some(block) if successors.contains(&block) => {}
            Some(block) => successors.push(block),
            None => ends = true,
        };
        match &drafts[end - 1].next {
            Next::Follow => add(end),
            Next::Jump(label) => add(place(label)?),
            Next::Branch(label) => {
                add(end);
                add(place(label)?);
            }
            Next::Table(labels) => {
                for label in labels {
                    add(place(label)?);
                }
            }
            Next::MayEnd => {
                add(end);
                ends = true;
            }
            Next::End => ends = true,
        }
        blocks.push(Block { start, end, successors, ends, join: None });
    }
    post_dominators(&mut blocks);
    Ok(blocks)
}

/// Immediate post-dominators by the iterative algorithm of Cooper, Harvey and Kennedy on the reversed graph, with one
/// virtual end. Blocks that never reach the end keep `None`.
fn post_dominators(blocks: &mut [Block]) {
    let n = blocks.len();
    let end = n;
    let mut predecessors = vec![Vec::new(); n + 1];
    for (b, block) in blocks.iter().enumerate() {
        for &s in &block.successors {
            predecessors[s].push(b);
        }
        if block.ends {
            predecessors[end].push(b);
        }
    }
    // Post-order of the reversed graph from the end, without recursion.
    let mut order = Vec::with_capacity(n + 1);
    let mut number = vec![usize::MAX; n + 1];
    let mut seen = vec![false; n + 1];
    let mut stack = vec![(end, 0)];
    seen[end] = true;
    while let Some((node, edge)) = stack.pop() {
        if let Some(&p) = predecessors[node].get(edge) {
            stack.push((node, edge + 1));
            if !seen[p] {
                seen[p] = true;
                stack.push((p, 0));
            }
        } else {
            number[node] = order.len();
            order.push(node);
        }
    }
    let mut parent = vec![usize::MAX; n + 1];
    parent[end] = end;
    let mut changed = true;
    while changed {
        changed = false;
        for &node in order.iter().rev().filter(|&&node| node != end) {
            let block = &blocks[node];
            let exits = block.ends.then_some(end);
            let mut best = usize::MAX;
            for s in block.successors.iter().copied().chain(exits) {
                if parent[s] == usize::MAX {
                    continue;
                }
                best = if best == usize::MAX { s } else { meet(best, s, &parent, &number) };
            }
            if best != parent[node] {
                parent[node] = best;
                changed = true;
            }
        }
    }
    for (b, block) in blocks.iter_mut().enumerate() {
        block.join = Some(parent[b]).filter(|&p| p != end && p != usize::MAX);
    }
}

fn meet(mut a: usize, mut b: usize, parent: &[usize], number: &[usize]) -> usize {
    while a != b {
        while number[a] < number[b] {
            a = parent[a];
        }
        while number[b] < number[a] {
            b = parent[b];
        }
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(successors: &[usize], ends: bool) -> Block {
        Block { start: 0, end: 1, successors: successors.to_vec(), ends, join: None }
    }

    fn joins(mut blocks: Vec<Block>) -> Vec<Option<usize>> {
        post_dominators(&mut blocks);
        blocks.iter().map(|b| b.join).collect()
    }

    #[test]
    fn diamonds_loops_and_early_exits() {
        // A diamond.
        let diamond = vec![block(&[1, 2], false), block(&[3], false), block(&[3], false), block(&[], true)];
        assert_eq!(joins(diamond), [Some(3), Some(3), Some(3), None]);
        // A loop: 0 → 1, 1 → 1 or 2.
        let looped = vec![block(&[1], false), block(&[1, 2], false), block(&[], true)];
        assert_eq!(joins(looped), [Some(1), Some(2), None]);
        // An early exit: the sides meet only at the end.
        let early = vec![block(&[1, 2], false), block(&[], true), block(&[], true)];
        assert_eq!(joins(early), [None, None, None]);
        // A block that ends on some lanes and goes on with the others.
        let partial = vec![block(&[1, 2], false), block(&[3], true), block(&[3], false), block(&[], true)];
        assert_eq!(joins(partial), [None, None, Some(3), None]);
        // A loop without an exit beside a path that ends.
        let endless = vec![block(&[1, 2], false), block(&[1], false), block(&[], true)];
        assert_eq!(joins(endless), [Some(2), None, None]);
    }
}
