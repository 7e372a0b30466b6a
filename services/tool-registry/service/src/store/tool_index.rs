//! A full-text index of tools in memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use search_words::Terms;
use serde_json::Value;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use tool_domain::tool::Tool;

use super::StoreError;

/// The tools that are inserted by one statement.
const CHUNK: usize = 100;

/// Words that most descriptions have.
const COMMON: [&str; 33] = [
    "a", "all", "an", "and", "are", "as", "at", "be", "by", "can", "do", "for", "from", "how", "i",
    "if", "in", "is", "it", "me", "my", "of", "on", "or", "that", "the", "this", "to", "use",
    "want", "with", "you", "your",
];

/// The index of a list of tools, each by its place.
#[derive(Debug)]
pub(crate) struct ToolIndex {
    database: SqliteConnection,
    of: u64,
}

impl ToolIndex {
    /// Indexes tools.
    pub(crate) async fn of(tools: &[Arc<Tool>]) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new().in_memory(true);
        let mut database = options.disable_statement_logging().connect().await?;
        let table = "CREATE VIRTUAL TABLE tool USING fts5 (name, tags, text, content = '', tokenize = 'porter unicode61')";
        sqlx::query(table).execute(&mut database).await?;
        let mut insert = database.begin().await?;
        for (chunk, tools) in tools.chunks(CHUNK).enumerate() {
            let rows = vec!["(?, ?, ?, ?)"; tools.len()].join(", ");
            let text = format!("INSERT INTO tool (rowid, name, tags, text) VALUES {rows}");
            let mut query = sqlx::query(sqlx::AssertSqlSafe(text));
            for (place, tool) in tools.iter().enumerate() {
                let rowid = i64::try_from(chunk * CHUNK + place).unwrap_or(i64::MAX);
                let [name, tags, text] = words_of(tool);
                query = query.bind(rowid).bind(name).bind(tags).bind(text);
            }
            query.execute(&mut *insert).await?;
        }
        insert.commit().await?;
        let of = digest(tools);
        Ok(Self { database, of })
    }

    /// Whether it is the index of these tools.
    pub(crate) fn is_of(&self, tools: &[Arc<Tool>]) -> bool {
        self.of == digest(tools)
    }

    /// Returns the places of the tools that match, the best first, ties by place.
    pub(crate) async fn find(&mut self, query: &str, limit: u32) -> Result<Vec<usize>, StoreError> {
        let is_common = |word: &str| COMMON.contains(&word.to_ascii_lowercase().as_str());
        let spaced = spaced(query);
        let terms = Terms::without(&spaced, is_common).or_else(|| Terms::of(&spaced));
        let Some(terms) = terms else {
            return Ok(Vec::new());
        };
        let text = "SELECT rowid FROM tool WHERE tool MATCH ? ORDER BY bm25(tool, 3.0, 2.0, 1.0), rowid LIMIT ?";
        let found = sqlx::query(text).bind(terms.fts5()).bind(limit);
        let rows = found.fetch_all(&mut self.database).await?.into_iter();
        rows.map(|row| {
            let at: i64 = row.try_get(0)?;
            Ok(usize::try_from(at).unwrap_or_default())
        })
        .collect()
    }
}

/// Returns a number that differs for other lists of tools.
fn digest(tools: &[Arc<Tool>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for tool in tools {
        (tool.id(), tool.etag()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the words of a tool: of its names, of its tags and parameters, and of its texts.
fn words_of(tool: &Tool) -> [String; 3] {
    let definition = tool.definition();
    let names = [tool.id(), &definition.display_name, tool.alias()];
    let mut tags: Vec<String> = Vec::new();
    // Most tools have no tags, and need not be parsed.
    if definition.source.contains("\"tags\"") {
        let written = definition.written();
        let listed = written.get("tags").and_then(Value::as_array);
        let listed = listed.into_iter().flatten().filter_map(Value::as_str);
        tags.extend(listed.map(str::to_owned));
    }
    let mut texts = vec![definition.description.clone()];
    let parameters = tool.parameters().get("properties");
    for (name, schema) in parameters.and_then(Value::as_object).into_iter().flatten() {
        tags.push(spaced(name));
        let described = schema.get("description").and_then(Value::as_str);
        texts.extend(described.map(str::to_owned));
    }
    [
        indexed(names.map(spaced).iter()),
        indexed(tags.iter()),
        indexed(texts.iter()),
    ]
}

fn indexed<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    let texts: Vec<&str> = texts.map(String::as_str).collect();
    search_words::indexed(&texts)
}

/// Returns a text with a space where a capital letter begins a word of a name, as in `ReadFile`.
fn spaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    for character in text.chars() {
        if character.is_uppercase() && before.is_lowercase() {
            spaced.push(' ');
        }
        spaced.push(character);
        before = character;
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use tool_domain::{definition, tool::Origin};

    fn tool(id: &str, description: &str, parameters: &[&str]) -> Arc<Tool> {
        let properties = parameters.iter();
        let properties: serde_json::Map<String, Value> = properties
            .map(|name| ((*name).to_owned(), serde_json::json!({"type": "string"})))
            .collect();
        let definition = serde_json::json!({
            "id": id,
            "description": description,
            "parameters": {"type": "object", "properties": properties},
            "implementation": {"type": "service", "service": "x", "method": "a.B/C"},
        });
        let definition = definition::read(&definition.to_string()).unwrap();
        Arc::new(Tool::new(definition, Origin::Registered, String::new()).unwrap())
    }

    #[tokio::test]
    async fn r504_names_count_more_than_parameters_and_those_more_than_texts() {
        let tools = [
            tool("a:text", "Shows the weather.", &[]),
            tool("b:parameter", "Shows something.", &["weather"]),
            tool("c:WeatherReport", "Shows something.", &[]),
            tool("d:月光苔", "发光", &[]),
            tool("e:other", "Reads files.", &[]),
        ];
        let mut index = ToolIndex::of(&tools).await.unwrap();
        assert!(index.is_of(&tools) && !index.is_of(&tools[1..]));
        for (query, expected) in [
            ("what is the weather", &[2, 1, 0][..]),
            ("report", &[2]),
            ("file", &[4]),
            ("月光", &[3]),
            ("the", &[0]),
            ("\" OR (", &[]),
            ("?!", &[]),
        ] {
            assert_eq!(index.find(query, 10).await.unwrap(), expected, "{query}");
        }
        assert_eq!(index.find("weather", 1).await.unwrap(), [2]);
    }
}
