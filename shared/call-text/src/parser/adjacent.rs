//! Blocks that follow each other with only white space between, and calls that they repeat (A2).
//!
//! A model that knows two dialects may write one call in both. It runs once: the call that is read
//! second does not run, and stops no other call. Equal calls in one dialect are two calls.

use std::sync::Arc;

use call_catalogue::Dialect;

use crate::Call;

/// The calls of adjacent blocks that may run.
#[derive(Debug, Default)]
pub(super) struct Adjacent {
    calls: Vec<Earlier>,
}

/// A call that may run.
#[derive(Debug)]
struct Earlier {
    call: Arc<Call>,
    /// The dialects in which it was found again. A second find in the same dialect is another call.
    again_in: Vec<Dialect>,
}

impl Adjacent {
    /// Begins again behind text.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }

    /// Keeps the calls of a block from running that an earlier block holds in another dialect;
    /// returns their places.
    pub(super) fn stop_repeated(&mut self, calls: &mut [Call]) -> Vec<usize> {
        let mut repeated = Vec::new();
        for (at, call) in calls.iter_mut().enumerate() {
            if !call.runs || !call.problems.is_empty() {
                continue;
            }
            let mut earlier = self.calls.iter_mut();
            if let Some(same) = earlier.find(|earlier| earlier.is_written_again_as(call)) {
                same.again_in.push(call.dialect);
                call.runs = false;
                repeated.push(at);
            }
        }
        repeated
    }

    /// Adds the calls of a block.
    pub(super) fn add(&mut self, calls: &[Arc<Call>]) {
        let ready = calls.iter().filter(|call| call.is_ready());
        self.calls.extend(ready.cloned().map(|call| Earlier {
            call,
            again_in: Vec::new(),
        }));
    }
}

impl Earlier {
    fn is_written_again_as(&self, other: &Call) -> bool {
        let call = &self.call;
        call.dialect != other.dialect
            && !self.again_in.contains(&other.dialect)
            && call.tool_id == other.tool_id
            && call.arguments.len() == other.arguments.len()
            && call.control.uris == other.control.uris
            && call.canonical() == other.canonical()
    }
}
