//! Finds the cycles of a graph.

/// Returns up to `most` cycles of the graph whose node `n` leads to `successors[n]`, each as the
/// nodes along it; the last one leads to the first one. No node is in two of them.
pub fn cycles(successors: &[Vec<usize>], most: usize) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; successors.len()];
    // Nodes that a known cycle explains: every node searches along its path once, so that a graph
    // full of cycles costs no more than its square.
    let mut explained = vec![false; successors.len()];
    let mut found: Vec<Vec<usize>> = Vec::new();
    for root in 0..successors.len() {
        if marks[root] != Mark::New {
            continue;
        }
        // An explicit path of (node, next edge): a chain of 10,000 nodes would end a call stack.
        let mut path = vec![(root, 0)];
        marks[root] = Mark::OnPath;
        while let Some((node, edge)) = path.last().copied() {
            let Some(&next) = successors[node].get(edge) else {
                marks[node] = Mark::Done;
                path.pop();
                continue;
            };
            if let Some(last) = path.last_mut() {
                last.1 += 1;
            }
            match marks[next] {
                Mark::New => {
                    marks[next] = Mark::OnPath;
                    path.push((next, 0));
                }
                Mark::OnPath if !explained[node] && !explained[next] => {
                    let start = path.iter().position(|(node, _)| *node == next).unwrap_or(0);
                    let cycle: Vec<usize> = path[start..].iter().map(|(node, _)| *node).collect();
                    let is_new = !cycle.iter().any(|node| explained[*node]);
                    explained[node] = true;
                    if is_new {
                        cycle.iter().for_each(|node| explained[*node] = true);
                        found.push(cycle);
                    }
                    if found.len() == most {
                        return found;
                    }
                }
                Mark::OnPath | Mark::Done => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(edges: &[(usize, usize)], nodes: usize, expected: &[&[usize]]) {
        let mut successors = vec![Vec::new(); nodes];
        for (from, to) in edges {
            successors[*from].push(*to);
        }
        assert_eq!(cycles(&successors, 8), expected);
    }

    #[test]
    fn a_cycle_is_given_with_its_path() {
        check(&[(0, 1), (1, 2), (2, 1)], 3, &[&[1, 2]]);
        check(&[(0, 0)], 1, &[&[0]]);
        check(
            &[(0, 1), (1, 0), (2, 3), (3, 4), (4, 2)],
            5,
            &[&[0, 1], &[2, 3, 4]],
        );
    }

    #[test]
    fn a_diamond_is_no_cycle() {
        check(&[(0, 1), (0, 2), (1, 3), (2, 3)], 4, &[]);
        check(&[], 0, &[]);
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let edges: Vec<(usize, usize)> = (0..99_999).map(|node| (node, node + 1)).collect();
        check(&edges, 100_000, &[]);
    }
}
