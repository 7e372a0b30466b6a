//! The little of JSON Schema that typing needs: the types, properties and items that a schema
//! admits. Local references are resolved (C15). The compiled form checks the typed arguments
//! against all other keywords.

mod checked;
mod facts;
mod simple;
mod union;

use serde_json::Value;

pub(crate) use checked::Checked;
pub(crate) use facts::Facts;

/// A set of JSON types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    /// `null`.
    pub const NULL: Types = Types(1);
    /// `true` and `false`.
    pub const BOOLEAN: Types = Types(2);
    /// Whole numbers.
    pub const INTEGER: Types = Types(4);
    /// Numbers with a fraction.
    pub const NUMBER: Types = Types(8);
    /// Strings.
    pub const STRING: Types = Types(16);
    /// Arrays.
    pub const ARRAY: Types = Types(32);
    /// Objects.
    pub const OBJECT: Types = Types(64);
    /// The types that one word spells.
    pub const SCALARS: Types = Types(15);
    const ALL: Types = Types(127);
    const NONE: Types = Types(0);

    /// Whether the sets have a type in common.
    pub fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    fn with(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    /// Whether no type is excluded, as the schema does not restrict types.
    pub fn is_any(self) -> bool {
        self == Self::ALL
    }

    /// The names of the types, joined by `or`.
    pub fn describe(self) -> String {
        let names = [
            (Self::STRING, "string"),
            (Self::INTEGER, "integer"),
            (Self::NUMBER, "number"),
            (Self::BOOLEAN, "boolean"),
            (Self::OBJECT, "object"),
            (Self::ARRAY, "array"),
            (Self::NULL, "null"),
        ];
        if self.is_any() {
            return "any".to_owned();
        }
        let listed: Vec<&str> = names
            .iter()
            .filter(|(kind, _)| self.has(*kind))
            .map(|(_, name)| *name)
            .collect();
        listed.join(" or ")
    }

    fn of_name(name: &str) -> Types {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER.with(Self::INTEGER),
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::NONE,
        }
    }

    /// The types of which a value is; a whole number is a number as well.
    pub fn of_value(value: &Value) -> Types {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if crate::scalar::is_integral(&number.to_string()) => {
                Self::INTEGER.with(Self::NUMBER)
            }
            Value::Number(_) => Self::NUMBER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }
}

/// A schema and the document in which its references are resolved.
#[derive(Debug, Clone, Copy)]
pub struct Schema<'s> {
    root: &'s Value,
    /// `None` for a parameter of a catalogue: its facts lead to the node, and answer most
    /// questions without it.
    node: Option<&'s Value>,
    /// The facts derived before, for parameters of a catalogue.
    facts: Option<&'s Facts>,
    /// The document in its compiled form, for names that only a pattern knows and for alternatives.
    checked: Option<&'s Checked>,
    /// The alternative that a value means, where one was chosen (C9).
    chosen: Option<&'s Value>,
}

const MOST_REFERENCES: usize = 16;
const MOST_DEPTH: usize = 8;

static NOTHING: Value = Value::Null;

/// A member of an object.
fn look_up<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    const SMALL: usize = 16;
    match value {
        Value::Object(map) if map.len() <= SMALL => map
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value),
        Value::Object(map) => map.get(key),
        _ => None,
    }
}

impl<'s> Schema<'s> {
    /// The schema that a document holds as a whole.
    pub fn root(value: &'s Value) -> Self {
        Self::plain(value, value).resolved()
    }

    /// The schema of an unrestricted value.
    pub fn unknown() -> Schema<'static> {
        Schema::plain(&NOTHING, &NOTHING)
    }

    fn plain(root: &'s Value, node: &'s Value) -> Self {
        Self {
            root,
            node: Some(node),
            facts: None,
            checked: None,
            chosen: None,
        }
    }

    /// The same schema, with the compiled form of its document.
    pub(crate) fn with(self, checked: &'s Checked) -> Self {
        Self {
            checked: Some(checked),
            ..self
        }
    }

    /// The schema of a parameter, or of its items, of which the facts were worked out before.
    pub(crate) fn known(root: &'s Value, facts: &'s Facts) -> Self {
        Self {
            root,
            node: None,
            facts: Some(facts),
            checked: None,
            chosen: None,
        }
    }

    /// The same schema with its node resolved, for many look-ups.
    pub fn located(self) -> Self {
        Self {
            node: Some(self.node()),
            ..self
        }
    }

    fn node(self) -> &'s Value {
        match (self.node, self.facts) {
            (Some(node), _) => node,
            (None, Some(facts)) => facts.find(self.root).node(),
            (None, None) => &NOTHING,
        }
    }

    /// The value of a keyword. Schemas are small: looking through one is cheaper
    /// than hashing the keyword.
    fn get(self, key: &str) -> Option<&'s Value> {
        look_up(self.node(), key)
    }

    fn at(self, node: &'s Value) -> Self {
        Self {
            node: Some(node),
            facts: None,
            chosen: None,
            ..self
        }
        .resolved()
    }

    fn resolved(self) -> Self {
        let mut node = self.node();
        for _ in 0..MOST_REFERENCES {
            let Some(target) = look_up(node, "$ref")
                .and_then(Value::as_str)
                .and_then(|target| target.strip_prefix('#'))
            else {
                break;
            };
            match self.root.pointer(target) {
                Some(found) => node = found,
                None => break,
            }
        }
        Self {
            node: Some(node),
            facts: None,
            ..self
        }
    }

    /// The types admitted; every type where the schema does not restrict them.
    pub fn types(self) -> Types {
        match self.facts {
            Some(facts) => facts.types,
            None => self.types_within(MOST_DEPTH),
        }
    }

    fn types_within(self, depth: usize) -> Types {
        if depth == 0 {
            return Types::ALL;
        }
        let own = match self.get("type") {
            Some(Value::String(name)) => Types::of_name(name),
            Some(Value::Array(names)) => names
                .iter()
                .filter_map(Value::as_str)
                .fold(Types::NONE, |all, name| all.with(Types::of_name(name))),
            _ => match self.allowed() {
                Some(values) => values
                    .iter()
                    .fold(Types::NONE, |all, value| all.with(Types::of_value(value))),
                None if self.get("properties").is_some() => Types::OBJECT,
                None if self.get("items").is_some() => Types::ARRAY,
                None => Types::ALL,
            },
        };
        if !self.is_composed() {
            return own;
        }
        let mut types = own;
        let branches = self.branches();
        if !branches.is_empty() {
            let union = branches.iter().fold(Types::NONE, |all, branch| {
                all.with(branch.types_within(depth - 1))
            });
            types = Types(types.0 & union.0);
        }
        for part in self.list("allOf") {
            types = Types(types.0 & self.at(part).types_within(depth - 1).0);
        }
        if types == Types::NONE { own } else { types }
    }

    /// Whether the schema is put together of others.
    fn is_composed(self) -> bool {
        let Value::Object(map) = self.node() else {
            return false;
        };
        map.keys()
            .any(|key| matches!(key.as_str(), "anyOf" | "oneOf" | "allOf"))
    }

    fn list(self, key: &str) -> &'s [Value] {
        self.get(key)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// The alternatives of `anyOf` and `oneOf`, or the chosen one.
    pub fn branches(self) -> Vec<Schema<'s>> {
        if let Some(chosen) = self.chosen {
            return vec![self.at(chosen)];
        }
        self.list("anyOf")
            .iter()
            .chain(self.list("oneOf"))
            .map(|node| self.at(node))
            .collect()
    }

    /// The values of `enum` or `const`.
    pub fn allowed(self) -> Option<Vec<&'s Value>> {
        if self.facts.is_some_and(|facts| !facts.chooses) {
            return None;
        }
        if let Some(values) = self.get("enum").and_then(Value::as_array) {
            return Some(values.iter().collect());
        }
        if let Some(value) = self.get("const") {
            return Some(vec![value]);
        }
        self.at(self.chosen?).allowed()
    }

    /// Whether a text is one of the allowed values as written.
    pub fn allows_exactly(self, text: &str) -> bool {
        let mut allowed = self.allowed().into_iter().flatten();
        allowed.any(|value| value.as_str() == Some(text))
    }

    /// The schema of a property.
    pub fn property(self, name: &str) -> Option<Schema<'s>> {
        self.property_within(name, MOST_DEPTH)
    }

    fn property_within(self, name: &str, depth: usize) -> Option<Schema<'s>> {
        if let Some(node) = self
            .get("properties")
            .and_then(|properties| look_up(properties, name))
        {
            return Some(self.at(node));
        }
        if depth == 0 {
            return None;
        }
        self.parts()
            .find_map(|part| part.property_within(name, depth - 1))
    }

    /// The further schemas that a value must meet; a chosen alternative comes first, since its
    /// union may be one of `allOf`.
    fn parts(self) -> impl Iterator<Item = Schema<'s>> {
        let chosen = self.chosen.map(|node| self.at(node));
        let all = self.list("allOf").iter().map(move |node| self.at(node));
        let branches = match self.chosen {
            Some(_) => Vec::new(),
            None => self.branches(),
        };
        chosen.into_iter().chain(all).chain(branches)
    }

    /// The schema of the first of `patternProperties` that a name matches.
    pub fn by_pattern(self, name: &str) -> Option<Schema<'s>> {
        let patterns = self.get("patternProperties")?.as_object()?;
        let compiled = self.checked?.compiled(self.root)?;
        patterns
            .iter()
            .find(|(pattern, _)| compiled.name_matches(pattern, name))
            .map(|(_, node)| self.at(node))
    }

    /// The schema of an object's member: of its property, of a pattern that the name matches, or of
    /// additional properties.
    pub fn member(self, name: &str) -> Schema<'s> {
        self.property(name)
            .or_else(|| self.by_pattern(name))
            .or_else(|| {
                self.get("additionalProperties")
                    .filter(|node| node.is_object())
                    .map(|node| self.at(node))
            })
            .unwrap_or(Schema::plain(self.root, &NOTHING))
    }

    /// The names of all properties, in schema order.
    pub fn property_names(self) -> Vec<String> {
        let mut names = Vec::new();
        self.collect_names(&mut names, MOST_DEPTH);
        names
    }

    fn collect_names(self, names: &mut Vec<String>, depth: usize) {
        if let Some(Value::Object(properties)) = self.get("properties") {
            for name in properties.keys() {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        if depth > 0 {
            for part in self.parts() {
                part.collect_names(names, depth - 1);
            }
        }
    }

    /// Whether parameters beyond the declared ones are welcome (N3): declared so, or no parameters
    /// are declared.
    pub fn is_open(self) -> bool {
        match self.get("additionalProperties") {
            Some(Value::Bool(open)) => *open,
            Some(Value::Object(_)) => true,
            _ if self.get("patternProperties").is_some() => true,
            _ => self.get("properties").is_none() && self.property_names().is_empty(),
        }
    }

    /// The schema of an array's items.
    pub fn items(self) -> Schema<'s> {
        match self.facts.and_then(|facts| facts.items.as_deref()) {
            Some(facts) => Self {
                node: None,
                facts: Some(facts),
                ..self
            },
            None => self.declared_items(),
        }
    }

    fn declared_items(self) -> Schema<'s> {
        if let Some(node) = self.get("items").filter(|node| !node.is_array()) {
            return self.at(node);
        }
        let array = self
            .branches()
            .into_iter()
            .find(|branch| branch.node().get("items").is_some());
        array.map_or(Schema::plain(self.root, &NOTHING), Schema::items)
    }

    /// The names of the required properties.
    pub fn required(self) -> Vec<&'s str> {
        let own = self.list("required").iter();
        let all = self.list("allOf").iter().chain(self.chosen);
        let parts = all.flat_map(|node| self.at(node).list("required"));
        own.chain(parts).filter_map(Value::as_str).collect()
    }

    /// The value that replaces a missing value.
    pub fn default(self) -> Option<&'s Value> {
        self.get("default")
    }

    /// The description of the value; empty if there is none.
    pub fn description(self) -> &'s str {
        self.get("description")
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// The values of `examples`.
    pub fn examples(self) -> &'s [Value] {
        self.list("examples")
    }

    /// Whether the schema has a keyword of its own.
    pub fn says(self, keyword: &str) -> bool {
        self.get(keyword).is_some()
    }

    fn flag(self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Whether values are code or other raw text: entities are never decoded, outer white space is
    /// kept (V3, T16).
    pub fn is_raw(self) -> bool {
        if let Some(facts) = self.facts {
            return facts.raw;
        }
        let code = self
            .list("matchCategories")
            .iter()
            .any(|category| category.as_str() == Some("Code"));
        code || self.flag("x-raw") || self.get("contentMediaType").is_some()
    }

    /// Whether every byte of outer white space is kept (V10).
    pub fn preserves_white_space(self) -> bool {
        match self.facts {
            Some(facts) => facts.preserves_white_space,
            None => self.flag("x-preserve-whitespace"),
        }
    }

    /// Whether `\n` written as two characters means a line break (T15).
    pub fn unescapes(self) -> bool {
        match self.facts {
            Some(facts) => facts.unescapes,
            None => self.flag("x-unescape"),
        }
    }
}
