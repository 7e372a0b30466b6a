//! Turns in made-up worlds.

use proptest::prelude::*;

use super::*;

/// The answers of a made-up world: the calls of each answer, the end of each, whether it is well
/// written and whether it may run alongside others.
#[derive(Clone, Debug)]
struct World {
    answers: Vec<Vec<(u8, bool, bool)>>,
    /// The step from which on a budget is spent that the turn does not count itself.
    spent_from: usize,
    /// The step from which on a person sends a message before the model is asked.
    steered_from: usize,
}

fn world() -> impl Strategy<Value = World> {
    let calls = prop::collection::vec((0_u8..5, any::<bool>(), any::<bool>()), 0..5);
    (
        prop::collection::vec(calls, 1..12),
        0_usize..60,
        0_usize..60,
    )
        .prop_map(|(answers, spent_from, steered_from)| World {
            answers,
            spent_from,
            steered_from,
        })
}

/// Returns the events of a request to the model and its answer with these calls.
fn asked(ask: Ask, calls: &[(u8, bool, bool)], allowed: u32) -> Vec<TurnEvent> {
    let mut events = match ask {
        Ask::Round(_) => vec![TurnEvent::IterationStarted],
        Ask::Last(_) => vec![TurnEvent::Observed {
            index: None,
            text: "last".to_owned(),
        }],
        Ask::Again => Vec::new(),
    };
    events.extend([TurnEvent::ModelRequested, answered("text")]);
    let mut refused = Vec::new();
    for (index, (_, good, parallel_safe)) in (0_u32..).zip(calls) {
        let problems = if *good {
            Vec::new()
        } else {
            vec!["wrong".to_owned()]
        };
        events.push(read(&ReadCall {
            problems,
            parallel_safe: *parallel_safe,
            ..call(index, "tool")
        }));
        if !good || index >= allowed {
            refused.push(settled(index, CallStatus::Failed));
            refused.push(observed(index, "refused"));
        }
    }
    events.extend(refused);
    events
}

/// Carries a turn out in a made-up world and returns its events.
fn play(world: &World, budgets: Budgets) -> (Turn, Vec<TurnEvent>) {
    let mut turn = Turn::new(
        budgets,
        &Opening::UserMessage("hello".to_owned()),
        Timestamp::default(),
    );
    let mut history = Vec::new();
    let mut answers = world.answers.iter();
    let mut fates: Vec<u8> = Vec::new();
    let (mut is_spent, mut is_steered) = (false, false);
    for step in 0..1_000 {
        let events = match turn.next() {
            Command::Dispatch(_) | Command::Ask(Ask::Round(_))
                if step >= world.spent_from && !is_spent =>
            {
                is_spent = true;
                vec![TurnEvent::BudgetSpent(Budget::Tokens(1))]
            }
            Command::Ask(_) | Command::Finish(Finish::Stop)
                if step >= world.steered_from && !is_steered =>
            {
                is_steered = true;
                vec![TurnEvent::Steered("and now?".to_owned())]
            }
            Command::Withhold { call, .. } => vec![
                settled(call.index, CallStatus::Skipped),
                observed(call.index, "withheld"),
            ],
            Command::Finish(_) => return (turn, history),
            Command::ReadOpening(_) => vec![TurnEvent::OpeningRead],
            Command::Skip { call, .. } => {
                vec![
                    settled(call.index, CallStatus::Skipped),
                    observed(call.index, "skipped"),
                ]
            }
            Command::Dispatch(call) => vec![dispatched(call.index)],
            Command::GiveUp(_) => panic!("no answer is lost here"),
            Command::Await(left) => {
                // The last call that left ends first.
                let index = left[left.len() - 1];
                match fates[index as usize] {
                    0 => vec![settled(index, CallStatus::InDoubt)],
                    1 => vec![
                        settled(index, CallStatus::Failed),
                        observed(index, "failed"),
                    ],
                    _ => vec![
                        settled(index, CallStatus::Succeeded),
                        observed(index, "fine"),
                    ],
                }
            }
            Command::Ask(ask) => {
                let calls = answers.next().cloned().unwrap_or_default();
                fates = calls.iter().map(|(fate, ..)| *fate).collect();
                asked(ask, &calls, turn.calls_left())
            }
        };
        for event in events {
            turn.apply(event.clone(), Timestamp::default()).unwrap();
            history.push(event);
        }
    }
    panic!("the turn did not end: {history:?}");
}

proptest! {
    #[test]
    fn every_turn_ends_and_keeps_its_budgets(world in world(), iterations in 1_u32..5, calls in 1_u32..6) {
        let (_, history) = play(&world, budgets(iterations, calls));
        let count = |wanted: fn(&TurnEvent) -> bool| history.iter().filter(|event| wanted(event)).count() as u32;
        prop_assert!(count(|event| matches!(event, TurnEvent::IterationStarted)) <= iterations);
        prop_assert!(count(|event| matches!(event, TurnEvent::ModelRequested)) <= iterations + 1);
        let dispatched = count(|event| matches!(event, TurnEvent::CallDispatched { .. }));
        prop_assert!(dispatched <= calls);
        let is_spent = |event: &TurnEvent| matches!(event, TurnEvent::BudgetSpent(_));
        let after = history.iter().skip_while(|event| !is_spent(event));
        let leaves = |event: &&TurnEvent| {
            matches!(event, TurnEvent::CallDispatched { .. } | TurnEvent::IterationStarted)
        };
        prop_assert_eq!(after.filter(leaves).count(), 0, "nothing leaves once a budget is spent");
    }

    #[test]
    fn every_prefix_of_a_history_replays_to_the_same_state(world in world(), cut in 0_usize..100) {
        let budgets = budgets(4, 5);
        let (ended, history) = play(&world, budgets);
        let cut = cut.min(history.len());
        let new = || Turn::new(budgets, &Opening::UserMessage("hello".to_owned()), Timestamp::default());
        let (mut live, mut replayed) = (new(), new());
        apply(&mut live, history[..cut].iter().cloned());
        apply(&mut replayed, history[..cut].iter().cloned());
        prop_assert_eq!(&live, &replayed);
        prop_assert_eq!(live.next(), replayed.next());
        apply(&mut replayed, history[cut..].iter().cloned());
        prop_assert_eq!(&replayed, &ended);
    }
}
