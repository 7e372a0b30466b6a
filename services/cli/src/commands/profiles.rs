//! `tavern profiles`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use contracts::tavern::agent::v1::profile_service_client::ProfileServiceClient;
use contracts::tavern::agent::v1::{
    GetProfileRequest, ListProfileRevisionsRequest, ListProfilesRequest, Profile,
};

use super::{Remote, documents, refusal};

/// The commands about profiles.
#[derive(Subcommand)]
pub enum Command {
    /// List profiles by id.
    List,
    /// Print a profile as it was written.
    Show {
        /// The id of the profile.
        profile_id: String,
        /// The revision. Default: the revision in force.
        #[arg(long)]
        revision: Option<u64>,
    },
    /// List the revisions of a profile that are kept, the newest first.
    Revisions {
        /// The id of the profile.
        profile_id: String,
    },
}

type Profiles = ProfileServiceClient<grpc_kit::Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut profiles = Profiles::new(remote.connect()?);
        match self {
            Self::List => list(&mut profiles, remote.json).await?,
            Self::Show {
                profile_id,
                revision,
            } => {
                let request = GetProfileRequest {
                    profile_id,
                    revision: revision.unwrap_or_default(),
                };
                let found = profiles.get_profile(request).await;
                let found = found.map_err(|status| refusal(&status))?.into_inner();
                let profile = found.profile.context("the answer has no profile")?;
                documents::show(remote.json, &profile, &profile.profile_json)?;
            }
            Self::Revisions { profile_id } => {
                documents::print_revisions(remote.json, async |page_token| {
                    let request = ListProfileRevisionsRequest {
                        profile_id: profile_id.clone(),
                        page_token,
                        ..ListProfileRevisionsRequest::default()
                    };
                    let page = profiles.list_profile_revisions(request).await?.into_inner();
                    Ok((page.revisions, page.next_page_token))
                })
                .await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(profiles: &mut Profiles, as_json: bool) -> anyhow::Result<()> {
    let row = |profile: &Profile| {
        let revision = profile.revision.as_ref();
        [
            profile.profile_id.clone(),
            profile.name.clone(),
            profile.model.clone(),
            documents::source(profile.from_file, profile.shared),
            revision.map_or_else(String::new, |revision| revision.revision.to_string()),
        ]
    };
    let head = ["PROFILE", "NAME", "MODEL", "SOURCE", "REVISION"];
    documents::print_all(as_json, head, row, async |page_token| {
        let request = ListProfilesRequest {
            page_token,
            ..ListProfilesRequest::default()
        };
        let page = profiles.list_profiles(request).await?.into_inner();
        Ok((page.profiles, page.diagnostics, page.next_page_token))
    })
    .await
}
