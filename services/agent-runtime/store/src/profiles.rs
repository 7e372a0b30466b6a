//! The agent profiles.

use agent_domain::{
    document::DocumentError,
    profile::{self, MAX_PROFILE_BYTES, Profile},
    scene::{Instance, Scene},
};
use core_types::Tenant;
use documents::{Documents, Kind, Known, StoreError};
use run_events::RunMeta;
use serde_json::Value;

/// The profiles: put by clients, or read from `*.json` and `*/agent_profile.json` of a directory.
pub type Profiles = Documents<ProfileKind>;

/// A profile in force.
pub type KnownProfile = Known<Profile>;

/// Agent profiles as documents.
#[derive(Clone, Copy, Debug)]
pub struct ProfileKind;

impl Kind for ProfileKind {
    type Document = Profile;
    type Invalid = DocumentError;

    const NAME: &'static str = "profile";
    const MAX_BYTES: usize = MAX_PROFILE_BYTES;
    const NESTED: &'static str = "agent_profile.json";
    const REVISIONS: bool = true;
    const KEEPS_LAST_GOOD: bool = true;

    fn id(profile: &Profile) -> &str {
        profile.id.as_str()
    }

    fn text(profile: &Profile) -> &str {
        &profile.text
    }

    fn etag(profile: &Profile) -> String {
        profile.etag()
    }

    fn label(profile: &Profile) -> &str {
        &profile.version
    }

    fn read(&self, _id: &str, text: &str) -> Result<Profile, DocumentError> {
        profile::read(text)
    }

    fn unreadable(&self, problem: String) -> DocumentError {
        DocumentError::whole(problem)
    }

    fn remark(&self, path: &str, profile: &Profile) {
        for finding in &profile.diagnostics {
            tracing::warn!(path, id = %profile.id, %finding, "an agent profile asks for something that has no effect");
        }
    }

    fn used(&self, id: &str, meta: &RunMeta) -> Vec<u64> {
        let own = own_revision(id, meta, "profile_revision");
        let pinned = meta.data["scene"].as_str().map(|scene| pins(scene, id));
        own.into_iter().chain(pinned.unwrap_or_default()).collect()
    }
}

/// Returns the revision of a document in the metadata of its run.
pub(crate) fn own_revision(id: &str, meta: &RunMeta, key: &str) -> Option<u64> {
    let own = (meta.subject == id).then(|| meta.data[key].as_u64());
    own.flatten()
}

/// Returns the revisions of a profile that a scene pins for its agents.
fn pins(scene: &str, profile_id: &str) -> Vec<u64> {
    let scene: Value = serde_json::from_str(scene).unwrap_or_default();
    let instances = scene["agent_instances"].as_array().into_iter().flatten();
    let of_profile = instances.filter(|instance| instance["profile_id"] == profile_id);
    let pinned = of_profile.filter_map(|instance| {
        instance["custom_runtime_config"]["tavern"]["profile_revision"].as_u64()
    });
    pinned.collect()
}

/// Returns the profile of an agent of a tenant's scene: the pinned revision, else the newest (rule G104).
///
/// # Errors
/// A store that does not work, or a revision that can no longer be read.
pub async fn of_instance(
    profiles: &Profiles,
    tenant: Tenant,
    instance: &Instance,
) -> Result<Option<KnownProfile>, StoreError> {
    let pinned = instance.tavern.profile_revision.unwrap_or(0);
    profiles.at(tenant, &instance.profile_id, pinned).await
}

/// Returns the profiles of the agents of a tenant's scene, in their order; none for a missing profile.
///
/// # Errors
/// A store that does not work, or a revision that can no longer be read.
pub async fn of_scene(
    profiles: &Profiles,
    tenant: Tenant,
    scene: &Scene,
) -> Result<Vec<Option<KnownProfile>>, StoreError> {
    let mut found = Vec::new();
    for instance in &scene.instances {
        found.push(of_instance(profiles, tenant, instance).await?);
    }
    Ok(found)
}
