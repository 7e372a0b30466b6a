//! Carries out the iterations of a zone whose nodes have effects.

use std::time::{Duration, Instant};

use call_outcome::Failure;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use run_events::{Recorder, RunControl};
use run_log::AppendError;

use workflow_domain::engine::Engine;

use super::activity::{Active, Activity};
use super::effect_end::{Unsettled, ZoneEnd};
use super::run_loop::RunLoop;
use super::zone_loop::{IterationEnd, IterationStart, ZoneLoop};

/// Carries the loop of the nodes of an iteration out, to its end.
pub(super) type IterationDriver =
    Box<dyn Fn(RunLoop, RunControl) -> BoxFuture<'static, Driven> + Send + Sync>;

/// The end of the nodes of an iteration.
pub(super) type Driven = Result<Result<Engine, Unsettled>, AppendError>;

type Ended = (u64, Duration, Result<IterationEnd, AppendError>);

/// A zone under way.
pub(super) struct Zone {
    pub(super) zone: Result<ZoneLoop, Failure>,
    pub(super) drive: IterationDriver,
    pub(super) recorder: Recorder,
    pub(super) control: RunControl,
    pub(super) activity: Activity,
    /// Held while the zone itself has work apart from its iterations, also before it begins.
    pub(super) busy: Option<Active>,
}

impl Zone {
    /// Runs the iterations. A cancel of the run ends it, and so does its time limit.
    ///
    /// # Errors
    /// The run's log rejects events, so the run cannot continue now.
    pub(super) async fn execute(
        mut self,
        timeout: Option<Duration>,
    ) -> Result<ZoneEnd, AppendError> {
        self.control = self.control.child();
        let control = self.control.clone();
        let work = self.iterate();
        tokio::pin!(work);
        let Some(timeout) = timeout else {
            return work.await;
        };
        if let Ok(end) = tokio::time::timeout(timeout, &mut work).await {
            return end;
        }
        control.end();
        match work.await? {
            ZoneEnd::Stopped(unsettled) if !unsettled.is_empty() => Ok(ZoneEnd::Stopped(unsettled)),
            _ => Ok(ZoneEnd::Ended(Err(super::overdue(timeout)))),
        }
    }

    async fn iterate(mut self) -> Result<ZoneEnd, AppendError> {
        let mut zone = match self.zone {
            Ok(zone) => zone,
            Err(failure) => return Ok(ZoneEnd::Ended(Err(failure))),
        };
        let mut running: FuturesUnordered<BoxFuture<'static, Ended>> = FuturesUnordered::new();
        loop {
            while let Some(start) = zone.next(self.control.is_cancelled()) {
                running.push(begin(&self.drive, start, self.control.clone()));
            }
            for shown in zone.show(self.recorder.now()) {
                self.recorder.submit(shown).await?;
            }
            self.busy = None;
            let Some((index, took, end)) = running.next().await else {
                break;
            };
            self.busy = Some(self.activity.begin());
            if let Some(recorded) = zone.ended(index, took, end?) {
                // It rides on the next commit.
                self.recorder.submit(recorded).await?;
            }
        }
        Ok(zone.end(self.control.is_cancelled()))
    }
}

/// Begins an iteration, or continues one that an earlier process began.
fn begin(
    drive: &IterationDriver,
    start: IterationStart,
    control: RunControl,
) -> BoxFuture<'static, Ended> {
    let IterationStart { index, nodes } = start;
    let begin = Instant::now();
    match nodes {
        Ok(nodes) => drive(nodes, control)
            .map(move |driven| (index, begin.elapsed(), driven.map(|end| end.map(Ok))))
            .boxed(),
        Err(failure) => std::future::ready((index, Duration::ZERO, Ok(Ok(Err(failure))))).boxed(),
    }
}
