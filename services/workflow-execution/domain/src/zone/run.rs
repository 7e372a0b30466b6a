//! A zone in progress, with the zones inside it.

use std::sync::Arc;

use call_outcome::{Category, Failure};
use serde_json::Value;

use super::super::data_flow::Values;
use super::super::engine::{Command, Engine, Event};
use super::super::evaluate::{all_present, execute, finished};
use super::super::limits::MAX_HANDLED;
use super::super::node_type::{Effect, Step};
use super::super::plan::{NodeIndex, PlanNode};
use super::body::Body;
use super::iterations::Iterations;

/// The most nodes that one zone executes, including the nodes of zones inside it.
const MAX_STEPS: u64 = 10_000_000;

/// A failure inside a zone that the settings of its node handled: the node, from the number of the
/// iteration on, and the failure.
pub type HandledInside = (String, Arc<Failure>);

/// A zone in progress. It is advanced by a number of steps at a time.
#[derive(Debug)]
pub struct ZoneRun {
    /// The zone, and the zones inside it that are in progress; the innermost last.
    frames: Vec<Frame>,
    steps: u64,
    handled: Vec<HandledInside>,
}

/// One zone in progress.
#[derive(Debug)]
struct Frame {
    /// Its place in the plan around it.
    node: NodeIndex,
    body: Body,
    iterations: Iterations,
    /// The present iteration; none before the next.
    engine: Option<Engine>,
    commands: Vec<Command>,
    /// The failure that the last step handled.
    handled: Option<(NodeIndex, Arc<Failure>)>,
}

/// The next action of a frame.
enum Next {
    Continue,
    /// A zone inside begins.
    Enter(Box<Frame>),
    /// The zone is over.
    Over(Result<Vec<Arc<Value>>, Failure>),
}

impl ZoneRun {
    /// Begins a zone on the values of its inputs.
    ///
    /// # Errors
    /// A value that the zone cannot use.
    pub fn begin(planned: &PlanNode, seed: u64, inputs: &Values) -> Result<Self, Failure> {
        let frames = vec![Frame::begin(planned, 0, seed, inputs)?];
        Ok(Self {
            frames,
            steps: 0,
            handled: Vec::new(),
        })
    }

    /// Returns the failures that were handled, the first [`MAX_HANDLED`] of them.
    pub fn into_handled(self) -> Vec<HandledInside> {
        self.handled
    }

    /// Executes at most `steps` nodes. Returns the outputs of the zone, or its failure, when it is
    /// over.
    pub fn advance(&mut self, steps: usize) -> Option<Result<Vec<Arc<Value>>, Failure>> {
        for _ in 0..steps {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                let message = format!("the zone has executed {MAX_STEPS} nodes and has not ended");
                return Some(Err(Failure::limit("max_steps", message)));
            }
            let frame = self.frames.last_mut()?;
            match frame.step() {
                Next::Continue => {}
                Next::Enter(inner) => self.frames.push(*inner),
                Next::Over(ended) => {
                    let inner = self.frames.pop()?;
                    let Some(around) = self.frames.last_mut() else {
                        return Some(ended);
                    };
                    around.finish(inner.node, ended);
                }
            }
            self.note_handled();
        }
        None
    }

    /// Records the failure that the innermost zone has just handled, if there is one.
    fn note_handled(&mut self) {
        let handled = self
            .frames
            .last_mut()
            .and_then(|frame| frame.handled.take());
        let Some((node, failure)) = handled.filter(|_| self.handled.len() < MAX_HANDLED) else {
            return;
        };
        let inner = self.frames.iter().skip(1).map(|frame| frame.node);
        let places = self.frames.iter().zip(inner.chain([node]));
        let places: Vec<String> = places
            .filter_map(|(frame, node)| frame.place_of(node))
            .collect();
        self.handled.push((places.concat(), failure));
    }
}

impl Frame {
    fn begin(
        planned: &PlanNode,
        node: NodeIndex,
        seed: u64,
        inputs: &Values,
    ) -> Result<Self, Failure> {
        let (body, iterations) = Body::begin(planned, seed, inputs)?;
        Ok(Self {
            node,
            body,
            iterations,
            engine: None,
            commands: Vec::new(),
            handled: None,
        })
    }

    /// Returns the number of the iteration with the id of a node in it.
    fn place_of(&self, node: NodeIndex) -> Option<String> {
        let planned = self.engine.as_ref()?.node(node);
        Some(format!("#{}/{}", self.iterations.index(), planned.id))
    }

    fn step(&mut self) -> Next {
        if self.engine.is_none() {
            return self.begin_iteration();
        }
        let Some(command) = self.commands.pop() else {
            return self.end_iteration();
        };
        let node = match command {
            Command::Skip { node, .. } => {
                self.apply(Event::Skipped(node));
                return Next::Continue;
            }
            Command::Execute(node) => node,
        };
        let Some(engine) = &mut self.engine else {
            return Next::Continue;
        };
        let gave = match execute(engine, node) {
            Ok(Step::Done(outputs)) => Ok(all_present(outputs)),
            Ok(Step::Branch(outputs)) => Ok(outputs),
            Ok(Step::Effect(Effect::RunZone { inputs })) => {
                let seed = engine.seed_of(node);
                match Frame::begin(engine.node(node), node, seed, &inputs) {
                    Ok(inner) => return Next::Enter(Box::new(inner)),
                    Err(failure) => Err(failure),
                }
            }
            Ok(Step::Effect(_) | Step::Wait(_)) => {
                let message = "a node with an effect was run inline";
                Err(Failure::new(Category::Internal, "effect_inline", message))
            }
            Err(failure) => Err(failure),
        };
        let event = finished(engine, node, gave);
        self.apply(event);
        Next::Continue
    }

    fn begin_iteration(&mut self) -> Next {
        match self.iterations.next_values() {
            Err(failure) => Next::Over(Err(failure)),
            Ok(Some(values)) => {
                self.commands.clear();
                let index = self.iterations.index();
                self.engine = Some(self.body.engine(index, values, &mut self.commands));
                Next::Continue
            }
            Ok(None) => Next::Over(Ok(self.iterations.outputs())),
        }
    }

    fn end_iteration(&mut self) -> Next {
        let Some(engine) = self.engine.take() else {
            return Next::Continue;
        };
        let gave = Body::gave(&engine, self.iterations.index());
        match self.iterations.take(gave, self.body.connected()) {
            Ok(()) => Next::Continue,
            Err(failure) => Next::Over(Err(failure)),
        }
    }

    /// Records the result of a nested zone.
    fn finish(&mut self, node: NodeIndex, ended: Result<Vec<Arc<Value>>, Failure>) {
        let Some(engine) = &mut self.engine else {
            return;
        };
        let event = finished(engine, node, ended.map(all_present));
        self.apply(event);
    }

    fn apply(&mut self, event: Event) {
        if let Event::Handled(node, _, failure) = &event {
            self.handled = Some((*node, Arc::clone(failure)));
        }
        if let Some(engine) = &mut self.engine {
            engine
                .apply(event, &mut self.commands)
                .expect("every event answers a command of the engine");
        }
    }
}
