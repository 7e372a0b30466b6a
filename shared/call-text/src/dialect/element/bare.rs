//! Elements in the forms of trained models: without a wrapper (F9), and with namespaces (F7).

use call_catalogue::{
    Class, Problem, ProblemCode, Rule, Span, TRAINED_FORMAT, ToolMatch, TrainedFormat,
};

use super::ElementScanner;
use crate::BlockEnd;
use crate::dialect::context::Context;
use crate::dialect::raw::{Progress, RawCall};
use crate::scan::Feed;
use crate::scan::tag::Tag;

impl ElementScanner {
    /// The element of a tool without wrapper: a call in a form that is not read if it holds parameters of the tool
    /// (F9), else text (A12).
    pub(super) fn bare_call(&mut self, feed: &Feed<'_>, context: &Context<'_>) -> Progress {
        let declared = |call: &RawCall| {
            let entry = match context.catalogue.find(&call.name) {
                ToolMatch::Visible(index, _) => context.catalogue.entry(index),
                _ => return false,
            };
            let names = call
                .arguments
                .iter()
                .map(|argument| argument.name.of(feed.text));
            !call.arguments.is_empty() && names.into_iter().all(|name| entry.declares(name))
        };
        if !context.policy.seeks_formats() || !self.raw.calls.iter().all(declared) {
            return Progress::NotABlock {
                resume: self.opened,
            };
        }
        let span = Span::new(self.start, self.pos);
        let message = "the element of a tool without <ACTION> round it is not read here";
        let problem = Problem::new(ProblemCode::UnsupportedFormat, Rule::F9, span, message);
        self.raw.problems.push(problem);
        Progress::Closed {
            at: self.pos,
            end: BlockEnd::Closed,
        }
    }

    /// Notes a namespace before the name of the tag (F7).
    pub(super) fn note_namespace(&mut self, tag: &Tag, feed: &Feed<'_>, context: &Context<'_>) {
        let written = tag.whole.of(feed.text);
        let format = match written.contains('｜') {
            true => TrainedFormat::DeepSeek,
            false => TrainedFormat::Namespaced,
        };
        let (rule, name) = (format.rule(), format.as_str());
        match context.policy.reads(format) {
            true => self.note(rule, Class::Verbatim, TRAINED_FORMAT, tag.whole, feed, name),
            false => {
                let message = format!("a call in the form of {} is not read here", format.label());
                let problem = Problem::new(ProblemCode::UnsupportedFormat, rule, tag.span, message);
                self.raw.problems.push(problem);
            }
        }
    }
}
