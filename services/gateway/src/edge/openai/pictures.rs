//! The pictures that the calls of a turn showed: links behind its answer, or their names.

use std::sync::Arc;

use contracts::tavern::common::v1::CallResult;
use http::HeaderMap;
use serde_json::Value;

use crate::door::ClientDoor;
use crate::edge::files::encoded;

/// The most pictures of an answer.
const MOST: usize = 64;

/// The address of this server for links in answers; empty without one.
#[derive(Clone, Debug)]
pub(in crate::edge) struct PublicUrl(Arc<str>);

impl PublicUrl {
    /// Takes the address of the settings.
    pub(in crate::edge) fn new(address: &str) -> Self {
        Self(address.trim_end_matches('/').into())
    }

    /// Returns the address for the answer to a request. Where a key is needed there is none: a link has no credential,
    /// and must have none.
    pub(super) async fn for_links(
        self,
        door: &ClientDoor,
        headers: &HeaderMap,
    ) -> Option<Arc<str>> {
        if self.0.is_empty() {
            return None;
        }
        door.is_open(headers).await.then_some(self.0)
    }
}

/// The pictures of a turn, each once, in the order in which they were shown.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    /// The address of this server; `None` for names in place of links.
    address: Option<Arc<str>>,
    conversation_id: String,
    shown: Vec<Picture>,
}

#[derive(Debug, PartialEq, Eq)]
struct Picture {
    path: String,
    /// Whether a client shows it in place; any other is a file.
    is_in_place: bool,
}

impl Pictures {
    pub(super) fn at(address: Option<Arc<str>>) -> Self {
        Self {
            address,
            ..Self::default()
        }
    }

    /// Notes the conversation of the turn.
    pub(super) fn begin(&mut self, conversation_id: String) {
        self.conversation_id = conversation_id;
    }

    /// Notes the pictures of a call.
    pub(super) fn see(&mut self, result: &CallResult) {
        let output: Option<Value> = serde_json::from_str(&result.output_json).ok();
        let results = output
            .as_ref()
            .and_then(|output| output["results"].as_array());
        for result in results.into_iter().flatten() {
            for (media_type, content) in result["data"].as_object().into_iter().flatten() {
                let Some(path) = content["path"].as_str() else {
                    continue;
                };
                let picture = Picture {
                    path: path.to_owned(),
                    is_in_place: matches!(
                        media_type.as_str(),
                        "image/png" | "image/jpeg" | "image/webp"
                    ),
                };
                let is_picture = media_type.starts_with("image/");
                if is_picture && self.shown.len() < MOST && !self.shown.contains(&picture) {
                    self.shown.push(picture);
                }
            }
        }
    }

    /// Returns the text to add to the answer; empty without pictures.
    pub(super) fn text(&self) -> String {
        let lines = self.shown.iter().map(|picture| self.line(picture));
        lines.map(|line| format!("\n\n{line}")).collect()
    }

    fn line(&self, picture: &Picture) -> String {
        let Some(address) = self
            .address
            .as_ref()
            .filter(|_| !self.conversation_id.is_empty())
        else {
            return picture.path.clone();
        };
        let parts = picture.path.split('/');
        let parts: Vec<String> = parts.map(|part| encoded(part).to_string()).collect();
        let name = picture.path.rsplit('/').next().unwrap_or_default();
        let mark = if picture.is_in_place { "!" } else { "" };
        format!(
            "{mark}[{}]({address}/v1/conversations/{}/files/{})",
            escaped(name),
            encoded(&self.conversation_id),
            parts.join("/"),
        )
    }
}

/// Returns a text that Markdown shows as it is between brackets.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_punctuation() && !matches!(character, '.' | '-') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(address: Option<&str>) -> Pictures {
        let blob = |path: &str| json!({"$blob": "sha256:0", "bytes": 1, "path": path});
        let output = json!({"stdout": "", "results": [
            {"index": 0, "data": {"image/png": blob("results/a.png"), "text/plain": "<Figure>"}},
            {"index": 1, "data": {"image/svg+xml": blob("out/図 [1].svg")}},
            {"index": 2, "data": {"image/png": blob("results/a.png")}},
            {"index": 3, "data": {"text/html": blob("results/t.html"), "image/png": "iVBO"}},
        ]});
        let mut pictures = Pictures::at(address.map(Arc::from));
        pictures.begin("conv_1".to_owned());
        pictures.see(&CallResult {
            output_json: output.to_string(),
            ..CallResult::default()
        });
        pictures
    }

    #[test]
    fn pictures_are_links_at_the_public_address() {
        let files = "https://tavern.example.com/at/v1/conversations/conv_1/files";
        let expected = format!(
            "\n\n![a.png]({files}/results/a.png)\
             \n\n[図 \\[1\\].svg]({files}/out/%E5%9B%B3%20%5B1%5D.svg)"
        );
        let text = shown(Some("https://tavern.example.com/at")).text();
        assert_eq!(text, expected);
    }

    #[test]
    fn pictures_are_names_without_an_address() {
        assert_eq!(shown(None).text(), "\n\nresults/a.png\n\nout/図 [1].svg");
        assert_eq!(Pictures::default().text(), "");
    }

    #[test]
    fn an_output_of_another_form_shows_nothing() {
        for output in [
            "",
            "1",
            r#"{"results": 1}"#,
            r#"{"results": [1, {"data": []}]}"#,
        ] {
            let mut pictures = Pictures::default();
            pictures.see(&CallResult {
                output_json: output.to_owned(),
                ..CallResult::default()
            });
            assert_eq!(pictures.text(), "", "{output}");
        }
    }
}
