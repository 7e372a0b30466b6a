//! ProfileService: the agents.

use agent_domain::profile;
use agent_store::{
    profiles::{ChangeError, KnownProfile, Profiles, Put},
    revisions::DocumentKind,
};
use contracts::tavern::{
    agent::v1::{
        self as proto, BatchGetProfilesRequest, BatchGetProfilesResponse, DeleteProfileRequest,
        DeleteProfileResponse, GetProfileRequest, GetProfileResponse, ListProfileRevisionsRequest,
        ListProfileRevisionsResponse, ListProfilesRequest, ListProfilesResponse, PutProfileRequest,
        PutProfileResponse, ReloadProfilesRequest, ReloadProfilesResponse,
        profile_service_server::ProfileService,
    },
    common::v1::ErrorReason,
};
use core_types::{RequestId, page::distinct};
use grpc_kit::Failure;
use run_events::request_hash;
use tonic::{Code, Request, Response, Status};

use super::{
    documents::{diagnostics_of, diagnostics_to_proto, revision_to_proto, revisions_page},
    references::{Neighbours, Surroundings},
};
use crate::{
    error::{no_such_document, no_such_profile, store_failure},
    running_scenes::RunningScenes,
};

/// The field of a request that has a profile.
const PROFILE_JSON: &str = "profile_json";
/// The most bytes of the profiles of one batch.
const MAX_BATCH_BYTES: usize = 3 << 20;

/// The server side of ProfileService.
#[derive(Clone, Debug)]
pub struct ProfileRpc {
    profiles: Profiles,
    running_scenes: RunningScenes,
    surroundings: Surroundings,
}

impl ProfileRpc {
    /// Serves these profiles, and those of the agents of scenes that run.
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

    /// Writes a profile with the findings about it, as far as the answers of neighbours say.
    fn write(&self, known: &KnownProfile, neighbours: &Neighbours) -> proto::Profile {
        let profile = &known.profile;
        let model = profile.tavern.model.as_ref();
        let mut diagnostics = profile.diagnostics.clone();
        let named = profile.references();
        diagnostics.extend(self.surroundings.missing(&named, neighbours));
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
            deliberation_workflow_id: profile.deliberation.clone().unwrap_or_default(),
            revision: known.revision.as_ref().map(revision_to_proto),
        }
    }

    async fn at(&self, id: &str, revision: u64) -> Result<KnownProfile, Failure> {
        let known = match revision {
            0 => match (self.profiles.get(id), self.running_scenes.instance(id)) {
                (None, Some(known)) => {
                    let known = self.profiles.of_instance(&known.instance).await;
                    known.map_err(|error| store_failure(&error))?
                }
                (known, _) => known,
            },
            kept => {
                let kept = self.profiles.at(id, kept).await;
                kept.map_err(|error| store_failure(&error))?
            }
        };
        known.ok_or_else(|| match revision {
            0 => no_such_profile(id, &self.profiles),
            kept => no_such_document(DocumentKind::Profile, id, kept),
        })
    }

    async fn revisions(
        &self,
        request: ListProfileRevisionsRequest,
    ) -> Result<ListProfileRevisionsResponse, Failure> {
        let (id, kind) = (request.profile_id, DocumentKind::Profile);
        let place = (request.page_size, request.page_token.as_str());
        let page = revisions_page(self.profiles.revisions(), kind, &id, place).await?;
        let (revisions, next_page_token) =
            page.ok_or_else(|| no_such_profile(&id, &self.profiles))?;
        Ok(ListProfileRevisionsResponse {
            revisions,
            next_page_token,
        })
    }

    fn batch(&self, ids: Vec<String>) -> Result<BatchGetProfilesResponse, Failure> {
        let mut answer = BatchGetProfilesResponse::default();
        let mut bytes = 0;
        for id in distinct(ids) {
            match self.profiles.get(&id) {
                Some(known) => {
                    bytes += known.profile.text.len();
                    answer
                        .profiles
                        .push(self.write(&known, &Neighbours::default()));
                }
                None => answer.missing_profile_ids.push(id),
            }
        }
        match bytes > MAX_BATCH_BYTES {
            true => Err(Failure::limit_exceeded(
                "profile bytes",
                MAX_BATCH_BYTES,
                bytes,
            )),
            false => Ok(answer),
        }
    }
}

#[tonic::async_trait]
impl ProfileService for ProfileRpc {
    async fn get_profile(
        &self,
        request: Request<GetProfileRequest>,
    ) -> Result<Response<GetProfileResponse>, Status> {
        let request = request.into_inner();
        let known = self.at(&request.profile_id, request.revision).await?;
        let profile = Some(self.write(&known, &Neighbours::default()));
        Ok(Response::new(GetProfileResponse { profile }))
    }

    async fn list_profile_revisions(
        &self,
        request: Request<ListProfileRevisionsRequest>,
    ) -> Result<Response<ListProfileRevisionsResponse>, Status> {
        Ok(Response::new(self.revisions(request.into_inner()).await?))
    }

    async fn batch_get_profiles(
        &self,
        request: Request<BatchGetProfilesRequest>,
    ) -> Result<Response<BatchGetProfilesResponse>, Status> {
        let batch = self.batch(request.into_inner().profile_ids)?;
        Ok(Response::new(batch))
    }

    async fn list_profiles(
        &self,
        request: Request<ListProfilesRequest>,
    ) -> Result<Response<ListProfilesResponse>, Status> {
        const LIST: &str = "profiles";
        let request = request.into_inner();
        let after = super::page_after(LIST, &request.page_token)?;
        let size = core_types::page::page_size(request.page_size);
        let profiles = self.profiles.page(after.as_deref(), size + 1);
        let named = profiles.iter().flat_map(|known| known.profile.references());
        let neighbours = self.surroundings.ask(&named.collect::<Vec<_>>()).await;
        let write = |known: &KnownProfile| self.write(known, &neighbours);
        let profiles = profiles.iter().map(write).collect();
        let (profiles, next_page_token) =
            super::page(LIST, profiles, size, |profile: &proto::Profile| {
                profile.profile_id.clone()
            });
        let diagnostics = match after {
            None => diagnostics_to_proto(&self.profiles.left_out()),
            Some(_) => Vec::new(),
        };
        Ok(Response::new(ListProfilesResponse {
            profiles,
            next_page_token,
            diagnostics,
        }))
    }

    async fn put_profile(
        &self,
        request: Request<PutProfileRequest>,
    ) -> Result<Response<PutProfileResponse>, Status> {
        let request = request.into_inner();
        let body_hash = request_hash(&request);
        let request_id = request.request_id.as_str();
        if !request_id.is_empty() {
            RequestId::new(request_id).map_err(|error| {
                Failure::invalid_fields().violation("request_id", error.to_string())
            })?;
        }
        // What is wrong with the text itself is reported where it is stored.
        let mut neighbours = Neighbours::default();
        if let Ok(profile) = profile::read(&request.profile_json) {
            neighbours = self.surroundings.ask(&profile.references()).await;
            neighbours.check_deliberation(&profile, PROFILE_JSON)?;
        }
        let put = Put {
            text: &request.profile_json,
            etag: &request.etag,
            validate_only: request.validate_only,
            request: (!request_id.is_empty()).then_some((request_id, body_hash)),
        };
        let (known, replayed) = self
            .profiles
            .put(put)
            .await
            .map_err(|error| change_failure(error, "", request_id))?;
        Ok(Response::new(PutProfileResponse {
            profile: Some(self.write(&known, &neighbours)),
            replayed,
        }))
    }

    async fn delete_profile(
        &self,
        request: Request<DeleteProfileRequest>,
    ) -> Result<Response<DeleteProfileResponse>, Status> {
        let DeleteProfileRequest { profile_id, etag } = request.into_inner();
        self.profiles
            .delete(&profile_id, &etag)
            .await
            .map_err(|error| change_failure(error, &profile_id, ""))?;
        Ok(Response::new(DeleteProfileResponse {}))
    }

    async fn reload_profiles(
        &self,
        _: Request<ReloadProfilesRequest>,
    ) -> Result<Response<ReloadProfilesResponse>, Status> {
        let reloaded = self.profiles.reload().await.map_err(|error| {
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
            diagnostics: diagnostics_to_proto(&self.profiles.left_out()),
        }))
    }
}

fn change_failure(error: ChangeError, id: &str, request_id: &str) -> Failure {
    match error {
        ChangeError::Put(error) => error.into_failure(PROFILE_JSON),
        ChangeError::RequestIdReused => Failure::new(
            Code::AlreadyExists,
            ErrorReason::RequestIdReused,
            "the request id was used before with another body",
        )
        .metadata("request_id", request_id),
        ChangeError::NotFound => no_such_document(DocumentKind::Profile, id, 0),
        ChangeError::IsFile => {
            let problem = "is the id of a file, which is never deleted; delete the file instead";
            Failure::invalid_fields().violation("profile_id", problem)
        }
    }
}
