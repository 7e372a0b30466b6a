//! Any endpoint that answers over HTTP with server-sent events: one request at a time, bounded in
//! time and size. Requests and answers are written and read by the [`ModelApi`].

pub mod limit;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use eventsource_stream::{EventStreamError, Eventsource};
use futures::StreamExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use settings::{Secret, text_file};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, timeout_at},
};

use self::limit::ReadError;
use super::{
    ModelError, ModelRequest, Piece, Pieces, Provider,
    api::{self, ModelApi},
    refusal,
};
use crate::model_settings::{EndpointSettings, GrammarUse};

/// The most bytes that are read of the body of an error.
const MAX_ERROR_BODY: usize = 64 << 10;
/// The most bytes that are read of a file with a key.
const MAX_KEY_BYTES: u64 = 64 << 10;

const FIRST_TOKEN: &str = "to begin its answer";
const TOKEN_GAP: &str = "for the next piece of its answer";

/// A model behind an endpoint.
#[derive(Clone, Debug)]
pub struct HttpModel {
    inner: Arc<Inner>,
}

struct Inner {
    settings: EndpointSettings,
    api: Box<dyn ModelApi>,
    url: reqwest::Url,
    key: KeySource,
    http: reqwest::Client,
}

/// The source of an endpoint's key.
#[derive(Debug)]
pub enum KeySource {
    /// The endpoint needs no key.
    None,
    /// The environment, which does not change while the process runs.
    Value(Secret),
    /// A file, which is read for every request, so that a key can be replaced.
    File(PathBuf),
}

impl fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HttpModel")
            .field("api", &self.api)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The reason for which a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HttpModelError {
    /// The address is invalid.
    #[error("`base_url` is `{0}`; give an address such as https://api.example.com/v1")]
    BaseUrl(String),
    /// The key has characters that no header can carry.
    #[error(
        "the api key has characters that cannot be sent; set it to plain text without line breaks"
    )]
    Key,
    /// The file with CAs cannot be read.
    #[error("the file {} with CAs cannot be read", file.display())]
    CaFile {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file with CAs has none.
    #[error("the file {} has no certificate in PEM", .0.display())]
    NoCa(PathBuf),
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

impl HttpModel {
    /// Makes a client. Nothing is sent.
    ///
    /// # Errors
    /// [`HttpModelError`] if address, key or CAs cannot be used.
    pub fn new(
        settings: EndpointSettings,
        api: Box<dyn ModelApi>,
        key: KeySource,
    ) -> Result<Self, HttpModelError> {
        let no_address = || HttpModelError::BaseUrl(settings.base_url.clone());
        let base = reqwest::Url::parse(&settings.base_url).map_err(|_| no_address())?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(no_address());
        }
        let url = format!("{}{}", settings.base_url.trim_end_matches('/'), api.path());
        let url = reqwest::Url::parse(&url).map_err(|_| no_address())?;
        if let KeySource::Value(key) = &key {
            api.headers(Some(key)).map_err(|_| HttpModelError::Key)?;
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Losing the race against another installer is as good as winning it.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut builder = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(settings.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tavern/", env!("CARGO_PKG_VERSION")));
        if !settings.use_system_proxy {
            builder = builder.no_proxy();
        }
        if let Some(file) = &settings.ca_file {
            builder = builder.tls_certs_only(authorities(file)?);
        }
        let http = builder.build().map_err(HttpModelError::Client)?;
        Ok(Self {
            inner: Arc::new(Inner {
                settings,
                api,
                url,
                key,
                http,
            }),
        })
    }
}

/// Reads the CAs in a file.
fn authorities(file: &Path) -> Result<Vec<reqwest::Certificate>, HttpModelError> {
    let unread = |source| HttpModelError::CaFile {
        file: file.to_owned(),
        source,
    };
    let pem = std::fs::read(file).map_err(unread)?;
    let read = reqwest::Certificate::from_pem_bundle(&pem).ok();
    let read = read.filter(|read| !read.is_empty());
    read.ok_or_else(|| HttpModelError::NoCa(file.to_owned()))
}

impl Provider for HttpModel {
    fn kind(&self) -> &'static str {
        self.inner.api.kind()
    }

    fn endpoint_model(&self) -> &str {
        &self.inner.settings.model
    }

    fn generate(&self, request: Arc<ModelRequest>, deadline: std::time::Instant) -> Pieces {
        let inner = Arc::clone(&self.inner);
        Box::pin(async_stream::try_stream! {
            let deadline = Instant::from_std(deadline);
            let mut token_due = TokenPatience::new(&inner.settings, deadline);
            let key = inner.key().await?;
            let response = inner.send(&request, key.as_ref(), &token_due).await?;
            if says(response.headers(), "text/html") {
                Err(ModelError::NotAnApi)?;
            }
            // Only an endpoint that declares JSON does not stream: some stream without declaring
            // anything.
            if says(response.headers(), "application/json") {
                let body = inner.read_whole(response, &token_due).await?;
                let answered = inner.completion(&body);
                let (pieces, end) = answered.map_err(|error| hide_key(error, key.as_ref()))?;
                for piece in pieces {
                    yield piece;
                }
                yield Piece::End(end);
                return;
            }
            let mut events = limit::lines(response.bytes_stream()).eventsource();
            let mut assembly = inner.api.assembly();
            let mut detail = "the connection was closed".to_owned();
            while !assembly.draft().done {
                match timeout_at(token_due.at(), events.next()).await {
                    Ok(Some(Ok(event))) => {
                        let received = assembly.draft().received;
                        for piece in api::push(assembly.as_mut(), &event.data)
                            .map_err(|error| hide_key(error, key.as_ref()))?
                        {
                            yield piece;
                        }
                        // Signs of life without a token, such as `ping`, do not count.
                        if assembly.draft().received > received {
                            token_due.token_arrived();
                        }
                    }
                    Ok(Some(Err(EventStreamError::Transport(ReadError::Connection(error))))) => {
                        detail = chain(&error.without_url());
                        break;
                    }
                    Ok(Some(Err(error))) => Err(unreadable(error))?,
                    Ok(None) => break,
                    Err(_) => Err(token_due.passed())?,
                }
            }
            yield Piece::End(assembly.finish(&detail)?);
        })
    }
}

impl Inner {
    async fn send(
        &self,
        request: &ModelRequest,
        key: Option<&Secret>,
        token_due: &TokenPatience,
    ) -> Result<reqwest::Response, ModelError> {
        let headers = self
            .api
            .headers(key)
            .map_err(|_| ModelError::Key("it has characters that cannot be sent".to_owned()))?;
        let mut body = self.api.request_body(&self.settings.model, request);
        if self.settings.grammar != GrammarUse::None && !request.grammar.is_empty() {
            // Endpoints of OpenAI itself refuse unknown fields.
            body["grammar"] = request.grammar.as_str().into();
        }
        let mut post = self
            .http
            .post(self.url.clone())
            .headers(headers)
            .body(body.to_string());
        if let Some(traceparent) = telemetry::context::current_traceparent() {
            post = post.header("traceparent", traceparent);
        }
        let response = timeout_at(token_due.at(), post.send())
            .await
            .map_err(|_| token_due.passed())?
            .map_err(|error| ModelError::Unreachable {
                endpoint: self.url.origin().ascii_serialization(),
                detail: chain(&error.without_url()),
            })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        // The status is decisive: a body that cannot be read does not change it.
        let body = read_some(response, MAX_ERROR_BODY, token_due)
            .await
            .unwrap_or_default();
        let body = without_key(&body, key);
        Err(refusal::read(status, &headers, &body, SystemTime::now()))
    }

    async fn key(&self) -> Result<Option<Secret>, ModelError> {
        match &self.key {
            KeySource::None => Ok(None),
            KeySource::Value(key) => Ok(Some(key.clone())),
            KeySource::File(path) => {
                let unreadable = |detail: &dyn fmt::Display| {
                    ModelError::Key(format!("{}: {detail}", path.display()))
                };
                let file = tokio::fs::File::open(path).await;
                let mut bytes = Vec::new();
                let file = file.map_err(|error| unreadable(&error))?;
                let read = file.take(MAX_KEY_BYTES).read_to_end(&mut bytes).await;
                let text = read.and_then(|_| text_file::decode(bytes));
                let text = text.map_err(|error| unreadable(&error))?;
                match text.trim() {
                    "" => Err(unreadable(&"the file is empty")),
                    key => Ok(Some(Secret::new(key))),
                }
            }
        }
    }

    async fn read_whole(
        &self,
        response: reqwest::Response,
        token_due: &TokenPatience,
    ) -> Result<String, ModelError> {
        let limit = limit::MAX_LINE_BYTES;
        let body = read_some(response, limit + 1, token_due).await?;
        match body.len() > limit {
            true => Err(ModelError::TooLarge {
                what: "a body",
                limit,
            }),
            false => Ok(body),
        }
    }

    fn completion(&self, body: &str) -> Result<(Vec<Piece>, super::AnswerEnd), ModelError> {
        let body = body.trim_start_matches(limit::BYTE_ORDER_MARK);
        if body.trim_start().starts_with('<') {
            return Err(ModelError::NotAnApi);
        }
        let value = serde_json::from_str(body)
            .map_err(|error| ModelError::Malformed(format!("the body is not JSON: {error}")))?;
        match refusal::is_error(&value) {
            true => Err(refusal::in_answer(&value, 0)),
            false => self.api.completion(&value),
        }
    }
}

/// The time for which an endpoint may be without a token (rule G506).
struct TokenPatience {
    due: Instant,
    gap: Duration,
    what: &'static str,
    limit: Duration,
    deadline: Instant,
    total: Duration,
}

impl TokenPatience {
    fn new(settings: &EndpointSettings, deadline: Instant) -> Self {
        let limit = settings.first_token_timeout;
        Self {
            due: Instant::now() + limit,
            gap: settings.token_gap_timeout,
            what: FIRST_TOKEN,
            limit,
            deadline,
            total: settings.total_timeout,
        }
    }

    fn at(&self) -> Instant {
        self.due.min(self.deadline)
    }

    fn token_arrived(&mut self) {
        self.due = Instant::now() + self.gap;
        self.what = TOKEN_GAP;
        self.limit = self.gap;
    }

    /// Returns the error of the limit that passed.
    fn passed(&self) -> ModelError {
        let (what, limit) = match self.deadline <= self.due {
            true => ("for its whole answer", self.total),
            false => (self.what, self.limit),
        };
        ModelError::TimedOut { what, limit }
    }
}

/// Reads a body up to `most` bytes; the rest is left.
async fn read_some(
    response: reqwest::Response,
    most: usize,
    token_due: &TokenPatience,
) -> Result<String, ModelError> {
    let mut bytes = Vec::new();
    let mut chunks = response.bytes_stream();
    while bytes.len() < most {
        let next = timeout_at(token_due.at(), chunks.next()).await;
        match next.map_err(|_| token_due.passed())? {
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

fn says(headers: &HeaderMap, media_type: &str) -> bool {
    let said = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    said.is_some_and(|said| said.starts_with(media_type))
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
            ModelError::Malformed("it is not a stream of events".to_owned())
        }
    }
}

/// Removes the key from the endpoint's message.
fn hide_key(mut error: ModelError, key: Option<&Secret>) -> ModelError {
    if let ModelError::Refused(refusal) | ModelError::Vendor { refusal, .. } = &mut error {
        refusal.message = without_key(&refusal.message, key);
    }
    error
}

/// Removes the key from a text of the endpoint: some repeat the key that they refuse.
fn without_key(text: &str, key: Option<&Secret>) -> String {
    match key.map(Secret::expose).filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, "[key]"),
        None => text.to_owned(),
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
