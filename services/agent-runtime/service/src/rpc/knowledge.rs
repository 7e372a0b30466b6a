//! KnowledgeService: the knowledge bases that agents read and extend.

use agent_domain::knowledge::{self, Entry, MAX_TEXT_BYTES};
use agent_store::{
    knowledge::{NewEntry, Reader, missing},
    profiles::Profiles,
    store::{EntryRow, KnowledgeRow, NamedRequest},
};
use contracts::tavern::agent::v1::{
    self as proto, DeleteKnowledgeBaseRequest, DeleteKnowledgeBaseResponse,
    DeleteKnowledgeEntryRequest, DeleteKnowledgeEntryResponse, FoundEntry, KnowledgeBase,
    KnowledgeEntry, ListKnowledgeBasesRequest, ListKnowledgeBasesResponse,
    ListKnowledgeEntriesRequest, ListKnowledgeEntriesResponse, PutKnowledgeBaseRequest,
    PutKnowledgeBaseResponse, QueryKnowledgeRequest, QueryKnowledgeResponse,
    WriteKnowledgeEntryRequest, WriteKnowledgeEntryResponse,
    knowledge_service_server::KnowledgeService,
};
use contracts::tavern::plugin::v1::PutBaseRequest;
use documents::ChangeError;
use grpc_kit::{CallContext, Failure};
use run_events::{request_hash, timestamp_to_proto};
use tonic::{Request, Response, Status};

use super::documents::{change_failure, diagnostics_to_proto};
use crate::{
    error::{no_such_profile, store_failure},
    knowledge_override::KnowledgeBases,
    states::States,
};

/// The default number of entries that a query finds.
const DEFAULT_FOUND: u32 = 5;
/// The most entries on a page, each of which may be large.
const MAX_PAGE: usize = 50;

/// The server side of KnowledgeService.
#[derive(Clone, Debug)]
pub struct KnowledgeRpc {
    knowledge: KnowledgeBases,
    profiles: Profiles,
    states: States,
}

impl KnowledgeRpc {
    /// Serves these knowledge bases, unless a backend stands in.
    pub fn new(knowledge: KnowledgeBases, profiles: Profiles, states: States) -> Self {
        Self {
            knowledge,
            profiles,
            states,
        }
    }

    /// Returns the reader: the agent of a conversation, or an operator.
    async fn reader(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Reader, Failure> {
        let tenant = context.tenant();
        if conversation_id.is_empty() {
            return Ok(Reader::Operator(tenant));
        }
        let owner = self.states.owner(context, conversation_id, "").await?;
        let id = &owner.profile_id;
        let known = self.profiles.get(tenant, id).await;
        match known.map_err(|error| store_failure(&error))? {
            Some(known) => Ok(Reader::Agent(tenant, known.document)),
            None => Err(no_such_profile(tenant, id, &self.profiles).await),
        }
    }

    async fn put(
        &self,
        context: &CallContext,
        request: PutKnowledgeBaseRequest,
    ) -> Result<PutKnowledgeBaseResponse, Failure> {
        let PutKnowledgeBaseRequest {
            knowledge_json,
            etag,
            validate_only,
        } = request;
        let tenant = context.tenant();
        let base = knowledge::read(&knowledge_json).map_err(ChangeError::Invalid);
        let base = base.map_err(|error| change_failure("knowledge", "", "", error))?;
        let request = || request_of_base(&base, &etag, validate_only);
        if let Some(base) = self.knowledge.of_backend.put(context, request).await? {
            return Ok(PutKnowledgeBaseResponse {
                knowledge_base: Some(base),
            });
        }
        let put = self.knowledge.own.put(tenant, base, &etag, validate_only);
        let row = put.await;
        let row = row.map_err(|error| change_failure("knowledge", "", "", error))?;
        Ok(PutKnowledgeBaseResponse {
            knowledge_base: Some(base_to_proto(row)),
        })
    }

    async fn list(
        &self,
        context: &CallContext,
        request: ListKnowledgeBasesRequest,
    ) -> Result<ListKnowledgeBasesResponse, Failure> {
        let tenant = context.tenant();
        let list = grpc_kit::list_of_tenant(tenant, "knowledge-bases");
        let after = super::page_after(&list, &request.page_token)?;
        let size = core_types::page::page_size(request.page_size);
        let behind = after.as_deref().unwrap_or_default();
        let of_backend = self
            .knowledge
            .of_backend
            .bases(context, behind, size + 1)
            .await?;
        let is_of_backend = of_backend.is_some();
        let bases = match of_backend {
            Some(bases) => bases,
            None => {
                let all = self.knowledge.own.all(tenant).await;
                let all = all.map_err(|error| store_failure(&error))?.into_iter();
                let later = all.filter(|row| after.as_ref().is_none_or(|after| row.id > *after));
                later.take(size + 1).map(base_to_proto).collect()
            }
        };
        let (knowledge_bases, next_page_token) =
            super::page(&list, bases, size, |base: &KnowledgeBase| {
                base.kb_id.clone()
            });
        Ok(ListKnowledgeBasesResponse {
            knowledge_bases,
            next_page_token,
            diagnostics: match after {
                None if !is_of_backend => {
                    diagnostics_to_proto(&self.knowledge.own.left_out(tenant))
                }
                _ => Vec::new(),
            },
        })
    }

    async fn entries(
        &self,
        context: &CallContext,
        request: ListKnowledgeEntriesRequest,
    ) -> Result<ListKnowledgeEntriesResponse, Failure> {
        let tenant = context.tenant();
        let list = format!("knowledge-entries\0{}", request.kb_id);
        let list = grpc_kit::list_of_tenant(tenant, &list);
        let after = super::page_after(&list, &request.page_token)?;
        let after = after.unwrap_or_default();
        let size = core_types::page::page_size(request.page_size).min(MAX_PAGE);
        let kb_id = &request.kb_id;
        let page = (after.as_str(), size + 1);
        let entries = match self
            .knowledge
            .of_backend
            .entries(context, kb_id, page)
            .await?
        {
            Some(entries) => entries,
            None => {
                let entries = self.knowledge.own.entries(tenant, kb_id, &after, size + 1);
                entries.await?.into_iter().map(entry_to_proto).collect()
            }
        };
        let (entries, next_page_token) =
            super::page(&list, entries, size, |entry: &KnowledgeEntry| {
                entry.caiu_id.clone()
            });
        Ok(ListKnowledgeEntriesResponse {
            entries,
            next_page_token,
        })
    }

    async fn query(
        &self,
        context: &CallContext,
        request: QueryKnowledgeRequest,
    ) -> Result<QueryKnowledgeResponse, Failure> {
        let reader = self.reader(context, &request.conversation_id).await?;
        let limit = match request.limit {
            0 => DEFAULT_FOUND,
            limit => limit,
        };
        let asked = (request.kb.as_str(), request.query.as_str(), limit);
        if let Some(entries) = self
            .knowledge
            .of_backend
            .query(context, &reader, asked)
            .await?
        {
            return Ok(QueryKnowledgeResponse { entries });
        }
        let found = self
            .knowledge
            .own
            .query(&reader, &request.kb, &request.query, limit);
        let found = found.await?.into_iter().map(|(row, kb)| FoundEntry {
            entry: Some(entry_to_proto(row)),
            kb,
        });
        Ok(QueryKnowledgeResponse {
            entries: found.collect(),
        })
    }

    async fn write(
        &self,
        context: &CallContext,
        request: WriteKnowledgeEntryRequest,
    ) -> Result<WriteKnowledgeEntryResponse, Failure> {
        let body = request_hash(context, &request);
        super::check_request_id(&request.request_id)?;
        if request.text.len() > MAX_TEXT_BYTES {
            let problem = format!("exceeds {MAX_TEXT_BYTES} bytes; shorten it");
            return Err(Failure::invalid_fields().violation("text", problem));
        }
        let writer = self.reader(context, &request.conversation_id).await?;
        let of_backend = &self.knowledge.of_backend;
        let written = of_backend.write(context, &writer, &request).await?;
        if let Some((written, is_enabled)) = written {
            return Ok(WriteKnowledgeEntryResponse {
                caiu_id: written.caiu_id,
                version: written.version,
                is_enabled,
                replayed: written.replayed,
            });
        }
        let named = |id: String| NamedRequest { id, body };
        let new = NewEntry {
            kb: request.kb,
            entry: Entry {
                caiu_id: request.caiu_id,
                entry_type: request.entry_type,
                display_name: request.display_name,
                text: request.text,
                tags: request.tags,
                is_enabled: true,
            },
            request: Some(request.request_id)
                .filter(|id| !id.is_empty())
                .map(named),
        };
        let (written, replayed) = self.knowledge.own.write(&writer, new).await?;
        Ok(WriteKnowledgeEntryResponse {
            caiu_id: written.caiu_id,
            version: written.version,
            is_enabled: written.is_enabled,
            replayed,
        })
    }
}

/// Returns the request that stores a knowledge base at a backend.
fn request_of_base(
    base: &knowledge::KnowledgeBase,
    expected_etag: &str,
    validate_only: bool,
) -> PutBaseRequest {
    let entries = base.entries.iter().map(|entry| proto::KnowledgeEntry {
        caiu_id: entry.caiu_id.clone(),
        entry_type: entry.entry_type.clone(),
        display_name: entry.display_name.clone(),
        text: entry.text.clone(),
        tags: entry.tags.clone(),
        is_enabled: entry.is_enabled,
        ..proto::KnowledgeEntry::default()
    });
    PutBaseRequest {
        entries: entries.collect(),
        base: Some(KnowledgeBase {
            kb_id: base.id.clone(),
            name: base.name.clone(),
            description: base.description.clone(),
            etag: base.etag.clone(),
            ..KnowledgeBase::default()
        }),
        expected_etag: expected_etag.to_owned(),
        validate_only,
    }
}

fn base_to_proto(row: KnowledgeRow) -> KnowledgeBase {
    KnowledgeBase {
        kb_id: row.id,
        name: row.name,
        description: row.description,
        entry_count: row.entries,
        etag: row.etag,
        from_file: row.from_file,
        shared: row.is_shared,
    }
}

fn entry_to_proto(row: EntryRow) -> proto::KnowledgeEntry {
    proto::KnowledgeEntry {
        caiu_id: row.entry.caiu_id,
        kb_id: row.kb_id,
        entry_type: row.entry.entry_type,
        display_name: row.entry.display_name,
        text: row.entry.text,
        tags: row.entry.tags,
        is_enabled: row.entry.is_enabled,
        author_profile_id: row.author,
        version: row.version,
        update_time: Some(timestamp_to_proto(row.updated)),
    }
}

#[tonic::async_trait]
impl KnowledgeService for KnowledgeRpc {
    async fn put_knowledge_base(
        &self,
        request: Request<PutKnowledgeBaseRequest>,
    ) -> Result<Response<PutKnowledgeBaseResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.put(&context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn list_knowledge_bases(
        &self,
        request: Request<ListKnowledgeBasesRequest>,
    ) -> Result<Response<ListKnowledgeBasesResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.list(&context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn delete_knowledge_base(
        &self,
        request: Request<DeleteKnowledgeBaseRequest>,
    ) -> Result<Response<DeleteKnowledgeBaseResponse>, Status> {
        let context = CallContext::of(&request);
        let tenant = context.tenant();
        let DeleteKnowledgeBaseRequest { kb_id: id, etag } = request.into_inner();
        if self
            .knowledge
            .of_backend
            .delete(&context, &id, &etag)
            .await?
            .is_some()
        {
            return Ok(Response::new(DeleteKnowledgeBaseResponse {}));
        }
        let deleted = self.knowledge.own.delete(tenant, &id, &etag).await;
        let gone = || missing(&id, &[]);
        let refused = deleted
            .map_err(|error| error.into_failure("kb_id", "", |_| Failure::invalid_fields(), gone));
        match refused? {
            true => Ok(Response::new(DeleteKnowledgeBaseResponse {})),
            false => Err(missing(&id, &[]).into()),
        }
    }

    async fn list_knowledge_entries(
        &self,
        request: Request<ListKnowledgeEntriesRequest>,
    ) -> Result<Response<ListKnowledgeEntriesResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.entries(&context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn query_knowledge(
        &self,
        request: Request<QueryKnowledgeRequest>,
    ) -> Result<Response<QueryKnowledgeResponse>, Status> {
        let context = CallContext::of(&request);
        let found = self.query(&context, request.into_inner()).await?;
        Ok(Response::new(found))
    }

    async fn write_knowledge_entry(
        &self,
        request: Request<WriteKnowledgeEntryRequest>,
    ) -> Result<Response<WriteKnowledgeEntryResponse>, Status> {
        let context = CallContext::of(&request);
        let written = self.write(&context, request.into_inner()).await?;
        Ok(Response::new(written))
    }

    async fn delete_knowledge_entry(
        &self,
        request: Request<DeleteKnowledgeEntryRequest>,
    ) -> Result<Response<DeleteKnowledgeEntryResponse>, Status> {
        let context = CallContext::of(&request);
        let tenant = context.tenant();
        let DeleteKnowledgeEntryRequest { kb_id, caiu_id } = request.into_inner();
        let of_backend = self
            .knowledge
            .of_backend
            .delete_entry(&context, &kb_id, &caiu_id);
        if of_backend.await?.is_some() {
            return Ok(Response::new(DeleteKnowledgeEntryResponse {}));
        }
        let deleted = self.knowledge.own.delete_entry(tenant, &kb_id, &caiu_id);
        match deleted.await? {
            true => Ok(Response::new(DeleteKnowledgeEntryResponse {})),
            false => Err(missing(&caiu_id, &[]).into()),
        }
    }
}
