//! Carrying out the directives of people to a running turn.

use contracts::tavern::common::v1::{self as common, run_event::Kind};
use turn_log::{state::RequestIdReused, wire};

use super::{Driver, stop::TurnStop};
use crate::runner::directives::{Directive, Refusal};

impl Driver {
    /// Carries out a directive. Returns whether the request in flight to the model is dropped for
    /// it.
    pub(super) async fn obey(&mut self, directive: Directive) -> Result<bool, TurnStop> {
        let steering = self.log.state().steering();
        match directive {
            Directive::Steer {
                principal,
                request_id,
                message,
                interrupt,
                accepted,
                in_force,
            } => {
                match steering.accepted(&request_id, &principal) {
                    Ok(Some((sequence, since))) => {
                        let _ = accepted.send(Ok(sequence));
                        self.inbox.promise(sequence, in_force);
                        if let Some(since) = since {
                            self.inbox.keep(sequence, since);
                        }
                        return Ok(false);
                    }
                    Ok(None) if steering.is_full() => {
                        let _ = accepted.send(Err(Refusal::Full));
                        return Ok(false);
                    }
                    Ok(None) => {}
                    Err(RequestIdReused) => {
                        let _ = accepted.send(Err(Refusal::RequestIdReused));
                        return Ok(false);
                    }
                }
                let accepting = common::SteeringAccepted {
                    message,
                    request_id,
                    principal: principal.recorded().to_owned(),
                };
                let accepting = Kind::SteeringAccepted(accepting);
                let sequence = self.log.note_now(accepting).await?;
                let _ = accepted.send(Ok(sequence));
                self.inbox.promise(sequence, in_force);
                Ok(interrupt)
            }
            Directive::Edit {
                principal,
                request_id,
                limits,
                in_force,
            } => {
                let edited = match steering.edited(&request_id, &principal) {
                    Ok(Some(seen)) => Ok(seen),
                    Ok(None) => {
                        let budgets = self.turn().budgets().edited(&limits);
                        let edited = common::BudgetsEdited {
                            request_id,
                            principal: principal.recorded().to_owned(),
                            ..wire::budgets_edited(&budgets)
                        };
                        let edited = Kind::BudgetsEdited(edited);
                        Ok((self.log.note_now(edited).await?, budgets))
                    }
                    Err(RequestIdReused) => Err(Refusal::RequestIdReused),
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
