//! The waits of the nodes of a simulated process, as the log keeps them.

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use run_events::Woken;
use workflow_domain::plan::NodeIndex;
use workflow_runner::run_loop::{Happening, NodeWait};

use super::outside::{Continue, Outside, time};
use super::process::{OfRun, Scope, millis_until};

impl Scope {
    /// Begins a wait, or continues the recorded one, which may have been woken before.
    pub(super) fn begin_wait(&mut self, run: &OfRun, outside: &mut Outside, wait: NodeWait) {
        let NodeWait { node, wait, due } = wait;
        let wait_id = wait.wait_id.clone();
        let recorded = outside.kinds().find_map(|kind| match kind {
            Kind::NodeWaiting(waiting) => {
                waiting.wait.clone().filter(|wait| wait.wait_id == wait_id)
            }
            _ => None,
        });
        let wait = recorded.unwrap_or_else(|| {
            let due = due.map(|due| time(millis_until(due)));
            let wait = common::Wait { due, ..wait };
            outside.submit(Kind::NodeWaiting(common::NodeWaiting {
                wait: Some(wait.clone()),
            }));
            wait
        });
        let woken = outside.kinds().find_map(|kind| match kind {
            Kind::NodeWoken(woken) if woken.wait_id == wait_id => Some(woken.cause()),
            _ => None,
        });
        if let Some(cause) = woken {
            return self.woken(outside, node, &wait, cause);
        }
        let of_name =
            |kind: &Kind| matches!(kind, Kind::SignalReceived(signal) if signal.name == wait.name);
        let is_signalled = wait.kind() == common::WaitKind::Signal && outside.kinds().any(of_name);
        let due = wait.due.as_ref().map(millis);
        self.waiting.insert(node, wait);
        match due {
            _ if is_signalled => self.wake(outside, node, common::WakeCause::Signal),
            Some(due) => self.continue_at(run, outside, due, node, Continue::Due),
            None => {}
        }
    }

    /// Wakes the node that waits for a signal.
    pub(super) fn signal(&mut self, outside: &mut Outside, name: &str) {
        let of_name =
            |(node, wait): (&NodeIndex, &common::Wait)| (wait.name == name).then_some(*node);
        if let Some(node) = self.waiting.iter().find_map(of_name) {
            return self.wake(outside, node, common::WakeCause::Signal);
        }
        for zone in self.zones.values_mut() {
            for scope in zone.running.values_mut() {
                scope.signal(outside, name);
            }
        }
    }

    pub(super) fn wake(
        &mut self,
        outside: &mut Outside,
        node: NodeIndex,
        cause: common::WakeCause,
    ) {
        let wait = self.waiting.remove(&node).unwrap();
        if cause == common::WakeCause::Due {
            let due = wait.due.as_ref().map(millis).unwrap();
            assert!(outside.now >= due, "{} is woken early", wait.wait_id);
        }
        outside.submit(Kind::NodeWoken(common::NodeWoken {
            wait_id: wait.wait_id.clone(),
            node_id: wait.node_id.clone(),
            cause: cause.into(),
            ..common::NodeWoken::default()
        }));
        self.woken(outside, node, &wait, cause);
    }

    fn woken(
        &mut self,
        outside: &mut Outside,
        node: NodeIndex,
        wait: &common::Wait,
        cause: common::WakeCause,
    ) {
        let happening = match wait.kind() {
            common::WaitKind::Retry => Happening::RetryDue,
            _ => Happening::Woken(Ok(Woken {
                cause,
                payload_json: "null".to_owned(),
                answered_by: String::new(),
                due: wait.due,
            })),
        };
        self.take(outside, node, happening);
    }
}

fn millis(time: &prost_types::Timestamp) -> u64 {
    let nanos = u64::try_from(time.nanos).unwrap();
    u64::try_from(time.seconds).unwrap() * 1000 + nanos / 1_000_000
}
