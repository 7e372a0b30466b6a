//! Nodes that wait. They have no place among the effects of the run, however many they are.

use call_outcome::Failure;
use contracts::tavern::common::v1::{self as common, WakeCause};
use core_types::Timestamp;
use run_events::Woken;
use serde_json::Value;

use crate::wire;
use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::node_type::Settled;
use workflow_domain::plan::NodeIndex;
use workflow_domain::size::weight;
use workflow_domain::wait::{Due, WaitKind, WaitRequest, Wake};

use super::{Moment, NodeEnd, RunLoop};

/// A wait that is to begin.
#[derive(Debug)]
pub struct NodeWait {
    /// The node.
    pub node: NodeIndex,
    /// The wait, without its time. Each attempt of the node is a wait of its own.
    pub wait: common::Wait,
    /// The time at which the wait is over at the latest.
    pub due: Option<Timestamp>,
}

impl RunLoop {
    /// Notes that a node is to wait.
    pub(super) fn enqueue_wait(
        &mut self,
        node: NodeIndex,
        request: WaitRequest,
        moment: &Moment,
    ) -> Option<NodeEnd> {
        match &request.kind {
            WaitKind::HumanInput { context, .. } if weight(context) > MAX_VALUE_BYTES => {
                let message = format!("the context has more than {MAX_VALUE_BYTES} bytes");
                let failure = Failure::limit("context_too_large", message);
                self.finish(node, Err(failure), moment)
            }
            _ => {
                self.waits.push_back((node, request));
                None
            }
        }
    }

    pub(super) fn begin_wait(&mut self, now: Timestamp) -> Option<NodeWait> {
        let (node, request) = self.waits.pop_front()?;
        self.under_way.waits += 1;
        let due = match request.due {
            Due::Never => None,
            Due::After(duration) => Some(now.plus(duration)),
            Due::At(seconds, nanos) => Some(point(seconds, nanos)),
        };
        let wait = self.wait(node, request.kind);
        Some(NodeWait { node, wait, due })
    }

    fn wait(&self, node: NodeIndex, kind: WaitKind) -> common::Wait {
        let wait = common::Wait {
            wait_id: self.attempt_id(node),
            node_id: self.state.path_of(node),
            ..common::Wait::default()
        };
        match kind {
            WaitKind::Retry => common::Wait {
                kind: common::WaitKind::Retry.into(),
                wait_id: self.retry_id(node),
                ..wait
            },
            WaitKind::Timer => common::Wait {
                kind: common::WaitKind::Timer.into(),
                ..wait
            },
            WaitKind::Signal { name, schema } => common::Wait {
                kind: common::WaitKind::Signal.into(),
                name,
                schema_json: text_unless_null(&schema),
                ..wait
            },
            WaitKind::HumanInput {
                title,
                form,
                choices,
                assignees,
                context,
            } => common::Wait {
                kind: common::WaitKind::HumanInput.into(),
                name: title,
                schema_json: text_unless_null(&form),
                choices: choices
                    .into_iter()
                    .map(|(value, label)| common::WaitChoice { value, label })
                    .collect(),
                assignees,
                context_json: text_unless_null(&context),
                ..wait
            },
        }
    }
}

/// Converts the waking of a node to the node's result.
pub(super) fn settled(woken: Woken) -> Result<Settled, Failure> {
    let payload = || {
        wire::read_value(&woken.payload_json).map_err(|problem| {
            let message = format!("what woke the node is not usable: {problem}");
            Failure::invalid("payload_malformed", message)
        })
    };
    let wake = match woken.cause {
        WakeCause::Signal => Wake::Signal(payload()?),
        WakeCause::Answer => Wake::Answer {
            answer: payload()?,
            by: woken.answered_by,
        },
        WakeCause::Due | WakeCause::Unspecified => Wake::Due,
    };
    let due = woken.due.map(|due| due.to_string()).unwrap_or_default();
    Ok(Settled::Woken { wake, due })
}

fn point(seconds: i64, nanos: i32) -> Timestamp {
    let point = prost_types::Timestamp { seconds, nanos };
    // A time beyond the range of the clock becomes its end.
    let known = grpc_kit::run_list::timestamp_from_proto(point);
    known.unwrap_or(Timestamp::from_unix_nanos(match seconds {
        ..0 => 0,
        _ => i64::MAX,
    }))
}

fn text_unless_null(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => value.to_string(),
    }
}
