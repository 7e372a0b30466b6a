//! Any endpoint with an OpenAI-compatible `chat/completions`, streaming.
//!
//! The request is sent once, and again only if the endpoint answered 429 or 503 before any text
//! of the answer had come. A stream that breaks off is an error that says so.

pub mod limit;
pub mod wire;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use eventsource_stream::{EventStreamError, Eventsource};
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use settings::Secret;
use tokio::time::{Instant, timeout_at};

use self::{limit::ReadError, wire::Assembly};
use super::{ModelError, ModelRequest, Piece, Pieces, Provider};
use crate::settings::OpenAiSettings;

/// The most that is read of the body of an error, in bytes.
const MAX_ERROR_BODY: usize = 64 << 10;
/// How long the first wait is when an endpoint does not say; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// A model behind an OpenAI-compatible endpoint.
#[derive(Clone, Debug)]
pub struct OpenAi {
    inner: Arc<Inner>,
}

struct Inner {
    settings: OpenAiSettings,
    url: reqwest::Url,
    http: reqwest::Client,
}

impl fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The HTTP client holds the key in its default headers.
        formatter
            .debug_struct("OpenAi")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenAiError {
    /// The address is none.
    #[error("`base_url` is `{0}`; give an address such as https://api.example.com/v1")]
    BaseUrl(String),
    /// The key has characters that no header can carry.
    #[error(
        "the api key has characters that cannot be sent; set it to plain text without line breaks"
    )]
    Key,
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

impl OpenAi {
    /// Makes a client. Nothing is sent.
    ///
    /// # Errors
    /// [`OpenAiError`] when address or key cannot be used.
    pub fn new(settings: OpenAiSettings, key: Option<&Secret>) -> Result<Self, OpenAiError> {
        let no_address = || OpenAiError::BaseUrl(settings.base_url.clone());
        let base = reqwest::Url::parse(&settings.base_url).map_err(|_| no_address())?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(no_address());
        }
        let url = format!(
            "{}/chat/completions",
            settings.base_url.trim_end_matches('/')
        );
        let url = reqwest::Url::parse(&url).map_err(|_| no_address())?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                .map_err(|_| OpenAiError::Key)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Losing the race against another installer is as good as winning it.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut builder = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(settings.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tavern/", env!("CARGO_PKG_VERSION")));
        if !settings.use_system_proxy {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(OpenAiError::Client)?;
        Ok(Self {
            inner: Arc::new(Inner {
                settings,
                url,
                http,
            }),
        })
    }
}

impl Provider for OpenAi {
    fn kind(&self) -> &'static str {
        "openai"
    }

    fn endpoint_model(&self) -> &str {
        &self.inner.settings.model
    }

    fn generate(&self, request: ModelRequest) -> Pieces {
        let inner = Arc::clone(&self.inner);
        Box::pin(async_stream::try_stream! {
            let limit = inner.settings.total_timeout;
            let deadline = Instant::from_std(request.deadline).min(Instant::now() + limit);
            let response = inner.open(&request, deadline).await?;
            if !is_event_stream(response.headers()) {
                let body = inner.read_whole(response, deadline).await?;
                let (pieces, end) = wire::completion(&body)?;
                for piece in pieces {
                    yield piece;
                }
                yield Piece::End(end);
                return;
            }
            let mut events = limit::lines(response.bytes_stream(), inner.settings.idle_timeout).eventsource();
            let mut assembly = Assembly::default();
            let mut detail = "the connection was closed".to_owned();
            while !assembly.is_done() {
                match timeout_at(deadline, events.next()).await {
                    Ok(Some(Ok(event))) => {
                        for piece in assembly.push(&event.data)? {
                            yield piece;
                        }
                    }
                    Ok(Some(Err(EventStreamError::Transport(ReadError::Connection(error))))) => {
                        detail = chain(&error.without_url());
                        break;
                    }
                    Ok(Some(Err(error))) => Err(unreadable(error))?,
                    Ok(None) => break,
                    Err(_) => Err(inner.out_of_time())?,
                }
            }
            yield Piece::End(assembly.finish(&detail)?);
        })
    }
}

impl Inner {
    /// Sends the request until the endpoint begins an answer.
    async fn open(
        &self,
        request: &ModelRequest,
        deadline: Instant,
    ) -> Result<reqwest::Response, ModelError> {
        let body = wire::request_body(&self.settings.model, request).to_string();
        let mut attempt = 0;
        loop {
            let error = match self.send(body.clone(), deadline).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let may_retry =
                matches!(error.status(), Some(429 | 503)) && attempt < self.settings.retries;
            let wait = error.retry_after().unwrap_or_else(|| {
                grpc_kit::retry::jittered(FIRST_WAIT * 2_u32.saturating_pow(attempt))
            });
            if !may_retry
                || wait > self.settings.retry_after_limit
                || Instant::now() + wait >= deadline
            {
                return Err(error);
            }
            tracing::debug!(
                attempt,
                wait_ms = wait.as_millis(),
                "the model endpoint asks to wait"
            );
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    async fn send(&self, body: String, deadline: Instant) -> Result<reqwest::Response, ModelError> {
        let limit = self.settings.first_byte_timeout;
        let request = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let sent = timeout_at((Instant::now() + limit).min(deadline), request.send()).await;
        let response = sent
            .map_err(|_| self.timed_out(deadline, "to begin its answer", limit))?
            .map_err(|error| ModelError::Unreachable {
                endpoint: self.url.origin().ascii_serialization(),
                detail: chain(&error.without_url()),
            })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let header = |name| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let retry_after = wire::retry_after(
            header("retry-after-ms"),
            header("retry-after"),
            SystemTime::now(),
        );
        // The status is what matters: a body that cannot be read takes nothing from it.
        let said = self
            .read_some(response, MAX_ERROR_BODY, deadline)
            .await
            .unwrap_or_default();
        Err(ModelError::Refused {
            status,
            message: wire::vendor_message(&said),
            retry_after,
        })
    }

    async fn read_whole(
        &self,
        response: reqwest::Response,
        deadline: Instant,
    ) -> Result<String, ModelError> {
        let limit = limit::MAX_LINE_BYTES;
        let body = self.read_some(response, limit + 1, deadline).await?;
        match body.len() > limit {
            true => Err(ModelError::TooLarge {
                what: "a body",
                limit,
            }),
            false => Ok(body),
        }
    }

    /// Reads a body up to `most` bytes; what is beyond is left.
    async fn read_some(
        &self,
        response: reqwest::Response,
        most: usize,
        deadline: Instant,
    ) -> Result<String, ModelError> {
        let mut bytes = Vec::new();
        let mut chunks = response.bytes_stream();
        while bytes.len() < most {
            let limit = self.settings.idle_timeout;
            let next = timeout_at((Instant::now() + limit).min(deadline), chunks.next()).await;
            match next
                .map_err(|_| self.timed_out(deadline, "for the next piece of its answer", limit))?
            {
                Some(Ok(chunk)) => {
                    bytes.extend_from_slice(&chunk[..chunk.len().min(most - bytes.len())])
                }
                Some(Err(error)) => {
                    return Err(ModelError::Cut {
                        released: 0,
                        detail: chain(&error.without_url()),
                    });
                }
                None => break,
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn out_of_time(&self) -> ModelError {
        ModelError::TimedOut {
            what: "for its whole answer",
            limit: self.settings.total_timeout,
        }
    }

    /// Returns which of two limits has passed.
    fn timed_out(&self, deadline: Instant, what: &'static str, limit: Duration) -> ModelError {
        match Instant::now() >= deadline {
            true => self.out_of_time(),
            false => ModelError::TimedOut { what, limit },
        }
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    // Only an endpoint that says so does not stream: some stream without saying anything.
    !kind.starts_with("application/json")
}

fn unreadable(error: EventStreamError<ReadError>) -> ModelError {
    match error {
        EventStreamError::Transport(ReadError::Bound(error)) => error,
        EventStreamError::Transport(ReadError::Connection(error)) => ModelError::Cut {
            released: 0,
            detail: chain(&error.without_url()),
        },
        EventStreamError::Utf8(_) => ModelError::Malformed("it is not UTF-8".to_owned()),
        EventStreamError::Parser(_) => {
            ModelError::Malformed("it is no stream of events".to_owned())
        }
    }
}

/// Joins an error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
