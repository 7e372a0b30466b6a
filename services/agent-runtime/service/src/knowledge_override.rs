//! The knowledge base of a backend in the place of this service's own (rule R207).
//!
//! The rights of agents are checked here, before and behind the backend. Each function returns `None` where nothing
//! overrides the knowledge base for the tenant.

use std::sync::Arc;

use agent_domain::{knowledge::GoalReference, profile::Profile};
use agent_store::knowledge::{Knowledge, Reader, denied, goal_bases, missing};
use contracts::tavern::{
    agent::v1::{FoundEntry, KnowledgeBase, KnowledgeEntry, WriteKnowledgeEntryRequest},
    common::v1::ErrorReason,
    plugin::v1::{
        DeleteBaseRequest, DeleteBaseResponse, DeleteEntryRequest, DeleteEntryResponse,
        FindEntriesRequest, FindEntriesResponse, GetEntryRequest, GetEntryResponse,
        ListBasesRequest, ListBasesResponse, ListEntriesRequest, ListEntriesResponse,
        PutBaseRequest, PutBaseResponse, WriteEntryRequest, WriteEntryResponse,
    },
};
use core_types::IdSource;
use grpc_kit::{CallContext, Failure};
use plugin_client::{OverrideClient, Refusal, Service, malformed};
use prost::Message;
use tonic::Code;

/// The knowledge base of a backend. Clone, cheap.
#[derive(Clone, Debug)]
pub struct KnowledgeOverride {
    client: OverrideClient,
    ids: Arc<dyn IdSource>,
}

/// The knowledge bases of an installation. Clone, cheap.
#[derive(Clone, Debug)]
pub struct KnowledgeBases {
    /// The knowledge bases of this service.
    pub own: Knowledge,
    /// The knowledge bases of a backend, which is asked first.
    pub of_backend: KnowledgeOverride,
}

impl KnowledgeOverride {
    /// Asks by a client.
    pub fn new(client: OverrideClient, ids: Arc<dyn IdSource>) -> Self {
        Self { client, ids }
    }

    /// Whether a backend stands in for a tenant, so that its knowledge bases are not known here, or whether that cannot be
    /// learned in time.
    pub async fn is_there(&self, context: &CallContext) -> bool {
        let asked = self.bases(context, "", 1).await;
        !matches!(asked, Ok(None))
    }

    /// Whether a backend may stand in for some tenant; asks no other service.
    pub fn may_be_there(&self) -> bool {
        self.client.may_override(Service::KnowledgeBase)
    }

    /// Lists at most `limit` knowledge bases behind an id.
    ///
    /// # Errors
    /// The backend's failure.
    pub async fn bases(
        &self,
        context: &CallContext,
        after: &str,
        limit: usize,
    ) -> Result<Option<Vec<KnowledgeBase>>, Failure> {
        let request = || ListBasesRequest {
            after: after.to_owned(),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
        };
        let listed = self.ask::<_, ListBasesResponse>(context, "ListBases", ("", ""), request);
        Ok(listed.await?.map(|mut listed| {
            listed.bases.truncate(limit);
            listed.bases
        }))
    }

    /// Stores a knowledge base with its entries, or only checks it.
    ///
    /// # Errors
    /// The backend's failure, or its refusal.
    pub async fn put(
        &self,
        context: &CallContext,
        request: impl FnOnce() -> PutBaseRequest,
    ) -> Result<Option<KnowledgeBase>, Failure> {
        let put = self.ask::<_, PutBaseResponse>(context, "PutBase", ("", ""), request);
        let Some(put) = put.await? else {
            return Ok(None);
        };
        let base = put.base.filter(|base| !base.kb_id.is_empty());
        base.map(Some)
            .ok_or_else(|| malformed(Service::KnowledgeBase))
    }

    /// Deletes a knowledge base.
    ///
    /// # Errors
    /// The backend's failure, or its refusal.
    pub async fn delete(
        &self,
        context: &CallContext,
        kb_id: &str,
        etag: &str,
    ) -> Result<Option<()>, Failure> {
        let request = || DeleteBaseRequest {
            kb_id: kb_id.to_owned(),
            expected_etag: etag.to_owned(),
        };
        let deleted =
            self.ask::<_, DeleteBaseResponse>(context, "DeleteBase", (kb_id, kb_id), request);
        Ok(deleted.await?.map(drop))
    }

    /// Lists at most `limit` entries of a knowledge base behind an id.
    ///
    /// # Errors
    /// The backend's failure, or its refusal.
    pub async fn entries(
        &self,
        context: &CallContext,
        kb_id: &str,
        (after, limit): (&str, usize),
    ) -> Result<Option<Vec<KnowledgeEntry>>, Failure> {
        let request = || ListEntriesRequest {
            kb_id: kb_id.to_owned(),
            after: after.to_owned(),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
        };
        let listed =
            self.ask::<_, ListEntriesResponse>(context, "ListEntries", (kb_id, kb_id), request);
        Ok(listed.await?.map(|mut listed| {
            listed.entries.truncate(limit);
            listed.entries
        }))
    }

    /// Finds entries in the knowledge bases that a reader may read.
    ///
    /// # Errors
    /// KNOWLEDGE_DENIED, or the backend's failure or refusal.
    pub async fn query(
        &self,
        context: &CallContext,
        reader: &Reader,
        (kb, query, limit): (&str, &str, u32),
    ) -> Result<Option<Vec<FoundEntry>>, Failure> {
        if !self.may_be_there() {
            return Ok(None);
        }
        let bases = reader.may_read(kb, |id| !id.is_empty())?;
        let request = || FindEntriesRequest {
            kb_ids: bases.iter().map(|(id, _)| id.clone()).collect(),
            query: query.to_owned(),
            limit,
        };
        let found = self.ask::<_, FindEntriesResponse>(context, "FindEntries", (kb, kb), request);
        let Some(found) = found.await? else {
            return Ok(None);
        };
        if let ([(id, _)], false, true) = (&*bases, kb.is_empty(), found.entries.is_empty()) {
            // A knowledge base that does not exist has no entries; a caller that names it learns that.
            self.entries(context, id, ("", 1)).await?;
        }
        // The backend is not trusted with the rights of the reader.
        let readable = found.entries.into_iter().filter_map(|entry| {
            let (_, name) = bases.iter().find(|(id, _)| *id == entry.kb_id)?;
            entry.is_enabled.then(|| FoundEntry {
                kb: name.clone(),
                entry: Some(entry),
            })
        });
        Ok(Some(readable.take(limit as usize).collect()))
    }

    /// Writes an entry into a knowledge base that a writer may write; its knowledge base is the writer's name for it.
    ///
    /// # Errors
    /// KNOWLEDGE_DENIED, or the backend's failure or refusal.
    pub async fn write(
        &self,
        context: &CallContext,
        writer: &Reader,
        request: &WriteKnowledgeEntryRequest,
    ) -> Result<Option<(WriteEntryResponse, bool)>, Failure> {
        if !self.may_be_there() {
            return Ok(None);
        }
        let (kb_id, is_enabled) = writer.may_write(&request.kb, |id| !id.is_empty())?;
        if let (Reader::Agent(..), false) = (writer, request.caiu_id.is_empty()) {
            match self.entry(context, &kb_id, &request.caiu_id).await? {
                None => return Ok(None),
                Some(before) => {
                    let author = before
                        .as_ref()
                        .map(|entry| entry.author_profile_id.as_str());
                    writer.check_replaces(&kb_id, &request.caiu_id, author)?;
                }
            }
        }
        let entry = || KnowledgeEntry {
            kb_id: kb_id.clone(),
            caiu_id: request.caiu_id.clone(),
            entry_type: request.entry_type.clone(),
            display_name: request.display_name.clone(),
            text: request.text.clone(),
            tags: request.tags.clone(),
            is_enabled,
            author_profile_id: writer.author().to_owned(),
            ..KnowledgeEntry::default()
        };
        // A broken connection to the backend is tried again.
        let request_id = match request.request_id.as_str() {
            "" => format!("tavern#{}", self.ids.next_uuid()),
            named => named.to_owned(),
        };
        let request = || WriteEntryRequest {
            entry: Some(entry()),
            request_id,
        };
        let written =
            self.ask::<_, WriteEntryResponse>(context, "WriteEntry", (&kb_id, &kb_id), request);
        match written.await? {
            None => Ok(None),
            Some(written) if written.caiu_id.is_empty() => Err(malformed(Service::KnowledgeBase)),
            Some(written) => Ok(Some((written, is_enabled))),
        }
    }

    /// Deletes an entry.
    ///
    /// # Errors
    /// The backend's failure, or its refusal.
    pub async fn delete_entry(
        &self,
        context: &CallContext,
        kb_id: &str,
        caiu_id: &str,
    ) -> Result<Option<()>, Failure> {
        let request = || DeleteEntryRequest {
            kb_id: kb_id.to_owned(),
            caiu_id: caiu_id.to_owned(),
        };
        let deleted =
            self.ask::<_, DeleteEntryResponse>(context, "DeleteEntry", (kb_id, caiu_id), request);
        Ok(deleted.await?.map(drop))
    }

    /// Returns the text of a goal with the id of its knowledge base, or none for a missing goal.
    ///
    /// # Errors
    /// The backend's failure.
    pub async fn goal_text(
        &self,
        context: &CallContext,
        profile: &Profile,
        goal: &GoalReference,
    ) -> Result<Option<Option<(String, String)>>, Failure> {
        for id in goal_bases(profile, goal) {
            match self.entry(context, &id, &goal.caiu_id).await? {
                None => return Ok(None),
                Some(Some(entry)) => return Ok(Some(Some((id, entry.text)))),
                Some(None) => {}
            }
        }
        Ok(match self.may_be_there() {
            true => Some(None),
            false => None,
        })
    }

    /// Returns an entry, or none for a missing one.
    async fn entry(
        &self,
        context: &CallContext,
        kb_id: &str,
        caiu_id: &str,
    ) -> Result<Option<Option<KnowledgeEntry>>, Failure> {
        let request = || GetEntryRequest {
            kb_id: kb_id.to_owned(),
            caiu_id: caiu_id.to_owned(),
        };
        let got = self.ask::<_, GetEntryResponse>(context, "GetEntry", (kb_id, caiu_id), request);
        match got.await {
            Ok(got) => Ok(got.map(|got| got.entry)),
            Err(failure) if failure.reason() == ErrorReason::KnowledgeBaseNotFound => {
                Ok(Some(None))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Asks the backend about a knowledge base, and an entry or the knowledge base itself that may be missing.
    async fn ask<R: Message, A: Message + Default>(
        &self,
        context: &CallContext,
        method: &str,
        named: (&str, &str),
        request: impl FnOnce() -> R,
    ) -> Result<Option<A>, Failure> {
        let method = (Service::KnowledgeBase, method);
        let answered = self.client.call(context, method, request).await?;
        answered
            .transpose()
            .map_err(|refusal| refused(&refusal, named))
    }
}

/// Returns the failure that a refusal of the backend is to the caller.
fn refused(refusal: &Refusal, (kb, id): (&str, &str)) -> Failure {
    let message = refusal.message.as_str();
    match refusal.code {
        Code::NotFound => missing(id, &[]),
        Code::PermissionDenied => denied(kb, message),
        Code::Aborted => Failure::etag_mismatch(""),
        Code::InvalidArgument => Failure::invalid_fields().violation("", message),
        Code::AlreadyExists => Failure::new(refusal.code, ErrorReason::RequestIdReused, message),
        Code::ResourceExhausted => Failure::new(refusal.code, ErrorReason::LimitExceeded, message),
        _ => malformed(Service::KnowledgeBase),
    }
}
