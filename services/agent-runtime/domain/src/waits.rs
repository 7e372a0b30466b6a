//! Turns of a scene that wait for each other (rule G901).

use std::collections::VecDeque;

/// A turn of an agent of a scene that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTurn {
    /// Its run.
    pub run_id: String,
    /// The agent.
    pub instance_id: String,
    /// The runs above it: each waits for its end.
    pub above: Vec<String>,
}

/// Returns the agents that would wait for each other, the first also at the end, if a turn of `instance_id`
/// were started below the runs `above`; none if it can be waited for. `open` has the turns of each agent in
/// the order of its queue.
pub fn cycle(open: &[OpenTurn], instance_id: &str, above: &[String]) -> Option<Vec<String>> {
    // The turns that were reached, with the way back to the new one.
    let mut reached: Vec<(usize, Option<usize>)> = Vec::new();
    let mut next: VecDeque<usize> = VecDeque::new();
    let first = (0..open.len()).filter(|at| open[*at].instance_id == instance_id);
    for at in first {
        reached.push((at, None));
        next.push_back(reached.len() - 1);
    }
    while let Some(place) = next.pop_front() {
        let at = reached[place].0;
        if let Some(asks) = above.iter().position(|run| *run == open[at].run_id) {
            let mut agents = agents_of(open, &above[asks..]);
            agents.append(&mut way(open, &reached, place));
            agents.dedup();
            if let [only] = agents.as_slice() {
                agents.push(only.clone());
            }
            return Some(agents);
        }
        for (other, _) in open.iter().enumerate().filter(|(other, turn)| {
            let is_before = *other < at && turn.instance_id == open[at].instance_id;
            is_before || turn.above.contains(&open[at].run_id)
        }) {
            if !reached.iter().any(|(known, _)| *known == other) {
                reached.push((other, Some(place)));
                next.push_back(reached.len() - 1);
            }
        }
    }
    None
}

/// Returns the agents whose turns are among some runs, in the order of the runs.
fn agents_of(open: &[OpenTurn], runs: &[String]) -> Vec<String> {
    let turns = runs
        .iter()
        .filter_map(|run| open.iter().find(|turn| turn.run_id == *run));
    turns.map(|turn| turn.instance_id.clone()).collect()
}

/// Returns the agents from the callee to the agent whose turn was reached at `place`.
fn way(open: &[OpenTurn], reached: &[(usize, Option<usize>)], place: usize) -> Vec<String> {
    let mut agents = Vec::new();
    let mut at = Some(place);
    while let Some(place) = at {
        let (turn, from) = reached[place];
        agents.push(open[turn].instance_id.clone());
        at = from;
    }
    agents.reverse();
    agents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(run_id: &str, above: &[&str]) -> OpenTurn {
        OpenTurn {
            run_id: run_id.to_owned(),
            instance_id: run_id[..1].to_owned(),
            above: above.iter().map(|run| (*run).to_owned()).collect(),
        }
    }

    fn found(open: &[OpenTurn], instance_id: &str, above: &[&str]) -> Option<String> {
        let above: Vec<String> = above.iter().map(|run| (*run).to_owned()).collect();
        cycle(open, instance_id, &above).map(|agents| agents.join(" "))
    }

    #[test]
    fn g901_an_agent_that_is_idle_or_busy_with_something_else_can_be_waited_for() {
        assert_eq!(found(&[turn("a1", &[])], "b", &["a1"]), None);
        assert_eq!(
            found(&[turn("a1", &[]), turn("b1", &[])], "b", &["a1"]),
            None
        );
    }

    #[test]
    fn g901_an_agent_does_not_wait_for_itself() {
        assert_eq!(
            found(&[turn("a1", &[])], "a", &["a1"]).as_deref(),
            Some("a a")
        );
    }

    #[test]
    fn g901_an_agent_does_not_wait_for_one_that_asked_it() {
        let open = [
            turn("a1", &[]),
            turn("b1", &["a1"]),
            turn("c1", &["a1", "b1"]),
        ];
        let cycle = found(&open, "a", &["a1", "b1", "c1"]);
        assert_eq!(cycle.as_deref(), Some("a b c a"));
        let cycle = found(&open[..2], "a", &["b1"]);
        assert_eq!(cycle.as_deref(), Some("b a b"));
    }

    #[test]
    fn g901_turns_that_are_queued_behind_each_other_make_a_cycle_too() {
        // `a1` calls `b`, where `b2` waits for `b1`, which is unrelated to it and now calls `a`.
        let open = [turn("a1", &[]), turn("b1", &[]), turn("b2", &["a1"])];
        assert_eq!(found(&open, "a", &["b1"]).as_deref(), Some("b a b"));
        assert_eq!(found(&open[..2], "a", &["b1"]), None);
    }
}
