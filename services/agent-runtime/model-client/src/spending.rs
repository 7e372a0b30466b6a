//! The uses of models by tenants: tokens and money of the present day.

use agent_domain::usage::{Booking, PriceList, Usage};
use core_types::Tenant;
use tenancy::{LimitReached, Quantity, Tenants};

use super::{AnswerEnd, ModelRequest, Piece};

/// Checks whether a tenant may send a request to a model.
///
/// # Errors
/// The limit of the present day that is reached.
pub(crate) fn check(tenants: &Tenants, tenant: Tenant) -> Result<(), LimitReached> {
    tenants.check_of_day(tenant, Quantity::ModelTokens)?;
    tenants.check_of_day(tenant, Quantity::ModelMicros)
}

/// The use of one attempt. It counts once: at the end of the answer, or when this is dropped before, with an estimate
/// (rule G508); an attempt that fails before the first piece of an answer does not count.
pub(crate) struct Spending<'a> {
    tenants: &'a Tenants,
    tenant: Tenant,
    price_list: Option<&'a PriceList>,
    request_bytes: usize,
    answer_bytes: usize,
    is_settled: bool,
}

impl<'a> Spending<'a> {
    /// Begins with a request that is sent now.
    pub(crate) fn begin(
        tenants: &'a Tenants,
        request: &ModelRequest,
        price_list: Option<&'a PriceList>,
    ) -> Self {
        Self {
            tenants,
            tenant: request.tenant,
            price_list,
            request_bytes: request.bytes(),
            answer_bytes: 0,
            is_settled: false,
        }
    }

    /// Takes a piece of the answer.
    pub(crate) fn take(&mut self, piece: &Piece) {
        match piece {
            Piece::Text(text) | Piece::Thinking(text) => self.answer_bytes += text.len(),
            Piece::End(AnswerEnd {
                usage, tool_calls, ..
            }) => {
                self.answer_bytes += tool_calls.as_ref().map_or(0, json_schema::text_bytes);
                self.settle(*usage);
            }
        }
    }

    /// Takes the failure of the attempt.
    pub(crate) fn fail(&mut self) {
        // Its endpoint has counted nothing, as far as is known.
        self.is_settled |= self.answer_bytes == 0;
    }

    fn settle(&mut self, counted: Usage) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let booking = Booking::new(
            counted,
            self.request_bytes,
            self.answer_bytes,
            self.price_list,
        );
        let Usage {
            input_tokens,
            output_tokens,
            ..
        } = booking.usage;
        let tokens = u64::from(input_tokens) + u64::from(output_tokens);
        self.tenants
            .spend(self.tenant, Quantity::ModelTokens, tokens);
        let micros = booking.cost.map_or(0, |cost| cost.micros);
        self.tenants
            .spend(self.tenant, Quantity::ModelMicros, micros);
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        self.settle(Usage::default());
    }
}
