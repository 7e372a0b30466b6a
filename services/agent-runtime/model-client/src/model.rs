//! One model of the settings: its limits, retries and fallbacks.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use agent_domain::usage::{Booking, PriceList};
use futures::StreamExt;
use tenancy::Tenants;

use super::{
    AnswerEnd, FailedAttempt, ModelError, ModelRequest, Piece, Pieces, Provider, gate::Gate,
    native_names::NativeNames, paired::pair, spending, spending::Spending, thought::LeadingThought,
};
use crate::model_settings::GrammarUse;

/// The longest first wait before a retry, if the endpoint states none; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait that is not the endpoint's.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// A model with its fallbacks.
#[derive(Clone, Debug)]
pub struct Model {
    /// The model itself, then its fallbacks.
    candidates: Arc<[Arc<Candidate>]>,
    /// Weights, limits and uses of the tenants that send requests.
    tenants: Tenants,
}

/// A model with its settings.
#[derive(Debug)]
pub struct Candidate {
    /// The name in the settings.
    pub name: String,
    /// The client.
    pub provider: Box<dyn Provider>,
    /// The retries and time limits.
    pub patience: Patience,
    /// The limits of requests at once and per minute.
    pub gate: Gate,
    /// Its prices; none if its settings have none.
    pub price_list: Option<PriceList>,
    /// The most tokens of a request and its answer together; zero if unknown.
    pub context_tokens: u64,
    /// Whether its answers keep to a grammar.
    pub grammar: GrammarUse,
    /// Whether its answers begin in a thought.
    pub begins_in_thought: bool,
}

/// The retries and time limits of a model.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The most retries of a request.
    pub retries: u32,
    /// The longest wait that an endpoint may request.
    pub retry_after_limit: Duration,
    /// The time limit of the whole answer, waits included.
    pub total_timeout: Duration,
}

impl Patience {
    /// Returns the wait before the next retry after `attempt` retries; none if there is no retry
    /// (rule G504).
    fn wait(&self, error: &ModelError, attempt: u32, left: Duration) -> Option<Duration> {
        if !error.is_resent() || attempt >= self.retries {
            return None;
        }
        let wait = match error.retry_after() {
            Some(wait) if wait > self.retry_after_limit => return None,
            Some(wait) => wait,
            None => {
                let most = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(attempt));
                most.min(LONGEST_WAIT).mul_f64(fastrand::f64())
            }
        };
        (wait < left).then_some(wait)
    }
}

impl Model {
    /// Combines a model with its fallbacks, in order.
    pub fn new(
        model: Arc<Candidate>,
        fallbacks: impl IntoIterator<Item = Arc<Candidate>>,
        tenants: Tenants,
    ) -> Self {
        Self {
            candidates: std::iter::once(model).chain(fallbacks).collect(),
            tenants,
        }
    }

    /// Returns the model with other models as its fallbacks, without theirs.
    pub(super) fn with_fallbacks<'a>(&self, others: impl IntoIterator<Item = &'a Model>) -> Self {
        let own = |model: &Model| Arc::clone(&model.candidates[0]);
        Self::new(own(self), others.into_iter().map(own), self.tenants.clone())
    }

    /// Returns the client of the model itself.
    pub fn provider(&self) -> &dyn Provider {
        self.candidates[0].provider.as_ref()
    }

    /// Returns whether answers of the model itself keep to a grammar.
    pub fn grammar(&self) -> GrammarUse {
        self.candidates[0].grammar
    }

    /// Whether the model and all of its fallbacks have prices.
    pub fn is_priced(&self) -> bool {
        self.candidates
            .iter()
            .all(|candidate| candidate.price_list.is_some())
    }

    /// Returns the most tokens of a request and its answer together, whichever of the models
    /// answers; none if unknown.
    pub fn context_tokens(&self) -> Option<u64> {
        let known = self.candidates.iter();
        let known = known.map(|candidate| candidate.context_tokens);
        known.filter(|tokens| *tokens > 0).min()
    }

    /// Returns the number of tokens of an answer that an amount in millionths buys at least after a
    /// request, whichever of the models answers.
    pub fn affordable(&self, micros: u64, request_tokens: u64) -> u64 {
        let lists = self.candidates.iter();
        let lists = lists.filter_map(|candidate| candidate.price_list.as_ref());
        let each = lists.map(|list| list.prices.affordable(micros, request_tokens));
        each.min().unwrap_or(u64::MAX)
    }

    /// Ends an answer of the model itself that its reader stopped early.
    pub fn stopped(
        &self,
        finish_reason: &str,
        request_bytes: usize,
        answer_bytes: usize,
    ) -> AnswerEnd {
        let end = AnswerEnd {
            finish_reason: finish_reason.to_owned(),
            ..AnswerEnd::default()
        };
        self.candidates[0].book(end, request_bytes, answer_bytes)
    }

    /// Requests an answer. Nothing happens before the stream is polled.
    ///
    /// A request that did not arrive or was refused for a while is retried; if all retries fail,
    /// the fallbacks follow in order. Nothing is repeated once a piece of an answer is released, or
    /// a limit of the tenant is reached.
    pub fn generate(&self, mut request: ModelRequest) -> Pieces {
        let (candidates, tenants) = (Arc::clone(&self.candidates), self.tenants.clone());
        request.messages = pair(request.messages);
        let names = NativeNames::publish(&mut request);
        let request = Arc::new(request);
        Box::pin(async_stream::try_stream! {
            let mut failed: Vec<FailedAttempt> = Vec::new();
            for (place, candidate) in candidates.iter().enumerate() {
                let deadline = request.deadline.min(Instant::now() + candidate.patience.total_timeout);
                let mut attempt = 0;
                loop {
                    let mut pieces = candidate.ask(Arc::clone(&request), deadline, &tenants);
                    let mut thought = LeadingThought::new(
                        request.begins_in_thought.unwrap_or(candidate.begins_in_thought),
                    );
                    let mut released = 0;
                    let error = loop {
                        match pieces.next().await {
                            Some(Ok(Piece::End(mut end))) => {
                                match thought.finish(&end, released) {
                                    Ok(rest) => if let Some(rest) = rest { yield rest },
                                    Err(error) => break error,
                                }
                                names.restore(&mut end);
                                let end = AnswerEnd { failed_attempts: failed, ..end };
                                yield Piece::End(candidate.book(end, request.bytes(), released));
                                return;
                            }
                            Some(Ok(piece)) => for piece in thought.take(piece) {
                                if let Piece::Text(text) | Piece::Thinking(text) = &piece {
                                    released += text.len();
                                }
                                yield piece;
                            },
                            Some(Err(error)) => break error,
                            None => break ModelError::Cut {
                                released: 0,
                                detail: "the provider ended without an end".to_owned(),
                            },
                        }
                    };
                    drop(pieces);
                    let error = error.after(released);
                    if released > 0 || matches!(error, ModelError::TenantLimit(_)) {
                        Err(error.clone())?;
                    }
                    let left = deadline.saturating_duration_since(Instant::now());
                    let wait = candidate.patience.wait(&error, attempt, left);
                    let out_of_time = request.deadline <= Instant::now();
                    if wait.is_none() && (out_of_time || place + 1 == candidates.len()) {
                        Err(error.clone())?;
                    }
                    tracing::info!(
                        model = candidate.name,
                        code = error.code(),
                        wait_ms = wait.map(|wait| wait.as_millis()),
                        "a request to a model failed; another follows"
                    );
                    failed.push(FailedAttempt {
                        model: candidate.name.clone(),
                        code: error.code(),
                        message: error.to_string(),
                        wait: wait.unwrap_or_default(),
                    });
                    let Some(wait) = wait else { break };
                    tokio::time::sleep(wait).await;
                    attempt += 1;
                }
            }
        })
    }
}

impl Candidate {
    /// Adds the model and the booking to the end of an answer.
    fn book(&self, end: AnswerEnd, request_bytes: usize, text_bytes: usize) -> AnswerEnd {
        let calls = end.tool_calls.as_ref();
        let answer_bytes = text_bytes + calls.map_or(0, json_schema::text_bytes);
        let price_list = self.price_list.as_ref();
        AnswerEnd {
            model: self.name.clone(),
            booking: Booking::new(end.usage, request_bytes, answer_bytes, price_list),
            ..end
        }
    }

    /// Makes one attempt, within the limits of the model and of the tenant.
    fn ask<'a>(
        &'a self,
        request: Arc<ModelRequest>,
        deadline: Instant,
        tenants: &'a Tenants,
    ) -> Attempt<'a> {
        Box::pin(async_stream::try_stream! {
            let tenant = request.tenant;
            spending::check(tenants, tenant)?;
            let turn = (tenant, tenants.weight(tenant));
            let _slot = self.gate.enter(turn, deadline.into()).await?;
            // The requests before this one have used some meanwhile.
            spending::check(tenants, tenant)?;
            let mut spending = Spending::begin(tenants, &request, self.price_list.as_ref());
            let pieces = self.provider.generate(request, deadline);
            let mut pieces = AssertUnwindSafe(pieces).catch_unwind();
            while let Some(piece) = pieces.next().await {
                // A panic of the reader is a failure of the endpoint.
                let piece = piece.map_err(|_| ModelError::Malformed("it cannot be read".to_owned()));
                match &piece {
                    Ok(Ok(piece)) => spending.take(piece),
                    _ => spending.fail(),
                }
                yield piece??;
            }
        })
    }
}

/// The pieces of one attempt.
type Attempt<'a> = futures::stream::BoxStream<'a, Result<Piece, ModelError>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    const PATIENCE: Patience = Patience {
        retries: 4,
        retry_after_limit: Duration::from_secs(30),
        total_timeout: Duration::from_secs(300),
    };

    /// A model that makes its reader panic.
    #[derive(Debug)]
    struct Broken;

    impl Provider for Broken {
        fn kind(&self) -> &'static str {
            "broken"
        }

        fn endpoint_model(&self) -> &str {
            ""
        }

        fn generate(&self, _: Arc<ModelRequest>, _: Instant) -> Pieces {
            futures::stream::poll_fn(|_| panic!("a byte of the answer")).boxed()
        }
    }

    #[tokio::test]
    async fn an_answer_that_its_reader_does_not_get_over_is_the_endpoints_failure() {
        let model = Model::new(
            Arc::new(Candidate {
                name: "broken".to_owned(),
                provider: Box::new(Broken),
                patience: PATIENCE,
                gate: Gate::new(1, 0),
                price_list: None,
                context_tokens: 0,
                grammar: GrammarUse::None,
                begins_in_thought: false,
            }),
            [],
            Tenants::default(),
        );
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut pieces = model.generate(ModelRequest::new(
            core_types::Tenant::DEFAULT,
            Vec::new(),
            deadline,
        ));
        let error = pieces.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), "model_malformed");
    }

    fn refused(status: u16) -> Refusal {
        Refusal {
            status,
            ..Refusal::default()
        }
    }

    fn waits(refusal: Refusal) -> bool {
        let left = Duration::from_secs(60);
        PATIENCE
            .wait(&ModelError::Refused(refusal), 0, left)
            .is_some()
    }

    #[test]
    fn only_refusals_that_pass_are_sent_again() {
        for status in [408, 409, 429, 500, 502, 503, 504, 520, 522, 524, 529] {
            assert!(waits(refused(status)), "{status}");
        }
        for status in [302, 400, 401, 403, 404, 413, 422, 501] {
            assert!(!waits(refused(status)), "{status}");
        }
    }

    #[test]
    fn the_endpoint_decides_whether_to_ask_again() {
        let says = |status, should_retry| Refusal {
            should_retry: Some(should_retry),
            ..refused(status)
        };
        assert!(waits(says(400, true)));
        assert!(!waits(says(503, false)));
    }

    #[test]
    fn an_exhausted_quota_is_never_asked_again() {
        assert!(!waits(Refusal {
            quota_exhausted: true,
            should_retry: Some(true),
            ..refused(429)
        }));
    }

    #[test]
    fn waits_grow_up_to_the_longest_and_end_with_the_retries_and_the_time_left() {
        let error = ModelError::Refused(refused(503));
        let patience = Patience {
            retries: 40,
            ..PATIENCE
        };
        let far = Duration::from_secs(3_600);
        for attempt in 0..40 {
            let most = FIRST_WAIT
                .saturating_mul(2_u32.saturating_pow(attempt))
                .min(LONGEST_WAIT);
            assert!(patience.wait(&error, attempt, far).unwrap() <= most);
        }
        assert_eq!(patience.wait(&error, 40, far), None);
        assert_eq!(patience.wait(&error, 0, Duration::ZERO), None);
    }
}
