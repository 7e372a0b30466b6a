//! The sandbox as scripts and the code interpreter use it.

mod code_files;
mod packages;
mod program_files;
mod results;
mod sessions;
mod verdict;

use call_outcome::{CallOutcome, Category, Failure, missing_package};
use std::{pin::pin, time::Duration};

use contracts::tavern::{
    common::v1::{ErrorReason, OutputStream},
    sandbox::v1::{ExecuteRequest, ExecuteResponse},
};
use futures::StreamExt;
use grpc_kit::{CallContext, Patience, Transport};
use script_client::{Broken, ScriptEvent};
use sha2::{Digest, Sha256};
use tonic::{Code, Status};

use super::ResolvedCall;

pub(super) use code_files::{CodeFiles, LeftFiles, reason_of};
pub use packages::PackageSets;
pub(super) use packages::Ran;
pub(super) use program_files::ProgramFiles;
pub use sessions::Sessions;

pub(super) use call_outcome::tail;
pub(super) use sessions::{CellPlace, CellRun};
pub(super) use verdict::{failed_verdict, has_exited};

/// The code of the failure of a program whose package set is not built.
pub(super) const UNKNOWN_PACKAGE_SET: &str = "unknown_package_set";

/// The longest wait for a sandbox that is unavailable.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs programs in the sandbox.
#[derive(Clone, Debug)]
pub struct Sandbox {
    sandbox: Transport,
    packages: PackageSets,
}

impl Sandbox {
    /// Takes script-sandbox behind a transport, and its package sets.
    pub fn new(sandbox: Transport, packages: PackageSets) -> Self {
        Self { sandbox, packages }
    }

    /// The package sets.
    pub(super) fn packages(&self) -> &PackageSets {
        &self.packages
    }

    /// Returns the failure of code of a runtime; where it wanted a package, the one that names the package sets.
    pub(super) async fn explained(&self, failure: Failure, ran: Ran<'_>, stderr: &str) -> Failure {
        match missing_package::read(ran.runtime, stderr) {
            Some(missing) => self.packages.not_installed(&missing, ran, failure).await,
            None => failure,
        }
    }

    /// Runs one program once, and shows nothing of it.
    ///
    /// # Errors
    /// It was not run to its end.
    pub(super) async fn ask(
        &self,
        request: ExecuteRequest,
        context: &CallContext,
    ) -> Result<ExecuteResponse, Failure> {
        let ended = self.to_end(request, context, |_| {}).await;
        ended.map_err(|broken| failure_of(&broken.status))
    }

    /// Runs one program on files. Its output is shown as output of the call while it runs, except the stream `answer`,
    /// which carries its answer.
    ///
    /// # Errors
    /// The outcome of the call when the program was not run to its end. A sandbox that went down
    /// may have run the program, so only tools that may be repeated are run again elsewhere.
    pub(super) async fn execute(
        &self,
        request: ExecuteRequest,
        resolved: &ResolvedCall,
        answer: Option<OutputStream>,
        files: &ProgramFiles,
    ) -> Result<ExecuteResponse, CallOutcome> {
        let may_repeat = resolved.tool.may_repeat();
        self.run_to_end(request, resolved, (answer, may_repeat), files)
            .await
    }

    /// Runs code on the files of a conversation, or on none. Its changes reach the conversation when it has ended, so
    /// it is run again elsewhere if the sandbox went down.
    ///
    /// # Errors
    /// The outcome of the call when the code was not run to its end.
    pub(super) async fn execute_on(
        &self,
        request: ExecuteRequest,
        resolved: &ResolvedCall,
        files: &ProgramFiles,
    ) -> Result<ExecuteResponse, CallOutcome> {
        self.run_to_end(request, resolved, (None, true), files)
            .await
    }

    async fn run_to_end(
        &self,
        mut request: ExecuteRequest,
        resolved: &ResolvedCall,
        (answer, may_repeat): (Option<OutputStream>, bool),
        files: &ProgramFiles,
    ) -> Result<ExecuteResponse, CallOutcome> {
        files.caller().clone_into(&mut request.caller_id);
        request.effect_id = resolved
            .effect_id
            .as_ref()
            .map_or_else(String::new, |id| portable(id.as_str()));
        request.conversation_id = resolved
            .conversation
            .as_ref()
            .map_or_else(String::new, |id| portable(id.as_str()));
        if let Some(timeout) = resolved.tool.timeout() {
            let limits = request.limits.get_or_insert_default();
            limits.wall_time = prost_types::Duration::try_from(timeout).ok();
        }
        let mut patience = Patience::new(PATIENCE, resolved.deadline);
        let mut sendings = 0;
        loop {
            request.workspace = files.wanted().await.map_err(CallOutcome::Failed)?;
            if let Some(wanted) = &request.workspace {
                code_files::add_room(request.limits.get_or_insert_default(), wanted);
            }
            let broken = match self.run(&request, resolved, answer).await {
                Ok(response) => return Ok(response),
                Err(broken) => broken,
            };
            if broken.may_have_run && !may_repeat {
                return Err(CallOutcome::InDoubt(lost(resolved)));
            }
            if let Some(wanted) = &request.workspace
                && is_lacking_files(&broken.status, &mut sendings)
            {
                let sent = files.send_missing(wanted).await;
                sent.map_err(|status| CallOutcome::Failed(failure_of(&status)))?;
                continue;
            }
            if !patience.wait_after(&broken.status).await {
                return Err(CallOutcome::Failed(failure_of(&broken.status)));
            }
            if broken.may_have_run {
                resolved.in_flight.begin_again();
            }
        }
    }

    /// Runs a program once, and shows its output.
    async fn run(
        &self,
        request: &ExecuteRequest,
        resolved: &ResolvedCall,
        answer: Option<OutputStream>,
    ) -> Result<ExecuteResponse, Broken> {
        self.to_end(request.clone(), &resolved.context, |event| match event {
            ScriptEvent::Output(stream, text) if answer != Some(stream) => {
                resolved.in_flight.output(stream, text);
            }
            ScriptEvent::Progress(report) => {
                resolved.in_flight.progress(report.fraction, report.message);
            }
            ScriptEvent::Output(..) | ScriptEvent::Ended(_) => {}
        })
        .await
    }

    /// Runs a program once, with `show` for each event before its end.
    async fn to_end(
        &self,
        request: ExecuteRequest,
        context: &CallContext,
        mut show: impl FnMut(ScriptEvent),
    ) -> Result<ExecuteResponse, Broken> {
        let script = script_client::run(&self.sandbox, context, request);
        let mut events = pin!(script);
        while let Some(event) = events.next().await {
            match event? {
                ScriptEvent::Ended(response) => return Ok(*response),
                event => show(event),
            }
        }
        unreachable!("the events of a script end with its end or an error")
    }
}

/// Whether the sandbox lacks the content of files, which was not sent too often yet.
fn is_lacking_files(status: &Status, sendings: &mut u32) -> bool {
    /// Content can expire between two requests, and files can change.
    const MOST: u32 = 3;
    let is_lacking = grpc_kit::reason(status) == Some(ErrorReason::BlobNotFound);
    *sendings += u32::from(is_lacking);
    is_lacking && *sendings <= MOST
}

/// Returns an id as the sandbox takes it: at most 128 printable ASCII characters without blanks. Another spelling
/// would do as well, as long as it is the same each time.
pub(super) fn portable(id: &str) -> String {
    const LONGEST: usize = 128;
    if id.len() <= LONGEST && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return id.to_owned();
    }
    hex::encode(Sha256::digest(id))
}

fn lost(resolved: &ResolvedCall) -> Failure {
    let message = format!(
        "the sandbox went down while {} ran; whether it took effect is unknown, and it was not \
         repeated: look at what it did, then decide",
        resolved.tool.id()
    );
    Failure::new(Category::Dependency, "sandbox_lost", message)
}

fn failure_of(status: &Status) -> Failure {
    let said = status.message();
    let (category, code, message) = match (status.code(), grpc_kit::reason(status)) {
        (_, Some(ErrorReason::IsolationUnavailable)) => (
            Category::Policy,
            "isolation_unavailable",
            format!("the sandbox cannot give the isolation that is demanded: {said}"),
        ),
        (_, Some(ErrorReason::RuntimeUnavailable)) => (
            Category::Dependency,
            "runtime_unavailable",
            format!("the script's language cannot be run here: {said}"),
        ),
        (_, Some(ErrorReason::UnknownPackageSet)) => {
            (Category::Validation, UNKNOWN_PACKAGE_SET, said.to_owned())
        }
        (_, Some(ErrorReason::PackageSetUnfit)) => {
            (Category::Dependency, "package_set_unfit", said.to_owned())
        }
        (_, Some(ErrorReason::SessionBusy)) => (
            Category::Runtime,
            "interpreter_busy",
            "another cell of this conversation still runs; wait for its result".to_owned(),
        ),
        (Code::InvalidArgument, _) => {
            let fields: Vec<String> = grpc_kit::violations(status)
                .into_iter()
                .map(|(field, problem)| format!("{field} {problem}"))
                .collect();
            let message = format!("the sandbox refused the program: {}", fields.join("; "));
            (Category::Validation, "program_refused", message)
        }
        (Code::DeadlineExceeded | Code::Cancelled, _) => (
            Category::Timeout,
            "deadline_exceeded",
            "the program did not end before the call's deadline and was ended".to_owned(),
        ),
        (Code::Unavailable | Code::ResourceExhausted, _) => (
            Category::Dependency,
            "sandbox_unavailable",
            "the sandbox is not there or has no room; try again later".to_owned(),
        ),
        _ => {
            tracing::warn!(code = ?status.code(), said, "the sandbox failed");
            (
                Category::Dependency,
                "sandbox_failed",
                "the sandbox failed; its log has the reason".to_owned(),
            )
        }
    };
    let failure = Failure::new(category, code, message);
    if matches!(code, "sandbox_unavailable" | "interpreter_busy") {
        failure.retryable()
    } else {
        failure
    }
}
