//! The context of a call: its principal, its deadline and the runs above it.
//!
//! A handler reads its caller's with [`CallContext::of`] and passes it on: a client is made of a
//! [`Transport`](crate::Transport) together with the context of its calls, so that no call leaves without
//! one, whichever task makes it.

use std::{sync::Arc, time::Duration};

use contracts::tavern::{access::v1::Peer, common::v1::ErrorReason};
use core_types::{CallPath, DepthExceeded, MAX_CALL_DEPTH, Principal, Reach, Tenant};
use http::header::{self, Entry};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use crate::{Failure, deadline, share::LargeMessage};

const DEPTH: HeaderName = HeaderName::from_static("tavern-call-depth");
const PATH: HeaderName = HeaderName::from_static("tavern-call-path");
const PEER: HeaderName = HeaderName::from_static("tavern-peer");
const KEY_ID: HeaderName = HeaderName::from_static("tavern-key-id");
const PRINCIPAL: HeaderName = HeaderName::from_static("tavern-principal");
const REACH: HeaderName = HeaderName::from_static("tavern-reach");

/// The prefix of headers that only services send, to each other and to backends.
const OF_SERVICES: &str = "tavern-";

/// The longest step of a path, in bytes, that is sent on; a longer one is cut.
const MAX_STEP_BYTES: usize = 160;

/// The longest path header that is read.
const MAX_PATH_BYTES: usize = 8 << 10;

/// The principal of a call, its deadline and the path above it.
#[derive(Clone, Debug)]
pub struct CallContext {
    principal: Principal,
    /// The id of the key that proved the principal; none for work that outlives its caller.
    key_id: Option<Arc<str>>,
    reach: Reach,
    path: CallPath,
    deadline: Option<Instant>,
    /// The bound of the answer if it is a stream that goes to a peer.
    large_message: Option<LargeMessage>,
}

impl CallContext {
    /// Makes a context without a deadline, for work that no call waits for. It reaches the tenant of the principal.
    pub fn new(principal: Principal, path: CallPath) -> Self {
        Self {
            principal,
            key_id: None,
            reach: Reach::Tenant,
            path,
            deadline: None,
            large_message: None,
        }
    }

    /// Makes the context of a program's own work, below no run and without a deadline. It reaches every tenant.
    pub fn outermost() -> Self {
        Self::new(Principal::LOCAL, CallPath::default()).reaching(Reach::Installation)
    }

    /// Makes the context of a program's own work for a tenant.
    pub fn of_tenant(tenant: Tenant) -> Self {
        Self::new(Principal::local_of(tenant), CallPath::default())
    }

    /// Returns the context of the call that a handler answers. A request that came through no server has
    /// the [outermost](Self::outermost).
    pub fn of<T>(request: &Request<T>) -> Self {
        Self::among(request.extensions())
    }

    /// Returns the context among the extensions of a request, as [`CallContext::of`] does.
    pub fn among(extensions: &Extensions) -> Self {
        let context = extensions.get::<Self>().cloned();
        context.unwrap_or_else(Self::outermost)
    }

    /// Returns the context of a call whose principal was proven by a key.
    #[must_use]
    pub(crate) fn with_key(mut self, key_id: Option<Arc<str>>) -> Self {
        self.key_id = key_id;
        self
    }

    /// Returns the id of the key that proved the principal, for the call of a client; empty for the calls of runs,
    /// which act with all rights of their starter.
    pub fn key_id(&self) -> &str {
        self.key_id.as_deref().unwrap_or_default()
    }

    /// Returns the identity that the call acts for.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the tenant of the identity that the call acts for.
    pub fn tenant(&self) -> Tenant {
        self.principal.tenant()
    }

    /// Returns the objects that the call can see.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns the reach that is stored with work for a later time, which never has more than its tenant.
    pub fn stored_reach(&self) -> Reach {
        self.reach.min(Reach::Tenant)
    }

    /// Returns the context with another reach.
    #[must_use]
    pub fn reaching(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Whether the call can see the objects of `owner`. Out of its reach, they are as if they were not there.
    pub fn sees(&self, owner: &Principal) -> bool {
        match self.reach {
            Reach::Own => self.principal == *owner,
            Reach::Tenant => self.tenant() == owner.tenant(),
            Reach::Installation => true,
        }
    }

    /// Returns the name under which a request acts whose body may name its caller in `field`: the
    /// principal's, or for `local` the name in the body.
    ///
    /// # Errors
    /// INVALID_FIELDS where the body names a caller other than the principal.
    pub fn caller_name(&self, field: &str, named: String) -> Result<String, Failure> {
        let principal = &self.principal;
        match principal.is_local() {
            true => Ok(named),
            false
                if named.is_empty() || named == principal.as_str() || named == principal.name() =>
            {
                Ok(principal.as_str().to_owned())
            }
            false => {
                let problem = format!("is not the caller, which is `{principal}`; leave it empty");
                Err(Failure::invalid_fields().violation(field, problem))
            }
        }
    }

    /// Returns the runs above.
    pub fn path(&self) -> &CallPath {
        &self.path
    }

    /// Returns the deadline of the call; `None` if it has none.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the time that is left; `None` if there is no deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns the context with `deadline`, unless its own is earlier.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |own| own.min(deadline)));
        self
    }

    /// Returns the context with a deadline `timeout` from now, unless its own is earlier.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline(deadline),
            None => self,
        }
    }

    /// Returns the context without its deadline, for a run that outlives its caller.
    #[must_use]
    pub fn without_deadline(mut self) -> Self {
        self.deadline = None;
        self.large_message = None;
        self
    }

    /// Returns whether the stream that is being answered may send a message of `bytes` now. A large
    /// message uses a share that all streams of the peer have together, so a message is made only
    /// when this was true; [`CallContext::admit_message`] waits until it is.
    pub fn try_admit_message(&self, bytes: usize) -> bool {
        let bound = self.large_message.as_ref();
        bound.is_none_or(|bound| bound.try_admit(bytes))
    }

    /// Waits until the stream that is being answered may send a message of `bytes`.
    pub async fn admit_message(&self, bytes: usize) {
        if let Some(bound) = &self.large_message {
            bound.admit(bytes).await;
        }
    }

    pub(crate) fn large_message(&self) -> Option<LargeMessage> {
        self.large_message.clone()
    }

    #[must_use]
    pub(crate) fn with_large_message(mut self, bound: Option<LargeMessage>) -> Self {
        self.large_message = bound;
        self
    }

    /// Returns the context for the calls that `step` makes: the id of a run, tool or workflow.
    ///
    /// # Errors
    /// A status with the reason `DEPTH_EXCEEDED` when calls are nested too deep.
    pub fn enter(&self, step: impl Into<String>) -> Result<Self, Status> {
        let path = self.path.enter(step).map_err(|error| too_deep(&error))?;
        Ok(Self {
            path,
            ..self.clone()
        })
    }

    /// Reads path, principal, reach and deadline from the headers of a request. `proven` is the caller that the
    /// server's door admitted, whatever the headers say.
    pub(crate) fn read(
        headers: &HeaderMap,
        proven: Option<Proven>,
        deadline: Instant,
    ) -> Result<Self, Status> {
        let caller = match proven {
            Some(proven) => proven,
            None => Proven::read(headers)?,
        };
        if let Some(depth) = headers.get(DEPTH) {
            let depth: Option<usize> = depth.to_str().ok().and_then(|depth| depth.parse().ok());
            match depth {
                None => return Err(bad(&DEPTH, "is not a number").into_status()),
                Some(depth) if depth > MAX_CALL_DEPTH => {
                    let path = headers.get(PATH).and_then(|path| path.to_str().ok());
                    let path = path
                        .unwrap_or_default()
                        .chars()
                        .take(MAX_STEP_BYTES)
                        .collect();
                    return Err(too_deep(&DepthExceeded { path }));
                }
                Some(_) => {}
            }
        }
        let Some(path) = headers.get(PATH).filter(|path| !path.is_empty()) else {
            return Ok(caller.on(CallPath::default()).with_deadline(deadline));
        };
        if path.len() > MAX_PATH_BYTES {
            return Err(bad(&PATH, "is too long").into_status());
        }
        let steps = path
            .to_str()
            .ok()
            .and_then(|path| path.split(',').map(unescape).collect());
        let steps: Vec<String> =
            steps.ok_or_else(|| bad(&PATH, "is not a list of escaped steps").into_status())?;
        let path = CallPath::from_steps(steps).map_err(|error| too_deep(&error))?;
        Ok(caller.on(path).with_deadline(deadline))
    }

    /// Writes path, principal, reach and remaining time into the headers of a request. An existing timeout is
    /// only shortened.
    pub(crate) fn write(&self, headers: &mut HeaderMap) -> Result<(), Status> {
        if !self.principal.is_local()
            && let Ok(name) = HeaderValue::from_str(self.principal.as_str())
        {
            headers.insert(PRINCIPAL, name);
            if let Ok(key_id) = HeaderValue::from_str(self.key_id())
                && !key_id.is_empty()
            {
                headers.insert(KEY_ID, key_id);
            }
        }
        if self.reach != Reach::Tenant {
            headers.insert(REACH, HeaderValue::from_static(self.reach.name()));
        }
        if self.path.depth() > 0 {
            let steps: Vec<String> = self.path.steps().iter().map(|step| escape(step)).collect();
            if let Ok(value) = HeaderValue::try_from(steps.join(",")) {
                headers.insert(PATH, value);
            }
            headers.insert(DEPTH, HeaderValue::from(self.path.depth()));
        }
        let Some(remaining) = self.remaining() else {
            return Ok(());
        };
        let timeout = remaining.saturating_sub(margin(remaining));
        if timeout.is_zero() {
            return Err(Failure::deadline_exceeded().into_status());
        }
        // A header that the program itself has written is well formed.
        let own = deadline::read(headers).ok().flatten();
        let timeout = own.map_or(timeout, |own| own.min(timeout));
        deadline::write(headers, timeout);
        Ok(())
    }
}

/// The caller whom a door has admitted, or whom a peer states.
pub(crate) struct Proven {
    pub(crate) principal: Principal,
    pub(crate) key_id: Option<Arc<str>>,
    pub(crate) reach: Reach,
}

impl Proven {
    /// Reads the caller whom a peer states.
    fn read(headers: &HeaderMap) -> Result<Self, Status> {
        let text = |header: &HeaderName| headers.get(header).map(|value| value.to_str().ok());
        let principal = match text(&PRINCIPAL) {
            None => Principal::LOCAL,
            Some(name) => {
                let name = name.and_then(|name| Principal::new(name).ok());
                name.ok_or_else(|| bad(&PRINCIPAL, "is not the name of a principal"))?
            }
        };
        let reach = match text(&REACH) {
            None => Reach::Tenant,
            Some(name) => {
                let reach = name.and_then(Reach::of_name);
                reach.ok_or_else(|| bad(&REACH, "is not a reach"))?
            }
        };
        let key_id = text(&KEY_ID).flatten().map(Arc::from);
        Ok(Self {
            principal,
            key_id,
            reach,
        })
    }

    /// Returns the context of a call of the caller below the runs of `path`.
    fn on(self, path: CallPath) -> CallContext {
        let context = CallContext::new(self.principal, path).reaching(self.reach);
        context.with_key(self.key_id)
    }
}

fn bad(header: &HeaderName, description: &str) -> Failure {
    Failure::invalid_fields().violation(format!("metadata.{header}"), description)
}

/// States the service that makes a call.
pub(crate) fn write_peer(headers: &mut HeaderMap, peer: Peer) {
    headers.insert(PEER, HeaderValue::from_static(peer.as_str_name()));
}

/// Returns the service that makes a call; `None` if a program makes it, and [`Peer::Unspecified`] for a name
/// that no service has.
pub(crate) fn read_peer(headers: &HeaderMap) -> Option<Peer> {
    let name = headers.get(PEER)?.to_str().unwrap_or_default();
    Some(Peer::from_str_name(name).unwrap_or(Peer::Unspecified))
}

/// Marks the credentials of a request, so that nothing shows them with the other headers.
pub(crate) fn hide_credentials(headers: &mut HeaderMap) {
    for name in [header::AUTHORIZATION, header::COOKIE] {
        if let Entry::Occupied(mut values) = headers.entry(name) {
            let values = values.iter_mut();
            values.for_each(|value| value.set_sensitive(true));
        }
    }
}

/// Removes the headers of services from a client's request, so that it begins a path of its own.
pub(crate) fn remove_headers_of_services(headers: &mut HeaderMap) {
    let names = headers.keys();
    let forged = names.filter(|name| name.as_str().starts_with(OF_SERVICES));
    let forged: Vec<HeaderName> = forged.cloned().collect();
    for name in forged {
        headers.remove(name);
    }
}

/// Returns the time that a caller reserves to answer after a call of its own timed out.
fn margin(remaining: Duration) -> Duration {
    (remaining / 20).min(Duration::from_millis(50))
}

fn too_deep(error: &DepthExceeded) -> Status {
    Failure::new(
        Code::FailedPrecondition,
        ErrorReason::DepthExceeded,
        error.to_string(),
    )
    .metadata("path", error.path.clone())
    .into_status()
}

fn escape(step: &str) -> String {
    let mut end = step.len().min(MAX_STEP_BYTES);
    while !step.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = String::with_capacity(end);
    for byte in step[..end].bytes() {
        match byte {
            b',' | b'%' | 0..=0x20 | 0x7f.. => out.push_str(&format!("%{byte:02X}")),
            plain => out.push(char::from(plain)),
        }
    }
    out
}

fn unescape(step: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(step.len());
    let mut rest = step.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_path_of_any_text_crosses_the_wire() {
        let mut context = CallContext::outermost();
        for step in ["workflow:摘要", "a,b%c d", "plain"] {
            context = context.enter(step).unwrap();
        }
        let mut headers = HeaderMap::new();
        context.write(&mut headers).unwrap();
        let read = CallContext::read(&headers, None, soon()).unwrap();
        assert_eq!(read.path(), context.path());
    }

    #[test]
    fn a_path_past_the_limit_is_refused_on_both_sides() {
        let mut context = CallContext::outermost();
        for level in 0..MAX_CALL_DEPTH {
            context = context.enter(format!("run{level}")).unwrap();
        }
        let status = context.enter("one more").unwrap_err();
        assert_eq!(failure::reason(&status), Some(ErrorReason::DepthExceeded));
        let mut headers = HeaderMap::new();
        headers.insert(DEPTH, HeaderValue::from(MAX_CALL_DEPTH + 1));
        let status = CallContext::read(&headers, None, soon()).unwrap_err();
        assert_eq!(failure::reason(&status), Some(ErrorReason::DepthExceeded));
        headers.insert(DEPTH, HeaderValue::from(1));
        headers.insert(PATH, HeaderValue::from_static("1,2,3,4,5,6,7,8,9"));
        let status = CallContext::read(&headers, None, soon()).unwrap_err();
        assert_eq!(failure::reason(&status), Some(ErrorReason::DepthExceeded));
    }

    #[test]
    fn credentials_are_not_shown_with_the_headers() {
        let mut headers = HeaderMap::new();
        for name in [header::AUTHORIZATION, header::AUTHORIZATION, header::COOKIE] {
            headers.append(name, HeaderValue::from_static("secret"));
        }
        hide_credentials(&mut headers);
        assert!(!format!("{headers:?}").contains("secret"));
    }

    #[test]
    fn a_forged_header_is_refused() {
        for (name, value) in [
            (DEPTH, "-1"),
            (DEPTH, "many"),
            (PATH, "%"),
            (PATH, "%ff"),
            (PRINCIPAL, "A b"),
            (REACH, "all"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name.clone(), HeaderValue::from_static(value));
            let status = CallContext::read(&headers, None, soon()).unwrap_err();
            assert_eq!(
                failure::violations(&status)[0].0,
                format!("metadata.{name}")
            );
        }
    }

    #[test]
    fn the_principal_crosses_the_wire_and_a_proven_one_counts() {
        let ada = Principal::new("ada").unwrap();
        let context = CallContext::new(ada.clone(), CallPath::default());
        let context = context.with_key(Some("k1".into()));
        let mut headers = HeaderMap::new();
        context.write(&mut headers).unwrap();
        let read = CallContext::read(&headers, None, soon()).unwrap();
        assert_eq!((read.principal(), read.key_id()), (&ada, "k1"));
        let bob = Principal::new("acme/bob").unwrap();
        let proven = Proven {
            principal: bob.clone(),
            key_id: None,
            reach: Reach::Own,
        };
        let read = CallContext::read(&headers, Some(proven), soon()).unwrap();
        assert_eq!((read.principal(), read.key_id()), (&bob, ""));
        assert_eq!(read.reach(), Reach::Own);
    }

    #[test]
    fn a_call_sees_as_far_as_it_reaches_also_behind_the_wire() {
        let named = |name: &str| Principal::new(name).unwrap();
        let owners = ["acme/bob", "acme/eve", "bob"].map(named);
        for (reach, seen) in [
            (Reach::Own, [true, false, false]),
            (Reach::Tenant, [true, true, false]),
            (Reach::Installation, [true, true, true]),
        ] {
            let context = CallContext::new(named("acme/bob"), CallPath::default());
            let mut headers = HeaderMap::new();
            context.reaching(reach).write(&mut headers).unwrap();
            let read = CallContext::read(&headers, None, soon()).unwrap();
            assert_eq!(
                owners.each_ref().map(|owner| read.sees(owner)),
                seen,
                "{reach:?}"
            );
        }
    }

    #[test]
    fn the_shorter_timeout_is_sent_less_a_margin() {
        let context = CallContext::outermost().with_timeout(Duration::from_secs(10));
        let mut headers = HeaderMap::new();
        context.write(&mut headers).unwrap();
        assert!(deadline::read(&headers).unwrap().unwrap() <= Duration::from_millis(9_950));
        deadline::write(&mut headers, Duration::from_secs(1));
        context.write(&mut headers).unwrap();
        assert_eq!(deadline::read(&headers), Ok(Some(Duration::from_secs(1))));
    }

    #[test]
    fn nothing_is_sent_after_the_deadline() {
        let context = CallContext::outermost().with_deadline(Instant::now());
        let status = context.write(&mut HeaderMap::new()).unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }
}
