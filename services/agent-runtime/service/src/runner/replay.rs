//! Replaying a finished turn without model, tools or network (rules G1001 and G1002).
//!
//! The inputs from outside are taken from the fixture: the texts of the model, the results of
//! calls, the messages and edits of people, the usage of deliberation workflows. All that the turn
//! derived from them is derived again and compared: rounds, prompts, calls and their effect ids,
//! refusals, observations of the model, budgets and the end. Times and trace ids are not compared.

mod answer;
mod fixture;

use std::collections::BTreeMap;

use agent_domain::{
    message::TurnMessage,
    observation,
    plan::{Opening, Plan},
    reduction,
    turn::{self, Ask, CallState, Command, Turn},
};
use call_catalogue::Catalogue;
use contracts::{
    tavern::common::v1::{self as common, RunEvent, run_event::Kind},
    watch::voids_answer,
};
use core_types::RunId;
use serde_json::Value;
use turn_log::{
    journal,
    replay::{opening, time_of},
    state::TurnState,
};

use super::{
    driver::{self, skipped},
    ending,
    inventory::Inventory,
    prompting::{self, PromptStates},
    untrusted::Untrusted,
};
use answer::Answered;

pub use fixture::{Fixture, FixtureError};
pub(super) use fixture::{Header, Parts, ShownState, StateKind, lines};

/// The first event in which a replay differs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "event {sequence} differs at `{pointer}`: the fixture has {recorded}, and the replay gives {replayed}"
)]
pub struct Divergence {
    /// Its place in the log.
    pub sequence: u64,
    /// The place in the event.
    pub pointer: String,
    /// The value in the fixture; null for none.
    pub recorded: Box<Value>,
    /// The value in the replay; null for none.
    pub replayed: Box<Value>,
}

/// Replays a turn. Returns the number of compared events.
///
/// # Errors
/// The first [`Divergence`].
pub fn replay(fixture: &Fixture) -> Result<usize, Divergence> {
    let own: Vec<&RunEvent> = fixture.own_events().collect();
    let mut replay = Replay::begin(fixture, &own)?;
    for (place, event) in own.iter().enumerate() {
        if let Some(kind) = &event.kind {
            replay.step(event, kind, &own[place + 1..])?;
        }
    }
    Ok(replay.compared)
}

/// A turn that is replayed.
struct Replay<'a> {
    fixture: &'a Fixture,
    run: RunId,
    plan: &'a Plan,
    state: TurnState,
    inventory: Inventory,
    earlier: Vec<Vec<TurnMessage>>,
    untrusted: Untrusted,
    /// The last versions of the states that the model was shown.
    shown: [u64; 3],
    /// The reading of the present answer.
    answered: Option<Answered>,
    /// The released text since the last request to the model.
    said: String,
    /// The model's observations of calls that have ended, by their places.
    observed: BTreeMap<u32, Option<String>>,
    /// The model's observation of a budget that is nearly used up.
    nearly: Option<String>,
    /// Whether the model was informed of a repetition before the present round.
    is_remarked: bool,
    compared: usize,
}

impl<'a> Replay<'a> {
    fn begin(fixture: &'a Fixture, own: &[&RunEvent]) -> Result<Self, Divergence> {
        let header = &fixture.header;
        let missing = |what: &str| Divergence {
            sequence: 1,
            pointer: String::new(),
            recorded: Box::new(what.into()),
            replayed: Box::default(),
        };
        let started = own.first().and_then(|event| match &event.kind {
            Some(Kind::RunStarted(started)) => Some((*event, started)),
            _ => None,
        });
        let (first, started) = started.ok_or_else(|| missing("no beginning"))?;
        let opening = opening(&header.plan, started).map_err(|_| missing("no input"))?;
        let run = first
            .run_id
            .parse()
            .map_err(|_| missing("no id of a run"))?;
        let text = match &opening {
            Opening::ModelText { text, .. } => Some(text.clone()),
            Opening::UserMessage(_) | Opening::Events(_) => None,
        };
        let native = header.plan.tools.is_native();
        let inventory = header.inventory();
        let mut untrusted = Untrusted::default();
        untrusted.add_before(header.untrusted.iter().cloned());
        let mut replay = Self {
            fixture,
            run,
            plan: &header.plan,
            state: TurnState::begin(&header.plan, native, opening, time_of(first)),
            inventory: inventory.map_err(|problem| missing(&problem))?,
            earlier: header.earlier(),
            untrusted,
            shown: [0; 3],
            answered: None,
            said: String::new(),
            observed: BTreeMap::new(),
            nearly: None,
            is_remarked: false,
            compared: 0,
        };
        if let Some(text) = text {
            replay.answered = Some(replay.read_opening(&text));
            let read = replay.state.read_opening(time_of(first));
            read.map_err(|error| diverged(first, &error))?;
        }
        Ok(replay)
    }

    /// Applies an event: an event of the turn itself is compared first.
    fn step(
        &mut self,
        event: &RunEvent,
        kind: &Kind,
        later: &[&RunEvent],
    ) -> Result<(), Divergence> {
        match kind {
            Kind::MessageGiven(_) => {
                let given = journal::given_message(kind).map(|message| message.at(time_of(event)));
                self.earlier.extend(given.map(|message| vec![message]));
            }
            Kind::Text(text) => self.said.push_str(&text.text),
            Kind::OutputReset(reset) if voids_answer(reset) => self.said.clear(),
            Kind::IterationStarted(_) => {
                self.is_remarked = false;
                let expected = self.round();
                self.compare(event, kind, expected)?;
            }
            Kind::ModelRequested(asked) => {
                let expected = self.request(asked);
                self.compare(event, kind, expected)?;
                self.said.clear();
                self.note_states(asked);
            }
            Kind::ModelAnswered(_) => self.check_said(event)?,
            Kind::ToolSelected(_) => {
                let next = self.answered.as_mut().map(Answered::next_call);
                if let Some(expected) = next {
                    self.compare(event, kind, expected)?;
                }
            }
            Kind::Diagnosed(_) => {
                // Remarks before the request to the model are about the inventory.
                let next = self.answered.as_mut().map(Answered::next_remark);
                if let Some(expected) = next {
                    self.compare(event, kind, expected)?;
                }
            }
            Kind::CallDispatched(sent) => {
                let expected = self.dispatch(sent.index);
                self.compare(event, kind, expected)?;
            }
            Kind::CallSettled(ended) => self.check_end(event, kind, ended)?,
            Kind::Observation(observed) => self.check_observation(event, kind, observed)?,
            Kind::BudgetReached(reached) => self.check_budget(event, kind, reached)?,
            Kind::RunFinished(finished) => self.check_finish(event, finished)?,
            _ => {}
        }
        let applied = self.state.apply(event);
        applied.map_err(|error| diverged(event, &error))?;
        match (kind, self.state.compaction()) {
            (Kind::ModelRequested(_), _) => self.answered = self.next_answer(later),
            (Kind::ConversationCompacted(_), Some(compaction)) => {
                compaction.apply(&mut self.earlier, self.plan.language);
            }
            _ => {}
        }
        Ok(())
    }

    fn turn(&self) -> &Turn {
        self.state.turn()
    }

    fn catalogue(&self) -> &Catalogue {
        let handle_given = self.fixture.header.handle_given || self.state.handle_given();
        self.inventory.catalogue(handle_given)
    }

    fn round(&self) -> Option<Kind> {
        match self.turn().next() {
            Command::Ask(Ask::Round(iteration)) => {
                Some(Kind::IterationStarted(common::IterationStarted {
                    iteration,
                    limit: self.turn().budgets().iterations,
                }))
            }
            _ => None,
        }
    }

    /// Makes a request again. States are shown as the fixture has them; without them the prompt's
    /// digest is not compared.
    fn request(&self, asked: &common::ModelRequested) -> Option<Kind> {
        if !matches!(self.turn().next(), Command::Ask(_)) {
            return None;
        }
        let model = match &self.plan.deliberation {
            Some(workflow) => format!("workflow:{workflow}"),
            None => self.plan.model.clone()?,
        };
        let header = &self.fixture.header;
        let shown = PromptStates {
            private: header.state(StateKind::Private, asked.state_version),
            world: header.state(StateKind::World, asked.world_version),
            goals: header.state(StateKind::Goals, asked.goals_version),
        };
        let prompt = prompting::prompt(
            self.plan,
            self.catalogue(),
            (&self.earlier, &self.turn().messages()),
            shown,
            header.history_bytes,
        );
        let prompt_digest = match asked.prompt_digest.is_empty() {
            true => String::new(),
            false => prompt.digest(),
        };
        Some(Kind::ModelRequested(common::ModelRequested {
            model,
            messages: u32::try_from(prompt.messages.len()).unwrap_or(u32::MAX),
            state_version: asked.state_version,
            world_version: asked.world_version,
            goals_version: asked.goals_version,
            prompt_digest,
        }))
    }

    /// Texts of tools and other programs in a state are not trusted.
    fn note_states(&mut self, asked: &common::ModelRequested) {
        let kinds = [StateKind::Private, StateKind::World, StateKind::Goals];
        let versions = [
            asked.state_version,
            asked.world_version,
            asked.goals_version,
        ];
        let header = &self.fixture.header;
        for (place, kind) in kinds.into_iter().enumerate() {
            let shown = header.state(kind, versions[place]);
            if self.shown[place] != versions[place] {
                let texts = shown.map(Value::to_string);
                self.untrusted.add_states(self.state.untrusted(), texts);
            }
        }
        self.shown = versions;
    }

    fn dispatch(&self, index: u32) -> Option<Kind> {
        let mut calls = self.turn().calls().iter();
        let progress = calls.find(|progress| progress.call.index == index)?;
        Some(Kind::CallDispatched(common::CallDispatched {
            effect_id: driver::effect_of(&self.state, &self.run, index),
            tool_id: progress.call.tool_id.clone(),
            arguments_json: progress.call.arguments_json.clone(),
            index,
            node_id: String::new(),
        }))
    }

    /// Checks that the released text is the text of the whole answer.
    fn check_said(&mut self, event: &RunEvent) -> Result<(), Divergence> {
        let Some(answered) = &self.answered else {
            return Ok(());
        };
        if answered.released == self.said || self.state.is_taken_over(event.sequence) {
            self.compared += 1;
            return Ok(());
        }
        Err(Divergence {
            sequence: event.sequence,
            pointer: "/text/text".to_owned(),
            recorded: Box::new(self.said.clone().into()),
            replayed: Box::new(answered.released.clone().into()),
        })
    }

    /// Results of dispatched calls come from outside; results of other calls are made here.
    fn check_end(
        &mut self,
        event: &RunEvent,
        kind: &Kind,
        ended: &common::CallSettled,
    ) -> Result<(), Divergence> {
        let Some(result) = &ended.result else {
            return Ok(());
        };
        let calls = self.turn().calls().iter();
        let has_left = calls.clone().any(|progress| {
            progress.call.index == result.index
                && matches!(progress.state, CallState::Dispatched { .. })
        });
        if has_left {
            self.observed.insert(result.index, self.words(result));
            return Ok(());
        }
        let refusal = self
            .answered
            .as_ref()
            .and_then(|answered| answered.refusal(result.index));
        let (expected, text) = match (refusal, self.turn().next()) {
            (Some((settled, text)), _) => (Some(settled), text),
            (None, Command::Skip { call, failed_tool }) => {
                let text = observation::skipped(&call.tool_id, &failed_tool);
                (Some(skipped(&call, &failed_tool)), Some(text))
            }
            (None, Command::Withhold { call, budget }) => {
                let text = observation::withheld(&call.tool_id, budget);
                (Some(driver::withheld(&call, budget)), Some(text))
            }
            (None, _) => (None, None),
        };
        self.observed.insert(result.index, text);
        self.compare(event, kind, expected)
    }

    /// Words the model's observation of a call; none if a workflow shortened it or it is not
    /// observed.
    fn words(&self, result: &common::CallResult) -> Option<String> {
        let is_reduced = call_wire::gives_handle(result)
            && reduction::workflow_for(&self.plan.reduction, &result.tool_id).is_some();
        match is_reduced {
            true => None,
            false => driver::words(result),
        }
    }

    fn check_observation(
        &mut self,
        event: &RunEvent,
        kind: &Kind,
        observed: &common::Observation,
    ) -> Result<(), Divergence> {
        let expected = match observed.index {
            Some(index) => match self.observed.remove(&index) {
                // A workflow wrote it.
                Some(None) => return Ok(()),
                Some(text) => text,
                None => None,
            },
            None => self.remark(),
        };
        let expected = expected.map(|text| journal::observation(observed.index, text));
        self.compare(event, kind, expected)
    }

    /// Returns the next remark on the turn as a whole.
    fn remark(&mut self) -> Option<String> {
        let of_answer = self.answered.as_mut().and_then(Answered::take_observation);
        if of_answer.is_some() {
            return of_answer;
        }
        if let Some(nearly) = self.nearly.take() {
            return Some(nearly);
        }
        if let Some(times) = self
            .turn()
            .remarked_repetition()
            .filter(|_| !self.is_remarked)
        {
            self.is_remarked = true;
            return Some(call_prompt::observation::repeated(times));
        }
        match self.turn().next() {
            Command::Ask(Ask::Last(budget)) => Some(observation::no_calls_remain(budget)),
            _ => None,
        }
    }

    fn check_budget(
        &mut self,
        event: &RunEvent,
        kind: &Kind,
        reached: &common::BudgetReached,
    ) -> Result<(), Divergence> {
        let Some(budget) = turn_log::wire::budget_from_proto(reached) else {
            return Ok(());
        };
        let used = self.state.used(time_of(event));
        let budgets = self.turn().budgets();
        let mut all = budgets.all(&used);
        let known = all.find(|(known, _)| known.name() == budget.name());
        let expected = known.map(|(budget, used)| match reached.unit() {
            // Time is not replayed.
            common::BudgetUnit::WallSeconds => {
                journal::budget_reached(budget, reached.used, reached.spent)
            }
            _ => journal::budget_reached(budget, used, reached.spent),
        });
        if !reached.spent {
            self.nearly = Some(observation::nearly_spent(budget, reached.used));
        }
        self.compare(event, kind, expected)
    }

    /// A turn that was ended from outside has its recorded end.
    fn check_finish(
        &mut self,
        event: &RunEvent,
        finished: &common::RunFinished,
    ) -> Result<(), Divergence> {
        let recorded = finished.outcome.clone().unwrap_or_default();
        let by_itself = match self.turn().next() {
            Command::Finish(finish) => Some(ending::outcome(self.turn(), &finish)),
            Command::Ask(Ask::Last(budget)) => {
                let finish = turn::Finish::Budget(budget);
                Some(ending::outcome(self.turn(), &finish))
            }
            _ => None,
        };
        use common::StopReason as Reason;
        let from_outside = [
            Reason::Cancelled,
            Reason::Deadline,
            Reason::Error,
            Reason::Unspecified,
        ];
        let Some(outcome) = by_itself.filter(|_| !from_outside.contains(&recorded.stop_reason()))
        else {
            return Ok(());
        };
        let outcome = common::RunOutcome {
            model_totals: self.state.model_totals(),
            calls: self.turn().dispatched(),
            durability: recorded.durability,
            ..outcome
        };
        let expected = Kind::RunFinished(common::RunFinished {
            outcome: Some(outcome),
        });
        let recorded = Kind::RunFinished(finished.clone());
        self.compare(event, &recorded, Some(expected))
    }

    /// Compares an event with the event of the replay.
    fn compare(
        &mut self,
        event: &RunEvent,
        recorded: &Kind,
        replayed: Option<Kind>,
    ) -> Result<(), Divergence> {
        self.compared += 1;
        // Events that were taken over were made by another turn.
        if replayed.as_ref() == Some(recorded) || self.state.is_taken_over(event.sequence) {
            return Ok(());
        }
        let value = |kind: Option<&Kind>| {
            let event = kind.map(|kind| RunEvent {
                kind: Some(kind.clone()),
                ..RunEvent::default()
            });
            event.map_or(Value::Null, |event| fixture::to_value(&event))
        };
        let (recorded, replayed) = (value(Some(recorded)), value(replayed.as_ref()));
        let (pointer, recorded, replayed) = first_difference(&recorded, &replayed);
        Err(Divergence {
            sequence: event.sequence,
            pointer,
            recorded: Box::new(recorded),
            replayed: Box::new(replayed),
        })
    }
}

/// Reports an event that does not fit the turn.
fn diverged(event: &RunEvent, error: &turn::Divergence) -> Divergence {
    Divergence {
        sequence: event.sequence,
        pointer: String::new(),
        recorded: Box::new(error.to_string().into()),
        replayed: Box::default(),
    }
}

/// Returns the place of the first difference of two values, and their values at it.
fn first_difference(one: &Value, other: &Value) -> (String, Value, Value) {
    let deeper = match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys());
            let mut pairs = keys.map(|key| (key.clone(), one.get(key), other.get(key)));
            pairs.find(|(_, one, other)| one != other)
        }
        (Value::Array(one), Value::Array(other)) => {
            let places = 0..one.len().max(other.len());
            let mut pairs = places.map(|at| (at.to_string(), one.get(at), other.get(at)));
            pairs.find(|(_, one, other)| one != other)
        }
        _ => None,
    };
    match deeper {
        Some((key, one, other)) => {
            let null = Value::Null;
            let (one, other) = (one.unwrap_or(&null), other.unwrap_or(&null));
            let (below, one, other) = first_difference(one, other);
            (format!("/{key}{below}"), one, other)
        }
        None => (String::new(), one.clone(), other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn g1002_the_first_difference_has_a_pointer_and_both_values() {
        let one = json!({"a": {"b": [1, 2]}, "c": 1});
        let other = json!({"a": {"b": [1, 3]}, "c": 2});
        assert_eq!(
            first_difference(&one, &other),
            ("/a/b/1".to_owned(), json!(2), json!(3))
        );
        assert_eq!(
            first_difference(&json!({"a": 1}), &Value::Null),
            (String::new(), json!({"a": 1}), Value::Null)
        );
    }
}
