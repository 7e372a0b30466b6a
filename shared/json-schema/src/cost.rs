//! The price of a schema: the number of evaluations that one part of an instance can cause.
//!
//! A few hundred bytes of doubled references cost 2^30 evaluations, and a recursive schema with two
//! overlapping branches doubles at every level of the instance. Counting schema nodes sees neither,
//! so this module multiplies along the branches. For a schema `S` and a chain of `d` nested values,
//! `N(S, d)` bounds the evaluations along that chain:
//!
//! ```text
//! N(S, d) = evaluations on the value itself
//!         + the largest sum, over all members that a value could have,
//!           of N(T, d - 1) for every schema T evaluated on that member
//! ```
//!
//! Taking the largest member instead of the sum over members lets a tree with `left` and
//! `right` recurse freely, while two branches that both recurse through `child` are priced.

use std::collections::HashMap;

use crate::compile_error::{CompileCode, CompileProblem};
use crate::graph::{Graph, NodeId};
use crate::limits::Limits;

/// A count from which on all are the same: far above any budget, far below overflow.
const MANY: u64 = 1_000_000_000;

/// Edge visits spent on pricing one schema before it is called too complex.
const PRICING_WORK: usize = 200_000;

/// Nested evaluations of the validator along one chain of values, as each takes stack.
const TALLEST: u64 = 400;

/// A recursive schema must at least admit instances of this depth to be of use.
const LEAST_DEPTH: usize = 8;

/// The price list of an accepted schema.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Upper bound of the evaluations along one chain of values, by the chain's depth.
    pub(crate) by_depth: Vec<u64>,
}

impl Cost {
    /// Returns the deepest instance that may be validated.
    pub(crate) fn deepest(&self) -> usize {
        self.by_depth.len().saturating_sub(1)
    }

    /// Returns an upper bound of the evaluations for an instance.
    pub(crate) fn of(&self, depth: usize, values: u64) -> u64 {
        self.by_depth
            .get(depth)
            .map_or(u64::MAX, |each| each.saturating_mul(values))
    }
}

/// Prices the schema, or returns the problem that makes it too expensive.
pub(crate) fn price(graph: &Graph, limits: &Limits) -> Result<Cost, CompileProblem> {
    let order = in_place_order(graph)?;
    let entries = entries(graph);
    let mut work = 0;
    let mut shapes = HashMap::with_capacity(entries.len());
    for entry in &entries {
        let shape = Shape::of(graph, &order, *entry, &mut work);
        if work > PRICING_WORK {
            return Err(CompileProblem::new(
                &graph.nodes[*entry].pointer,
                CompileCode::TooCostly,
                "references and branches are too entangled to bound their cost; use fewer references per definition",
            ));
        }
        shapes.insert(*entry, shape);
    }
    let chain = Chain::follow(&entries, &shapes, limits);
    chain.judge(graph, &shapes, limits)
}

/// Orders the nodes so that each comes before its own nodes evaluated on the same value.
fn in_place_order(graph: &Graph) -> Result<Vec<usize>, CompileProblem> {
    let count = graph.nodes.len();
    let mut rank = vec![0; count];
    let mut state = vec![0_u8; count];
    let mut next_rank = count;
    for start in 0..count {
        let mut stack = vec![(start, 0)];
        while let Some((id, edge)) = stack.pop() {
            if edge == 0 {
                if state[id] == 2 {
                    continue;
                }
                state[id] = 1;
            }
            let Some(child) = graph.nodes[id].in_place.get(edge).copied() else {
                state[id] = 2;
                next_rank -= 1;
                rank[id] = next_rank;
                continue;
            };
            if state[child] == 1 {
                return Err(CompileProblem::new(
                    &graph.nodes[id].pointer,
                    CompileCode::EndlessReference,
                    "references lead back here without going into a property or item; break the circle",
                ));
            }
            stack.push((id, edge + 1));
            stack.push((child, 0));
        }
    }
    Ok(rank)
}

/// Returns the root and every schema that is evaluated on a member of some value.
fn entries(graph: &Graph) -> Vec<NodeId> {
    let mut is_entry = vec![false; graph.nodes.len()];
    is_entry[0] = true;
    for node in &graph.nodes {
        let named = node.properties.iter().map(|(_, id)| *id);
        let lists = node
            .any_property
            .iter()
            .chain(&node.first_items)
            .chain(&node.any_item)
            .copied();
        for id in named
            .chain(lists)
            .chain(node.other_properties)
            .chain(node.other_items)
        {
            is_entry[id] = true;
        }
    }
    (0..graph.nodes.len()).filter(|id| is_entry[*id]).collect()
}

/// Schemas with the number of evaluations of each.
type Counted = Vec<(NodeId, u64)>;

/// The evaluations that one value causes: on itself, and on each kind of member.
struct Shape {
    /// Evaluations on the value itself.
    own: u64,
    /// Longest nesting of evaluations on the value itself.
    height: u64,
    /// Schemas on a property that no schema names.
    general: Counted,
    /// Per named property: schemas on it, and schemas of `general` that skip it.
    named: Vec<(Counted, Counted)>,
    /// Per array schema: the number of its evaluations, its positions, and its other items.
    arrays: Vec<(u64, Vec<NodeId>, Option<NodeId>)>,
    /// Schemas on every item.
    any_item: Counted,
}

impl Shape {
    fn of(graph: &Graph, rank: &[usize], entry: NodeId, work: &mut usize) -> Self {
        let mut reached = graph.same_value(entry);
        reached.sort_by_key(|id| rank[*id]);
        let mut counts: HashMap<NodeId, (u64, u64)> = HashMap::with_capacity(reached.len());
        counts.insert(entry, (1, 1));
        let mut shape = Self {
            own: 0,
            height: 0,
            general: Vec::new(),
            named: Vec::new(),
            arrays: Vec::new(),
            any_item: Vec::new(),
        };
        let mut by_name: HashMap<&str, (Counted, Counted)> = HashMap::new();
        for id in reached {
            let node = &graph.nodes[id];
            let (count, height) = counts.get(&id).copied().unwrap_or((1, 1));
            *work += 1 + node.in_place.len() + node.properties.len() + node.first_items.len();
            shape.own = (shape.own + count).min(MANY);
            shape.height = shape.height.max(height);
            for child in &node.in_place {
                let known = counts.entry(*child).or_insert((0, 0));
                known.0 = (known.0 + count).min(MANY);
                known.1 = known.1.max(height + 1);
            }
            shape.general.extend(
                node.any_property
                    .iter()
                    .chain(&node.other_properties)
                    .map(|child| (*child, count)),
            );
            for (name, child) in &node.properties {
                let (evaluated, skipped) = by_name.entry(name).or_default();
                evaluated.push((*child, count));
                skipped.extend(node.other_properties.map(|other| (other, count)));
            }
            if !node.first_items.is_empty() || node.other_items.is_some() {
                shape
                    .arrays
                    .push((count, node.first_items.clone(), node.other_items));
            }
            shape
                .any_item
                .extend(node.any_item.iter().map(|child| (*child, count)));
        }
        shape.named = by_name.into_values().collect();
        shape
    }

    /// Returns the largest total over the members a value could have, given a price per schema.
    fn dearest_member(&self, price: &HashMap<NodeId, u64>) -> u64 {
        let of = |id: &NodeId| u128::from(price.get(id).copied().unwrap_or(0));
        let sum = |counted: &Counted| {
            counted
                .iter()
                .map(|(id, count)| of(id) * u128::from(*count))
                .sum::<u128>()
        };
        let general = sum(&self.general);
        let named = self
            .named
            .iter()
            .map(|(evaluated, skipped)| sum(evaluated) + general - sum(skipped))
            .max();
        let positions = self.arrays.iter().map(|(count, first, other)| {
            let dearest = first.iter().chain(other).map(of).max().unwrap_or(0);
            dearest * u128::from(*count)
        });
        let item = positions.sum::<u128>() + sum(&self.any_item);
        let dearest = general.max(named.unwrap_or(0)).max(item);
        u64::try_from(dearest).unwrap_or(MANY).min(MANY)
    }

    fn members(&self) -> impl Iterator<Item = NodeId> + '_ {
        let counted = self
            .named
            .iter()
            .flat_map(|(evaluated, _)| evaluated)
            .chain(&self.general)
            .chain(&self.any_item);
        counted.map(|(id, _)| *id).chain(
            self.arrays
                .iter()
                .flat_map(|(_, first, other)| first.iter().chain(other).copied()),
        )
    }
}

/// The price of the root by depth, and whether it stopped growing.
struct Chain {
    evaluations: Vec<u64>,
    heights: Vec<u64>,
    settled: bool,
}

impl Chain {
    fn follow(entries: &[NodeId], shapes: &HashMap<NodeId, Shape>, limits: &Limits) -> Self {
        let mut price: HashMap<NodeId, u64> = HashMap::new();
        let mut height: HashMap<NodeId, u64> = HashMap::new();
        let mut chain = Self {
            evaluations: Vec::new(),
            heights: Vec::new(),
            settled: false,
        };
        for _ in 0..=limits.instance_depth {
            if chain.settled {
                chain.repeat_last();
                continue;
            }
            let mut next_price = HashMap::with_capacity(entries.len());
            let mut next_height = HashMap::with_capacity(entries.len());
            for entry in entries {
                let shape = &shapes[entry];
                let tallest = shape
                    .members()
                    .map(|id| height.get(&id).copied().unwrap_or(0))
                    .max()
                    .unwrap_or(0);
                next_price.insert(*entry, (shape.own + shape.dearest_member(&price)).min(MANY));
                next_height.insert(*entry, (shape.height + tallest).min(MANY));
            }
            chain.settled = next_price == price && next_height == height;
            price = next_price;
            height = next_height;
            chain.evaluations.push(price[&0]);
            chain.heights.push(height[&0]);
        }
        chain
    }

    fn repeat_last(&mut self) {
        self.evaluations.extend(self.evaluations.last().copied());
        self.heights.extend(self.heights.last().copied());
    }

    /// Accepts the schema for the depths it can afford. A schema that does not recurse must afford
    /// all of its own depths; a recursive one may bound the instance instead.
    fn judge(
        self,
        graph: &Graph,
        shapes: &HashMap<NodeId, Shape>,
        limits: &Limits,
    ) -> Result<Cost, CompileProblem> {
        let affordable = self
            .evaluations
            .iter()
            .zip(&self.heights)
            .take_while(|(evaluations, height)| {
                **evaluations <= limits.expansions && **height <= TALLEST
            })
            .count();
        let recursive = !self.settled;
        if affordable == self.evaluations.len() || (recursive && affordable > LEAST_DEPTH) {
            return Ok(Cost {
                by_depth: self.evaluations[..affordable].to_vec(),
            });
        }
        let worst = self.evaluations[affordable];
        let culprit = shapes
            .iter()
            .max_by_key(|(id, shape)| (shape.own, std::cmp::Reverse(**id)))
            .map_or(0, |(id, _)| *id);
        let message = if worst > limits.expansions {
            format!(
                "branches and references multiply to more than {} evaluations of one value; \
                 let fewer alternatives (`anyOf`, `oneOf`, `allOf`, `$ref`) share a definition or a property",
                limits.expansions
            )
        } else {
            format!(
                "references follow each other more than {TALLEST} deep; refer to the last one directly"
            )
        };
        Err(CompileProblem::new(
            &graph.nodes[culprit].pointer,
            CompileCode::TooCostly,
            message,
        ))
    }
}
