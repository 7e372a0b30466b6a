//! Usage, attempts and events as messages of the contract, and back.

mod event;

use agent_domain::usage::Booking;
use contracts::tavern::common::v1 as common;
use model_client::FailedAttempt;

pub(crate) use event::{
    dropped_to_proto, event_from_proto, event_to_proto, priority_from_proto, priority_to_proto,
    sleep_from_proto, slept_to_proto, woke_to_proto,
};

/// Writes the usage of a booked answer.
pub(crate) fn usage_to_proto(booking: &Booking) -> common::ModelUsage {
    let usage = &booking.usage;
    common::ModelUsage {
        input_tokens: usage.input_tokens.into(),
        cache_read_tokens: usage.cache_read_tokens.into(),
        cache_write_tokens: usage.cache_write_tokens.into(),
        output_tokens: usage.output_tokens.into(),
        estimated: booking.estimated,
        cost_micros: booking.cost.as_ref().map(|cost| cost.micros),
        currency: booking
            .cost
            .as_ref()
            .map(|cost| cost.currency.clone())
            .unwrap_or_default(),
    }
}

/// Writes a request that failed.
pub(crate) fn attempt_to_proto(attempt: &FailedAttempt) -> common::FailedModelAttempt {
    common::FailedModelAttempt {
        model: attempt.model.clone(),
        code: attempt.code.to_owned(),
        message: attempt.message.clone(),
        wait: prost_types::Duration::try_from(attempt.wait).ok(),
    }
}
