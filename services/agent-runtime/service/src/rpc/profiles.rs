//! ProfileService: the agents.

use agent_domain::profile;
use agent_store::profiles::{KnownProfile, Profiles, of_instance};
use contracts::tavern::{
    agent::v1::{
        self as proto, DeleteProfileRequest, DeleteProfileResponse, GetProfileRequest,
        GetProfileResponse, ListProfileRevisionsRequest, ListProfileRevisionsResponse,
        ListProfilesRequest, ListProfilesResponse, PutProfileRequest, PutProfileResponse,
        ReloadProfilesRequest, ReloadProfilesResponse, profile_service_server::ProfileService,
    },
    common::v1::ErrorReason,
};
use core_types::{RequestId, Tenant};
use documents::Put;
use grpc_kit::{CallContext, Failure};
use run_events::request_hash;
use tonic::{Code, Request, Response, Status};

use super::{
    documents::{
        change_failure, diagnostics_of, diagnostics_to_proto, revision_to_proto, revisions_page,
    },
    references::{Neighbours, Surroundings},
};
use crate::{
    error::{no_such_document, no_such_profile, store_failure},
    running_scenes::RunningScenes,
};

/// The field of a request that has a profile.
const PROFILE_JSON: &str = "profile_json";
/// The kind of document.
const PROFILE: &str = "profile";

/// The server side of ProfileService.
#[derive(Clone, Debug)]
pub struct ProfileRpc {
    profiles: Profiles,
    running_scenes: RunningScenes,
    surroundings: Surroundings,
}

impl ProfileRpc {
    /// Serves these profiles, and the profiles of the agents of running scenes.
    pub fn new(
        profiles: Profiles,
        running_scenes: RunningScenes,
        surroundings: Surroundings,
    ) -> Self {
        Self {
            profiles,
            running_scenes,
            surroundings,
        }
    }

    /// Writes a profile with the findings about it, as far as the neighbours have answered.
    fn write(
        &self,
        tenant: Tenant,
        known: &KnownProfile,
        neighbours: &Neighbours,
    ) -> proto::Profile {
        let profile = &known.document;
        let model = profile.tavern.model.as_ref();
        let mut diagnostics = profile.diagnostics.clone();
        let named = profile.references();
        diagnostics.extend(self.surroundings.missing(tenant, &named, neighbours));
        diagnostics.extend(neighbours.of_deliberation(profile));
        proto::Profile {
            profile_id: profile.id.to_string(),
            name: profile.name.clone(),
            description: profile.description.clone(),
            tool_ids_inventory: profile.tool_ids.clone(),
            model: model.unwrap_or(&self.surroundings.default_model).clone(),
            profile_json: profile.text.clone(),
            diagnostics: diagnostics_of(&diagnostics, known.revision.as_ref()),
            etag: profile.etag(),
            from_file: known.from_file,
            shared: known.is_shared,
            deliberation_workflow_id: profile.deliberation.clone().unwrap_or_default(),
            revision: known.revision.as_ref().map(revision_to_proto),
        }
    }

    /// Writes a profile with the findings of this service about it.
    async fn write_alone(&self, tenant: Tenant, known: &KnownProfile) -> proto::Profile {
        let named = known.document.references();
        let own = self.surroundings.own(tenant, &named).await;
        self.write(tenant, known, &own)
    }

    async fn at(
        &self,
        context: &CallContext,
        id: &str,
        revision: u64,
    ) -> Result<KnownProfile, Failure> {
        let tenant = context.tenant();
        let found = self.profiles.at(tenant, id, revision).await;
        let mut known = found.map_err(|error| store_failure(&error))?;
        if revision == 0
            && known.is_none()
            && let Some(agent) = self.running_scenes.instance(context, id)
        {
            let found = of_instance(&self.profiles, tenant, &agent.instance).await;
            known = found.map_err(|error| store_failure(&error))?;
        }
        match (known, revision) {
            (Some(known), _) => Ok(known),
            (None, 0) => Err(no_such_profile(tenant, id, &self.profiles).await),
            (None, kept) => Err(no_such_document(PROFILE, id, kept)),
        }
    }

    async fn revisions(
        &self,
        tenant: Tenant,
        request: ListProfileRevisionsRequest,
    ) -> Result<ListProfileRevisionsResponse, Failure> {
        let id = request.profile_id;
        let place = (request.page_size, request.page_token.as_str());
        let page = revisions_page(&self.profiles, tenant, &id, place).await?;
        let Some((revisions, next_page_token)) = page else {
            return Err(no_such_profile(tenant, &id, &self.profiles).await);
        };
        Ok(ListProfileRevisionsResponse {
            revisions,
            next_page_token,
        })
    }
}

#[tonic::async_trait]
impl ProfileService for ProfileRpc {
    async fn get_profile(
        &self,
        request: Request<GetProfileRequest>,
    ) -> Result<Response<GetProfileResponse>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let known = self.at(&context, &request.profile_id, request.revision);
        let known = known.await?;
        let profile = Some(self.write_alone(context.tenant(), &known).await);
        Ok(Response::new(GetProfileResponse { profile }))
    }

    async fn list_profile_revisions(
        &self,
        request: Request<ListProfileRevisionsRequest>,
    ) -> Result<Response<ListProfileRevisionsResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let revisions = self.revisions(tenant, request.into_inner()).await?;
        Ok(Response::new(revisions))
    }

    async fn list_profiles(
        &self,
        request: Request<ListProfilesRequest>,
    ) -> Result<Response<ListProfilesResponse>, Status> {
        let context = CallContext::of(&request);
        let tenant = context.tenant();
        let request = request.into_inner();
        let profiles = &self.profiles;
        let listed = profiles.list(tenant, &request.page_token, request.page_size);
        let listed = listed.await?;
        let named = listed.entries.iter();
        let named = named.flat_map(|known| known.document.references());
        let named: Vec<_> = named.collect();
        let neighbours = self.surroundings.ask(&context, &named).await;
        let write = |known: &KnownProfile| self.write(tenant, known, &neighbours);
        let diagnostics = match listed.is_first {
            true => diagnostics_to_proto(&self.profiles.left_out(tenant)),
            false => Vec::new(),
        };
        Ok(Response::new(ListProfilesResponse {
            profiles: listed.entries.iter().map(write).collect(),
            next_page_token: listed.next_page_token,
            diagnostics,
        }))
    }

    async fn put_profile(
        &self,
        request: Request<PutProfileRequest>,
    ) -> Result<Response<PutProfileResponse>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let body_hash = request_hash(&context, &request);
        let request_id = request.request_id.as_str();
        if !request_id.is_empty() {
            RequestId::new(request_id).map_err(|error| {
                Failure::invalid_fields().violation("request_id", error.to_string())
            })?;
        }
        // Problems of the text itself are reported when it is stored.
        let mut neighbours = Neighbours::default();
        if let Ok(profile) = profile::read(&request.profile_json) {
            let named = profile.references();
            neighbours = self.surroundings.ask(&context, &named).await;
            neighbours.check_deliberation(&profile, PROFILE_JSON)?;
        }
        let put = Put {
            id: "",
            text: &request.profile_json,
            etag: &request.etag,
            validate_only: request.validate_only,
            request: documents::Request::of("PutProfile", request_id, body_hash),
        };
        let tenant = context.tenant();
        let (known, replayed) = self
            .profiles
            .put(tenant, put)
            .await
            .map_err(|error| change_failure(PROFILE, "", request_id, error))?;
        Ok(Response::new(PutProfileResponse {
            profile: Some(self.write(tenant, &known, &neighbours)),
            replayed,
        }))
    }

    async fn delete_profile(
        &self,
        request: Request<DeleteProfileRequest>,
    ) -> Result<Response<DeleteProfileResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let DeleteProfileRequest { profile_id, etag } = request.into_inner();
        self.profiles
            .delete(tenant, &profile_id, &etag)
            .await
            .map_err(|error| change_failure(PROFILE, &profile_id, "", error))?;
        Ok(Response::new(DeleteProfileResponse {}))
    }

    async fn reload_profiles(
        &self,
        _: Request<ReloadProfilesRequest>,
    ) -> Result<Response<ReloadProfilesResponse>, Status> {
        let reloaded = self.profiles.reload().await;
        let reloaded = reloaded.map_err(|error| store_failure(&error))?;
        let reloaded = reloaded.map_err(|error| {
            tracing::error!(%error, "the directory of agent profiles cannot be listed");
            Failure::new(
                Code::Unavailable,
                ErrorReason::StorageUnavailable,
                "the directory of profiles cannot be listed; the profiles are as they were",
            )
        })?;
        Ok(Response::new(ReloadProfilesResponse {
            added_profile_ids: reloaded.added,
            changed_profile_ids: reloaded.changed,
            removed_profile_ids: reloaded.removed,
            diagnostics: diagnostics_to_proto(&self.profiles.left_out(Tenant::DEFAULT)),
        }))
    }
}
