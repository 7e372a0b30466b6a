//! Backends of plugins that stand in for services of the platform (rules R207 and R208).

use std::time::Duration;

use grpc_kit::CallContext;
use tonic::{Code, Status};
use tool_domain::manifest::Fallback;

use crate::{
    dispatch::backend::{StandInRequest, methods_of_contract},
    store::StoreError,
    tools::{Override, PluginChoices, Tools},
};

/// The longest wait for a backend.
const LIMIT: Duration = Duration::from_secs(10);

/// The longest message of a refusal that is passed on, in characters.
const MAX_MESSAGE_CHARS: usize = 256;

/// The codes by which a backend refuses; any other is a failure.
const REFUSALS: [Code; 6] = [
    Code::NotFound,
    Code::InvalidArgument,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::Aborted,
    Code::AlreadyExists,
];

/// Asks the backends that stand in. Clone, cheap.
#[derive(Clone, Debug)]
pub(crate) struct StandIns {
    tools: Tools,
}

/// The answer of a backend.
#[derive(Clone, Debug)]
pub(crate) enum Answered {
    /// The encoded response.
    Message(Vec<u8>),
    /// A refusal by the contract of the service.
    Refusal {
        /// The status code.
        code: Code,
        /// The message of the backend, shortened.
        message: String,
    },
}

/// The reason for which a backend was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The request is none of the service; the field and its problem.
    #[error("{0}: {1}")]
    Invalid(&'static str, String),
    /// The backend failed.
    #[error(
        "{service} is overridden by the plugin {plugin}, whose backend '{backend}' {problem}; try again later, or have \
         the operator look at it"
    )]
    Failed {
        /// The service.
        service: String,
        /// The plugin.
        plugin: String,
        /// The backend.
        backend: String,
        /// The problem.
        problem: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StandIns {
    /// Takes the tools, whose plugins bring overrides.
    pub(crate) fn new(tools: Tools) -> Self {
        Self { tools }
    }

    /// Asks the backend that stands in for a service; `None` where none does for the tenant of the caller.
    ///
    /// # Errors
    /// [`Unanswered`] is the reason.
    pub(crate) async fn ask(
        &self,
        context: &CallContext,
        (service, method): (&str, &str),
        message: &[u8],
    ) -> Result<Option<Answered>, Unanswered> {
        let view = self.tools.view(context.tenant()).await?;
        let (revision, choices) = (&view.revision, &view.choices);
        let found = revision.overrides.get(service);
        let Some(found) = found.filter(|found| !choices.is_off(found.plugin.name())) else {
            return Ok(None);
        };
        let mut methods = methods_of_contract(&found.stand_in.contract());
        let Some(method) = methods.find(|known| known.name() == method) else {
            let problem = format!("'{service}' has no method '{method}'");
            return Err(Unanswered::Invalid("method", problem));
        };
        let terms = (context.tenant(), options_of(found, choices)?);
        let request = StandInRequest::read(method, message, terms)
            .map_err(|error| Unanswered::Invalid("message", error.to_string()))?;
        let limit = context.remaining().map_or(LIMIT, |left| left.min(LIMIT));
        let limit = match found.stand_in.fallback {
            Fallback::Fail => limit,
            // The platform's own service needs time as well.
            Fallback::Builtin => limit / 2,
        };
        self.send(found, context, &request, limit).await.map(Some)
    }

    async fn send(
        &self,
        found: &Override,
        context: &CallContext,
        request: &StandInRequest,
        limit: Duration,
    ) -> Result<Answered, Unanswered> {
        let name = &found.stand_in.backend;
        let backend = self.tools.backend_of_installation(name).await?;
        let backend = backend.ok_or_else(|| failed(found, "is not registered"))?;
        if !backend.principal.is_empty() && backend.principal == context.principal().as_str() {
            return Err(failed(found, "asks itself by a call of its own"));
        }
        match backend.stand_in(request, limit).await {
            Ok(message) => Ok(Answered::Message(message)),
            Err(status) if REFUSALS.contains(&status.code()) => Ok(Answered::Refusal {
                code: status.code(),
                message: status.message().chars().take(MAX_MESSAGE_CHARS).collect(),
            }),
            Err(status) => {
                let (method, said) = (request.name(), status.message());
                tracing::warn!(backend = name, method, code = ?status.code(), said, "an override failed");
                Err(failed(found, &problem_of(&status)))
            }
        }
    }
}

/// Returns the options that a backend is sent.
fn options_of(found: &Override, choices: &PluginChoices) -> Result<Option<String>, Unanswered> {
    let values = choices.values(found.plugin.name());
    let missing = found.plugin.missing(values);
    if !missing.is_empty() {
        let problem = format!("waits for its options {}", missing.join(", "));
        return Err(failed(found, &problem));
    }
    let terms = found.plugin.terms(values);
    Ok(terms.options.map(|options| options.to_string()))
}

/// Makes the failure of an override.
pub(crate) fn failed(found: &Override, problem: &str) -> Unanswered {
    Unanswered::Failed {
        service: found.stand_in.service.clone(),
        plugin: found.plugin.name().to_owned(),
        backend: found.stand_in.backend.clone(),
        problem: problem.to_owned(),
    }
}

fn problem_of(status: &Status) -> String {
    match status.code() {
        Code::DeadlineExceeded | Code::Cancelled => "did not answer in time".to_owned(),
        Code::Unavailable => "cannot be reached".to_owned(),
        Code::Unimplemented => "does not have the method any more".to_owned(),
        code => format!("failed with {code:?}"),
    }
}
