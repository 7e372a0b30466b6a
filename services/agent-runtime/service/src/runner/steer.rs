//! Carrying out what people ask of a turn while it runs.

use contracts::tavern::common::v1::{self as common, run_event::Kind};
use turn_log::wire;

use super::{directives::Directive, driver::Driver, stop::TurnStop};

impl Driver {
    /// Takes a directive. Returns whether the request to the model that is under way is dropped for it.
    pub(super) async fn obey(&mut self, directive: Directive) -> Result<bool, TurnStop> {
        match directive {
            Directive::Steer {
                request_id,
                message,
                interrupt,
                accepted,
                in_force,
            } => {
                let seen = self.steering.accepted.get(&request_id).copied();
                if let Some(seen) = seen.filter(|_| !request_id.is_empty()) {
                    let _ = accepted.send(Some(seen.0));
                    self.steering.answer_again(seen, in_force);
                    return Ok(false);
                }
                if self.steering.is_full() {
                    let _ = accepted.send(None);
                    return Ok(false);
                }
                let sequence = self
                    .note_now(Kind::SteeringAccepted(common::SteeringAccepted {
                        message: message.clone(),
                        request_id: request_id.clone(),
                    }))
                    .await?;
                let _ = accepted.send(Some(sequence));
                self.steering.accept(&request_id, &message, sequence);
                if let Some(message) = self.steering.waiting.back_mut() {
                    message.in_force = Some(in_force);
                }
                Ok(interrupt)
            }
            Directive::Edit {
                request_id,
                limits,
                in_force,
            } => {
                let seen = self.steering.edited.get(&request_id).copied();
                let edited = match seen.filter(|_| !request_id.is_empty()) {
                    Some(seen) => seen,
                    None => {
                        let budgets = self.turn.budgets().edited(&limits);
                        let edited = wire::budgets_edited(&budgets, request_id.clone());
                        let sequence = self.note_now(Kind::BudgetsEdited(edited)).await?;
                        self.steering.edited.insert(request_id, (sequence, budgets));
                        (sequence, budgets)
                    }
                };
                let _ = in_force.send(edited);
                Ok(false)
            }
        }
    }

    /// Lets the model read the messages that wait.
    pub(super) async fn steer(&mut self) -> Result<(), TurnStop> {
        while let Some(message) = self.steering.waiting.front() {
            let steered = common::Steered {
                message: message.text.clone(),
                accepted_sequence: message.accepted_sequence,
            };
            let sequence = self.note_now(Kind::Steered(steered)).await?;
            self.steering.take(0, sequence);
        }
        Ok(())
    }
}
