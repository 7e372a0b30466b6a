//! Knowledge bases: ComfyTavern's knowledge files, and the references to them in profiles.

mod references;

use serde_json::{Map, Value};

pub use references::{GoalReference, KnowledgeReference, WriteAccess};
pub(crate) use references::{read_goals, read_knowledge};

use super::document::{self, DocumentError, DocumentReader};

/// The largest knowledge file that is read, in bytes.
pub const MAX_KNOWLEDGE_BYTES: usize = 3 << 20;
/// The most entries of a knowledge base.
pub const MAX_ENTRIES: usize = 10_000;
/// The longest text of an entry, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// A knowledge base as its document states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnowledgeBase {
    /// The id.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The subject; may be empty.
    pub description: String,
    /// Its entries.
    pub entries: Vec<Entry>,
    /// The digest of the document.
    pub etag: String,
}

/// An entry: a curated atomic information unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The id in the knowledge base.
    pub caiu_id: String,
    /// The kind of entry; may be empty.
    pub entry_type: String,
    /// A title; may be empty.
    pub display_name: String,
    /// The text.
    pub text: String,
    /// Words for people and for the search.
    pub tags: Vec<String>,
    /// Whether agents read it.
    pub is_enabled: bool,
}

impl Entry {
    /// Returns the words by which it is found.
    pub fn words(&self) -> String {
        let tags = self.tags.join(" ");
        search_words::indexed(&[&self.display_name, &self.text, &tags])
    }
}

/// Reads a knowledge file.
///
/// # Errors
/// [`DocumentError`] with all problems.
pub fn read(text: &str) -> Result<KnowledgeBase, DocumentError> {
    let limits = json_schema::JsonLimits {
        max_bytes: MAX_KNOWLEDGE_BYTES,
        ..Default::default()
    };
    let source = json_schema::strict_json::parse_json_strict_with(text, &limits)
        .map_err(DocumentError::whole)?;
    let Value::Object(object) = &source else {
        return Err(DocumentError::whole(
            "the knowledge base is not a JSON object",
        ));
    };
    let mut reader = DocumentReader::default();
    let id = reader.id(object, "", "kb_id");
    let name = reader.optional_text(object, "", "kb_displayName");
    let description = reader.optional_text(object, "", "kb_description");
    let entries = entries(&mut reader, object);
    match reader.problems.is_empty() {
        true => Ok(KnowledgeBase {
            name: name.filter(|name| !name.is_empty()).unwrap_or(id.clone()),
            id,
            description: description.unwrap_or_default(),
            entries,
            etag: document::etag(text),
        }),
        false => Err(DocumentError {
            problems: reader.problems,
        }),
    }
}

fn entries(reader: &mut DocumentReader, object: &Map<String, Value>) -> Vec<Entry> {
    let written = match object.get("entries") {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(written)) if written.len() <= MAX_ENTRIES => written,
        Some(_) => {
            let problem = format!("it is not a list of at most {MAX_ENTRIES} entries");
            reader.problem("/entries", problem);
            return Vec::new();
        }
    };
    let mut seen = std::collections::HashSet::new();
    let mut entries = Vec::new();
    for (index, entry) in written.iter().enumerate() {
        let place = format!("/entries/{index}");
        let Value::Object(object) = entry else {
            reader.problem(&place, "it is not an object; give id and content");
            continue;
        };
        let entry = one(reader, object, &place);
        if !seen.insert(entry.caiu_id.clone()) {
            let problem = format!("`{}` is taken by an earlier entry", entry.caiu_id);
            reader.problem(&format!("{place}/id"), problem);
        }
        entries.push(entry);
    }
    entries
}

fn one(reader: &mut DocumentReader, object: &Map<String, Value>, place: &str) -> Entry {
    let caiu_id = reader.id(object, place, "id");
    let entry_type = reader.optional_text(object, place, "entry_type");
    let display_name = reader.optional_text(object, place, "displayName");
    let text = match object.get("content") {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(Value::Object(content)) => content.get("value").and_then(Value::as_str),
        _ => None,
    };
    let text = text.filter(|text| text.len() <= MAX_TEXT_BYTES);
    if text.is_none() {
        let problem =
            format!("give {{\"value\": …}} with a text of at most {MAX_TEXT_BYTES} bytes");
        reader.problem(&format!("{place}/content"), problem);
    }
    let managed = object.get("management_metadata").and_then(Value::as_object);
    let tags = managed.and_then(|managed| managed.get("tags"));
    let tags = tags.and_then(Value::as_array).into_iter().flatten();
    let enabled = managed.and_then(|managed| managed.get("is_enabled"));
    Entry {
        caiu_id,
        entry_type: entry_type.unwrap_or_default(),
        display_name: display_name.unwrap_or_default(),
        text: text.unwrap_or_default().to_owned(),
        tags: tags.filter_map(Value::as_str).map(str::to_owned).collect(),
        is_enabled: enabled.and_then(Value::as_bool).unwrap_or(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::places;

    #[test]
    fn a_knowledge_file_of_comfytavern_is_read_as_it_is() {
        let file = json!({
            "kb_id": "kb_wood", "kb_displayName": "Lore", "schema_version": "1.0", "tags": [],
            "entries": [
                {"id": "moss", "version": 1, "entry_type": "lore_detail", "displayName": "Moonmoss",
                 "content": {"mime_type": "text/plain", "value": "It glows."},
                 "activation_criteria": {"keywords": ["moss"]},
                 "management_metadata": {"tags": ["herb"], "is_enabled": false}},
                {"id": "plain", "content": "As a text."},
            ],
        });
        let read = read(&file.to_string()).unwrap();
        assert_eq!((read.id.as_str(), read.name.as_str()), ("kb_wood", "Lore"));
        assert_eq!(
            read.entries[0],
            Entry {
                caiu_id: "moss".to_owned(),
                entry_type: "lore_detail".to_owned(),
                display_name: "Moonmoss".to_owned(),
                text: "It glows.".to_owned(),
                tags: vec!["herb".to_owned()],
                is_enabled: false,
            }
        );
        assert!(read.entries[1].is_enabled);
    }

    #[test]
    fn everything_wrong_is_named_with_its_place() {
        let file = json!({"kb_id": "", "entries": [
            {"id": "a", "content": {}}, 7, {"content": "x"}, {"id": "a", "content": "y"}]});
        let wrong = read(&file.to_string()).unwrap_err();
        assert_eq!(
            places(&wrong.problems),
            [
                "/kb_id",
                "/entries/0/content",
                "/entries/1",
                "/entries/2/id",
                "/entries/3/id"
            ]
        );
    }
}
