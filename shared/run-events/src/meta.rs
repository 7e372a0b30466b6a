//! What is stored beside a run so that it can be resumed.

use grpc_kit::Failure;
use run_log::RunSummary;
use serde::{Deserialize, Serialize};

use crate::damage::DamagedLog;

/// What is stored beside a run so that it can be resumed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunMeta {
    /// What is executed.
    pub subject: String,
    /// The conversation whose workspace the run uses; may be empty.
    pub conversation_id: String,
    /// The runs above, outermost first.
    pub path: Vec<String>,
    /// The trace in which the run was started; empty if there was none.
    pub traceparent: String,
    /// What the owner needs to resume the run.
    pub data: serde_json::Value,
}

impl RunMeta {
    /// Reads what is stored beside a run.
    pub(crate) fn of(summary: &RunSummary) -> Result<Self, Failure> {
        Ok(Self::read(summary)?)
    }

    /// Reads what is stored beside a run that is to be continued.
    pub(crate) fn read(summary: &RunSummary) -> Result<Self, DamagedLog> {
        serde_json::from_slice(&summary.meta).map_err(DamagedLog::Meta)
    }

    /// Writes it as it is stored.
    pub(crate) fn encode(&self) -> Result<bytes::Bytes, Failure> {
        let text = serde_json::to_vec(self).expect("a map with text keys always serialises");
        let (bytes, maximum) = (text.len(), run_log::limits::MAX_META_BYTES);
        if bytes > maximum {
            let problem = format!("needs {bytes} bytes to store; at most {maximum} are accepted");
            return Err(Failure::invalid_fields().violation("", problem));
        }
        Ok(text.into())
    }
}
