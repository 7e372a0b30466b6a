//! A model that plays a file: for tests, demonstrations and development without an endpoint.
//!
//! It is called `scripted` wherever it appears, so that it is not mistaken for a real model. A
//! request that the script does not expect fails, and the message names all missing parts.

pub mod script;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use agent_domain::usage::Usage;
use settings::text_file;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::script::{Fault, Script, ScriptTurn};
use super::{AnswerEnd, ModelError, ModelRequest, Piece, Pieces, Provider, Refusal};

/// The largest script that is read, in bytes.
const MAX_SCRIPT_BYTES: u64 = 4 << 20;

/// A model that plays a file.
#[derive(Clone, Debug)]
pub struct Scripted {
    name: Arc<str>,
    script: Arc<Script>,
}

/// The reason for which a script cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("the script {path} cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not a script.
    #[error("the script {path} is not valid")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The place and the cause.
        source: serde_json::Error,
    },
}

impl Scripted {
    /// Reads a script.
    ///
    /// # Errors
    /// [`ScriptError`] if it cannot be read or is not a script.
    pub fn open(path: &Path) -> Result<Self, ScriptError> {
        let text =
            text_file::read(path, MAX_SCRIPT_BYTES).map_err(|source| ScriptError::Unreadable {
                path: path.to_owned(),
                source,
            })?;
        let script = serde_json::from_str(&text).map_err(|source| ScriptError::Invalid {
            path: path.to_owned(),
            source,
        })?;
        let name = path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Self {
            name: name.into(),
            script: Arc::new(script),
        })
    }
}

impl Provider for Scripted {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn endpoint_model(&self) -> &str {
        ""
    }

    fn generate(&self, request: Arc<ModelRequest>, deadline: std::time::Instant) -> Pieces {
        let this = self.clone();
        Box::pin(async_stream::try_stream! {
            let turn = this.script.play(&this.name, &request.messages).map_err(ModelError::Script)?;
            let deadline = Instant::from_std(deadline);
            let limit = deadline.saturating_duration_since(Instant::now());
            let late = ModelError::TimedOut { what: "for its whole answer", limit };
            let mut released = 0;
            for piece in pieces(turn) {
                // A timer of zero length takes a millisecond.
                if !turn.answer.delay.is_zero() {
                    let at = Instant::now() + turn.answer.delay;
                    timeout_at(deadline, sleep_until(at)).await.map_err(|_| late.clone())?;
                }
                if let Piece::Text(text) | Piece::Thinking(text) = &piece {
                    released += text.len();
                }
                yield piece;
            }
            match &turn.fault {
                None => yield Piece::End(end(turn)),
                Some(Fault::Refused { status, message }) => Err(ModelError::Refused(Refusal {
                    status: *status,
                    message: message.clone(),
                    ..Refusal::default()
                }))?,
                Some(Fault::ContextExceeded) => Err(ModelError::Refused(Refusal {
                    status: 400,
                    message: "the request is too long".to_owned(),
                    context_exceeded: true,
                    ..Refusal::default()
                }))?,
                Some(Fault::Cut) => Err(ModelError::Cut { released, detail: "the script says so".to_owned() })?,
                Some(Fault::Hang) => {
                    sleep_until(deadline).await;
                    Err(late)?;
                }
            }
        })
    }
}

fn end(turn: &ScriptTurn) -> AnswerEnd {
    AnswerEnd {
        finish_reason: turn.answer.finish_reason.clone(),
        usage: Usage {
            input_tokens: turn.answer.input_tokens,
            output_tokens: turn.answer.output_tokens,
            ..Usage::default()
        },
        tool_calls: turn.answer.tool_calls.clone(),
        ..AnswerEnd::default()
    }
}

fn pieces(turn: &ScriptTurn) -> Vec<Piece> {
    let answer = &turn.answer;
    let thinking = cut(&answer.thinking.text(), answer.chunk)
        .into_iter()
        .map(Piece::Thinking);
    thinking
        .chain(
            cut(&answer.text.text(), answer.chunk)
                .into_iter()
                .map(Piece::Text),
        )
        .collect()
}

fn cut(text: &str, size: usize) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    if size == 0 {
        return vec![text.to_owned()];
    }
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(size)
        .map(|piece| piece.iter().collect())
        .collect()
}
