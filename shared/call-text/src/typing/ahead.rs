//! Calls typed while their block is still being written.
//!
//! When a block closes, all its calls become known at once, and a reader of the stream would wait
//! for the typing of all of them. So each call is typed as soon as it looks complete. The result is
//! kept with the raw call that it was made of, and is used only if the closed block holds exactly
//! that call.

use std::collections::VecDeque;

use call_catalogue::Dialect;
use serde_json::Map;

use super::{Source, steps, type_call};
use crate::Call;
use crate::dialect::context::Context;
use crate::dialect::raw::{Content, RawCall, RawField};

/// The results so far.
#[derive(Debug, Default)]
pub(crate) struct TypedAhead {
    /// In the order of the block; a result is taken out when it is used.
    done: VecDeque<(RawCall, Call)>,
    /// The number of calls or fields examined so far.
    seen: usize,
    /// The field that opened the step that is being written.
    step: usize,
}

impl TypedAhead {
    /// Types the calls of an element block that are closed.
    pub(crate) fn calls(
        &mut self,
        closed: &[RawCall],
        dialect: Dialect,
        text: &str,
        context: &Context<'_>,
    ) {
        for call in closed.iter().skip(self.seen) {
            let json = |content: &Content| matches!(content, Content::Json(_));
            if !call.arguments.iter().any(|value| json(&value.content)) {
                let mut call = call.clone();
                call.dialect.get_or_insert(dialect);
                self.keep(call, text, context);
            }
        }
        self.seen = closed.len();
    }

    /// Types the steps of a field block before the step that is being written.
    pub(crate) fn fields(
        &mut self,
        fields: &[RawField],
        dialect: Dialect,
        text: &str,
        context: &Context<'_>,
    ) {
        for (at, field) in fields.iter().enumerate().skip(self.seen) {
            if at > self.step && field.reading.is_any_command() {
                let step = fields[self.step..at].to_vec();
                self.step = at;
                for step in steps::split(step, dialect, text, context).calls {
                    if step.hints.is_empty() && step.control.uris.is_empty() {
                        self.keep(step.call, text, context);
                    }
                }
            }
        }
        self.seen = fields.len();
    }

    fn keep(&mut self, call: RawCall, text: &str, context: &Context<'_>) {
        let (nothing, source) = (Map::new(), Source::new(text, call.span));
        let typed = type_call(call.clone(), &nothing, &nothing, &source, context);
        self.done.push_back((call, typed));
    }

    /// The result for a call of the closed block, if the same call was typed ahead.
    pub(super) fn take(&mut self, call: &RawCall) -> Option<Call> {
        let position = self.done.iter().position(|(made_of, _)| made_of == call)?;
        let (_, typed) = self.done.remove(position)?;
        Some(typed)
    }
}
