//! The data that is stored alongside a run so that it can be resumed.

use core_types::{Principal, Reach};
use grpc_kit::Failure;
use run_log::RunSummary;
use serde::{Deserialize, Serialize};

use crate::damage::DamagedLog;

/// The data that is stored alongside a run so that it can be resumed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunMeta {
    /// The id of the executed profile, workflow or tool; may be empty.
    pub subject: String,
    /// The conversation whose workspace the run uses; may be empty.
    pub conversation_id: String,
    /// The runs above, outermost first.
    pub path: Vec<String>,
    /// The principal that started the run, and for which it acts: the owner of the run in the log.
    #[serde(skip)]
    pub principal: Principal,
    /// The objects that the calls of the run can see.
    #[serde(default, skip_serializing_if = "Reach::is_tenant")]
    pub reach: Reach,
    /// The trace in which the run was started; empty if there was none.
    pub traceparent: String,
    /// The data that the owner needs to resume the run.
    pub data: serde_json::Value,
}

/// The start of a run: by whom, and below which runs.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    pub(crate) principal: Principal,
    pub(crate) reach: Reach,
    /// The runs above, outermost first.
    pub(crate) path: Vec<String>,
}

impl Starter {
    /// Returns the start of a run whose stored data cannot be read.
    pub(crate) fn of(summary: &RunSummary) -> Self {
        Self {
            principal: summary.owner.clone(),
            reach: Reach::Own,
            path: Vec::new(),
        }
    }
}

impl RunMeta {
    /// Returns the start of the run.
    pub(crate) fn starter(&self) -> Starter {
        Starter {
            principal: self.principal.clone(),
            reach: self.reach,
            path: self.path.clone(),
        }
    }

    /// Reads the stored data of a run.
    pub(crate) fn of(summary: &RunSummary) -> Result<Self, Failure> {
        Ok(Self::read(summary)?)
    }

    /// Reads the stored data of a run that is to be continued.
    pub(crate) fn read(summary: &RunSummary) -> Result<Self, DamagedLog> {
        let meta: Self = serde_json::from_slice(&summary.meta).map_err(DamagedLog::Meta)?;
        let principal = summary.owner.clone();
        Ok(Self { principal, ..meta })
    }

    /// Encodes it in its stored form.
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
