//! KnowledgeService: the knowledge bases that agents read and extend.

use agent_domain::knowledge::{Entry, MAX_TEXT_BYTES};
use agent_store::{
    knowledge::{Knowledge, NewEntry, Reader, missing},
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
use core_types::Tenant;
use grpc_kit::{CallContext, Failure};
use run_events::{request_hash, timestamp_to_proto};
use tonic::{Request, Response, Status};

use super::documents::{change_failure, diagnostics_to_proto};
use crate::{
    error::{no_such_profile, store_failure},
    states::States,
};

/// The default number of entries that a query finds.
const DEFAULT_FOUND: u32 = 5;
/// The most entries on a page, each of which may be large.
const MAX_PAGE: usize = 50;

/// The server side of KnowledgeService.
#[derive(Clone, Debug)]
pub struct KnowledgeRpc {
    knowledge: Knowledge,
    profiles: Profiles,
    states: States,
}

impl KnowledgeRpc {
    /// Serves these knowledge bases.
    pub fn new(knowledge: Knowledge, profiles: Profiles, states: States) -> Self {
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
        tenant: Tenant,
        request: PutKnowledgeBaseRequest,
    ) -> Result<PutKnowledgeBaseResponse, Failure> {
        let PutKnowledgeBaseRequest {
            knowledge_json,
            etag,
            validate_only,
        } = request;
        let put = self
            .knowledge
            .put(tenant, &knowledge_json, &etag, validate_only);
        let row = put.await;
        let row = row.map_err(|error| change_failure("knowledge", "", "", error))?;
        Ok(PutKnowledgeBaseResponse {
            knowledge_base: Some(base_to_proto(row)),
        })
    }

    async fn list(
        &self,
        tenant: Tenant,
        request: ListKnowledgeBasesRequest,
    ) -> Result<ListKnowledgeBasesResponse, Failure> {
        let list = grpc_kit::list_of_tenant(tenant, "knowledge-bases");
        let after = super::page_after(&list, &request.page_token)?;
        let size = core_types::page::page_size(request.page_size);
        let all = self.knowledge.all(tenant).await;
        let all = all.map_err(|error| store_failure(&error))?;
        let later = all
            .into_iter()
            .filter(|row| after.as_ref().is_none_or(|after| row.id > *after));
        let bases = later.take(size + 1).map(base_to_proto).collect();
        let (knowledge_bases, next_page_token) =
            super::page(&list, bases, size, |base: &KnowledgeBase| {
                base.kb_id.clone()
            });
        Ok(ListKnowledgeBasesResponse {
            knowledge_bases,
            next_page_token,
            diagnostics: match after {
                None => diagnostics_to_proto(&self.knowledge.left_out(tenant)),
                Some(_) => Vec::new(),
            },
        })
    }

    async fn entries(
        &self,
        tenant: Tenant,
        request: ListKnowledgeEntriesRequest,
    ) -> Result<ListKnowledgeEntriesResponse, Failure> {
        let list = format!("knowledge-entries\0{}", request.kb_id);
        let list = grpc_kit::list_of_tenant(tenant, &list);
        let after = super::page_after(&list, &request.page_token)?;
        let after = after.unwrap_or_default();
        let size = core_types::page::page_size(request.page_size).min(MAX_PAGE);
        let kb_id = &request.kb_id;
        let entries = self.knowledge.entries(tenant, kb_id, &after, size + 1);
        let entries = entries.await?.into_iter().map(entry_to_proto).collect();
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
        let found = self
            .knowledge
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
        let (written, replayed) = self.knowledge.write(&writer, new).await?;
        Ok(WriteKnowledgeEntryResponse {
            caiu_id: written.caiu_id,
            version: written.version,
            is_enabled: written.is_enabled,
            replayed,
        })
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
        let tenant = CallContext::of(&request).tenant();
        let answer = self.put(tenant, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn list_knowledge_bases(
        &self,
        request: Request<ListKnowledgeBasesRequest>,
    ) -> Result<Response<ListKnowledgeBasesResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let answer = self.list(tenant, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn delete_knowledge_base(
        &self,
        request: Request<DeleteKnowledgeBaseRequest>,
    ) -> Result<Response<DeleteKnowledgeBaseResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let DeleteKnowledgeBaseRequest { kb_id: id, etag } = request.into_inner();
        let deleted = self.knowledge.delete(tenant, &id, &etag).await;
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
        let tenant = CallContext::of(&request).tenant();
        let answer = self.entries(tenant, request.into_inner()).await?;
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
        let tenant = CallContext::of(&request).tenant();
        let DeleteKnowledgeEntryRequest { kb_id, caiu_id } = request.into_inner();
        let deleted = self.knowledge.delete_entry(tenant, &kb_id, &caiu_id);
        match deleted.await? {
            true => Ok(Response::new(DeleteKnowledgeEntryResponse {})),
            false => Err(missing(&caiu_id, &[]).into()),
        }
    }
}
