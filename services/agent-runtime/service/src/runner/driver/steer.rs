//! Carrying out the directives of people to a running turn.

use contracts::tavern::common::v1::{self as common, run_event::Kind};
use turn_log::wire;

use super::{Driver, stop::TurnStop};
use crate::runner::directives::Directive;

impl Driver {
    /// Carries out a directive. Returns whether the request in flight to the model is dropped for
    /// it.
    pub(super) async fn obey(&mut self, directive: Directive) -> Result<bool, TurnStop> {
        let steering = self.log.state().steering();
        match directive {
            Directive::Steer {
                request_id,
                message,
                interrupt,
                accepted,
                in_force,
            } => {
                if let Some((sequence, since)) = steering.accepted(&request_id) {
                    let _ = accepted.send(Some(sequence));
                    self.inbox.promise(sequence, in_force);
                    if let Some(since) = since {
                        self.inbox.keep(sequence, since);
                    }
                    return Ok(false);
                }
                if steering.is_full() {
                    let _ = accepted.send(None);
                    return Ok(false);
                }
                let accepting = common::SteeringAccepted {
                    message,
                    request_id,
                };
                let accepting = Kind::SteeringAccepted(accepting);
                let sequence = self.log.note_now(accepting).await?;
                let _ = accepted.send(Some(sequence));
                self.inbox.promise(sequence, in_force);
                Ok(interrupt)
            }
            Directive::Edit {
                request_id,
                limits,
                in_force,
            } => {
                let edited = match steering.edited(&request_id) {
                    Some(seen) => seen,
                    None => {
                        let budgets = self.turn().budgets().edited(&limits);
                        let edited = wire::budgets_edited(&budgets, request_id);
                        let edited = Kind::BudgetsEdited(edited);
                        (self.log.note_now(edited).await?, budgets)
                    }
                };
                let _ = in_force.send(edited);
                Ok(false)
            }
        }
    }

    /// Notes the waiting messages, so that the model reads them.
    pub(super) async fn steer(&mut self) -> Result<(), TurnStop> {
        while let Some(message) = self.log.state().steering().next() {
            let accepted_sequence = message.accepted_sequence;
            let steered = common::Steered {
                message: message.text.clone(),
                accepted_sequence,
            };
            let since = self.log.note_now(Kind::Steered(steered)).await?;
            self.inbox.keep(accepted_sequence, since);
        }
        Ok(())
    }
}
