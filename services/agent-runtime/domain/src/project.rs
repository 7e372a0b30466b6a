//! Projects: ComfyTavern's `project.json`, unmodified (rule G101). A project names documents that
//! belong together, by their ids.

use serde_json::{Map, Value};

use super::document::{self, DocumentError, DocumentReader};

/// The largest project that is read, in bytes.
pub(crate) const MAX_PROJECT_BYTES: usize = 1 << 20;
/// The most profiles, or knowledge bases, of a project.
const MAX_NAMED: usize = 1_000;

/// A project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// The id.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The description; may be empty.
    pub description: String,
    /// The author's label of the revision; may be empty.
    pub version: String,
    /// The scene that it begins with; may be empty.
    pub default_scene_id: String,
    /// The profiles that it names.
    pub profile_ids: Vec<String>,
    /// The knowledge bases that it names.
    pub kb_ids: Vec<String>,
    /// The project as it was written.
    pub text: String,
}

impl Project {
    /// Returns the etag, which changes with the text.
    pub fn etag(&self) -> String {
        document::etag(&self.text)
    }
}

/// Reads a project.
///
/// # Errors
/// [`DocumentError`] with all problems.
pub fn read(text: &str) -> Result<Project, DocumentError> {
    let limits = json_schema::JsonLimits {
        max_bytes: MAX_PROJECT_BYTES,
        ..Default::default()
    };
    let source = json_schema::strict_json::parse_json_strict_with(text, &limits)
        .map_err(DocumentError::whole)?;
    let Value::Object(object) = &source else {
        return Err(DocumentError::whole("the project is not a JSON object"));
    };
    let mut reader = DocumentReader::default();
    let id = reader.id(object, "", "id");
    let name = reader.optional_text(object, "", "name");
    let description = reader.optional_text(object, "", "description");
    let scene = reader.optional_text(object, "", "default_scene_id");
    let profile_ids = named(&mut reader, object, "agent_profiles", "id");
    let kb_ids = named(&mut reader, object, "knowledgeBaseReferences", "source_id");
    match reader.problems.is_empty() {
        true => Ok(Project {
            name: name.filter(|name| !name.is_empty()).unwrap_or(id.clone()),
            id,
            description: description.unwrap_or_default(),
            version: document::label(object),
            default_scene_id: scene.unwrap_or_default(),
            profile_ids,
            kb_ids,
            text: text.to_owned(),
        }),
        false => Err(DocumentError {
            problems: reader.problems,
        }),
    }
}

/// Reads the items of a list, each with an id and perhaps a path.
fn named(
    reader: &mut DocumentReader,
    project: &Map<String, Value>,
    key: &str,
    id_key: &str,
) -> Vec<String> {
    let entries = match project.get(key) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(entries)) if entries.len() <= MAX_NAMED => entries,
        Some(_) => {
            let problem = format!("it is not a list of at most {MAX_NAMED} objects");
            reader.problem(&format!("/{key}"), problem);
            return Vec::new();
        }
    };
    let mut ids: Vec<String> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let place = format!("/{key}/{index}");
        let Value::Object(entry) = entry else {
            reader.problem(&place, "it is not an object");
            continue;
        };
        let id = reader.id(entry, &place, id_key);
        if ids.contains(&id) {
            let problem = format!("`{id}` is listed twice");
            reader.problem(&format!("{place}/{id_key}"), problem);
        }
        let path = reader.optional_text(entry, &place, "path");
        if path.is_some_and(|path| !is_below(&path)) {
            let problem = "give a path beneath the project, without `..`";
            reader.problem(&format!("{place}/path"), problem);
        }
        ids.push(id);
    }
    ids
}

/// Whether a path stays beneath the project on every system.
fn is_below(path: &str) -> bool {
    let mut parts = path.split(['/', '\\']);
    !path.is_empty() && !path.contains(':') && parts.all(|part| !part.is_empty() && part != "..")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::places;

    #[test]
    fn everything_wrong_with_a_project_is_named_with_its_place() {
        let wrong = json!({
            "default_scene_id": 7,
            "agent_profiles": [
                {"id": "a", "path": "agent_profiles/a.json"}, {"id": "a", "path": "../b.json"},
                {"path": "/etc/passwd"}, 7],
            "knowledgeBaseReferences": {"source_id": "kb"},
        });
        let problems = read(&wrong.to_string()).unwrap_err().problems;
        assert_eq!(
            places(&problems),
            [
                "/id",
                "/default_scene_id",
                "/agent_profiles/1/id",
                "/agent_profiles/1/path",
                "/agent_profiles/2/id",
                "/agent_profiles/2/path",
                "/agent_profiles/3",
                "/knowledgeBaseReferences"
            ]
        );
    }
}
