//! Values as JSON, by schema.

use call_catalogue::schema::{Schema, Types};
use serde_json::Value;

use super::gbnf::{CharClass, Expr, Rules};
use super::{GrammarError, Unenforced};

/// Keywords of schemas that a grammar does not express.
const UNENFORCED: [&str; 20] = [
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "dependentRequired",
    "patternProperties",
    "if",
    "not",
];

/// The depth to which the schema of a value is followed: deeper lists are empty, optional members
/// are left out, and a required one is any JSON.
const MAX_DEPTH: usize = 8;

/// The most levels of JSON without a schema.
const ANY_DEPTH: usize = 4;

/// The most values of schemas that a grammar describes.
const MAX_VALUES: usize = 4_000;

/// Characters that open or close a part of a block in one of the dialects. JSON can escape them.
const MARKS: [char; 7] = ['<', '>', '&', '「', '」', '«', '»'];

/// The rules for the values of one grammar.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) rules: Rules,
    pub(super) unenforced: Vec<Unenforced>,
    tool_id: String,
    described: usize,
    /// The number of lists of members that have a rule.
    lists: usize,
}

/// A schema and its place.
#[derive(Clone, Debug)]
pub(super) struct SchemaPlace<'s> {
    pub(super) schema: Schema<'s>,
    pointer: String,
    depth: usize,
}

impl<'s> SchemaPlace<'s> {
    pub(super) fn root(schema: Schema<'s>) -> Self {
        Self {
            schema,
            pointer: String::new(),
            depth: 0,
        }
    }

    pub(super) fn member(&self, name: &str) -> Self {
        let step = json_schema::pointer::join("properties", name);
        self.below(self.schema.member(name), &step)
    }

    fn below(&self, schema: Schema<'s>, step: &str) -> Self {
        Self {
            schema,
            pointer: format!("{}/{step}", self.pointer),
            depth: self.depth + 1,
        }
    }
}

impl Values {
    pub(super) fn new() -> Self {
        Self {
            rules: Rules::default(),
            unenforced: Vec::new(),
            tool_id: String::new(),
            described: 0,
            lists: 0,
        }
    }

    /// Describes the values of this tool from here on.
    pub(super) fn of_tool(&mut self, tool_id: &str) {
        tool_id.clone_into(&mut self.tool_id);
    }

    /// Notes the requirements of the schema at a place beyond the grammar.
    ///
    /// # Errors
    /// [`GrammarError::TooLarge`] when so much has been described that a grammar has no room for it.
    pub(super) fn note(&mut self, place: &SchemaPlace<'_>) -> Result<(), GrammarError> {
        self.described += 1;
        if self.described > MAX_VALUES {
            return Err(GrammarError::TooLarge);
        }
        for keyword in UNENFORCED {
            if place.schema.says(keyword) {
                self.leave_open(place, keyword);
            }
        }
        Ok(())
    }

    fn leave_open(&mut self, place: &SchemaPlace<'_>, keyword: &str) {
        self.unenforced.push(Unenforced {
            tool_id: self.tool_id.clone(),
            pointer: format!("{}/{keyword}", place.pointer),
            keyword: keyword.to_owned(),
        });
    }

    /// Describes a value as JSON.
    ///
    /// # Errors
    /// See [`Values::note`].
    pub(super) fn json(&mut self, place: &SchemaPlace<'_>) -> Result<Expr, GrammarError> {
        self.note(place)?;
        let schema = place.schema;
        if let Some(allowed) = schema.allowed().filter(|allowed| !allowed.is_empty()) {
            let literals = allowed
                .into_iter()
                .map(|value| Expr::literal(json_text(value)));
            return Ok(Expr::choice(literals.collect()));
        }
        if place.depth > MAX_DEPTH {
            self.leave_open(place, "type");
            return Ok(self.any());
        }
        let branches = schema.branches();
        if !branches.is_empty() && !schema.says("properties") {
            let of_branch = |branch| self.json(&place.below(branch, "anyOf"));
            let alternatives = branches.into_iter().map(of_branch);
            return Ok(Expr::choice(alternatives.collect::<Result<_, _>>()?));
        }
        let types = schema.types();
        if types.is_any() {
            return Ok(self.any());
        }
        let mut alternatives = Vec::new();
        if types.has(Types::OBJECT) {
            alternatives.push(self.object(place)?);
        }
        if types.has(Types::ARRAY) {
            alternatives.push(match place.depth {
                MAX_DEPTH.. => Expr::literal("[]"),
                _ => array(self.json(&place.below(schema.items(), "items"))?),
            });
        }
        if types.has(Types::STRING) {
            alternatives.push(self.string());
        }
        alternatives.extend(self.scalars(types));
        Ok(Expr::choice(alternatives))
    }

    /// Describes an object: its properties in the order of the schema and no others, or a map.
    ///
    /// # Errors
    /// See [`Values::note`].
    pub(super) fn object(&mut self, place: &SchemaPlace<'_>) -> Result<Expr, GrammarError> {
        let schema = place.schema;
        let names = schema.property_names();
        if names.is_empty() {
            if schema.says("additionalProperties") && !schema.is_open() {
                return Ok(Expr::literal("{}"));
            }
            // A grammar cannot see that a name is used already.
            self.leave_open(place, "additionalProperties");
            let value = self.json(&place.member(""))?;
            return Ok(map(self.string(), value));
        }
        let required = schema.required();
        let mut members = Vec::with_capacity(names.len());
        for name in &names {
            let needed = required.contains(&name.as_str());
            if place.depth >= MAX_DEPTH && !needed {
                continue;
            }
            let value = self.json(&place.member(name))?;
            let key = json_text(&Value::String(name.clone()));
            let member = Expr::Sequence(vec![Expr::literal(format!("{key}:")), value]);
            members.push((member, needed));
        }
        Ok(Expr::Sequence(vec![
            Expr::literal("{"),
            self.listed(members),
            Expr::literal("}"),
        ]))
    }

    /// Members of an object in their order, with commas between the present ones.
    fn listed(&mut self, members: Vec<(Expr, bool)>) -> Expr {
        // The rest behind a present member, and the rest before any member.
        let (mut after, mut first) = (Expr::nothing(), Expr::nothing());
        for (member, required) in members.into_iter().rev() {
            let begun = Expr::Sequence(vec![member.clone(), after.clone()]);
            let continued = Expr::Sequence(vec![Expr::literal(","), member]);
            first = match required {
                true => begun,
                false => Expr::choice(vec![begun, first]),
            };
            let continued = match required {
                true => continued,
                false => continued.optional(),
            };
            self.lists += 1;
            let name = format!("members-{}", self.lists);
            after = self
                .rules
                .define(name, Expr::Sequence(vec![continued, after]));
        }
        first
    }

    /// Describes the types that have one spelling in all dialects.
    pub(super) fn scalars(&mut self, types: Types) -> Vec<Expr> {
        let mut alternatives = Vec::new();
        if types.has(Types::NUMBER) {
            let integer = self.integer();
            let decimals = Expr::Sequence(vec![Expr::literal("."), digits(1, 17)]);
            let number = Expr::Sequence(vec![integer, decimals.optional()]);
            alternatives.push(self.rules.define("number", number));
        } else if types.has(Types::INTEGER) {
            alternatives.push(self.integer());
        }
        if types.has(Types::BOOLEAN) {
            let boolean = Expr::choice(vec![Expr::literal("true"), Expr::literal("false")]);
            alternatives.push(self.rules.define("boolean", boolean));
        }
        if types.has(Types::NULL) {
            alternatives.push(Expr::literal("null"));
        }
        alternatives
    }

    /// Whole numbers that 64 bits hold.
    fn integer(&mut self) -> Expr {
        let first = Expr::OneOf(CharClass::of("").and('1'..='9'));
        let sign = Expr::literal("-").optional();
        let other = Expr::Sequence(vec![sign, first, digits(0, 17)]);
        let integer = Expr::choice(vec![Expr::literal("0"), other]);
        self.rules.define("integer", integer)
    }

    fn string(&mut self) -> Expr {
        let marks: String = MARKS.iter().collect();
        let plain = CharClass::except(&format!("\"\\{marks}"))
            .and('\0'..='\x1f')
            .and('\x7f'..='\x7f');
        let escaped_marks = MARKS.map(|mark| Expr::literal(format!("u{:04x}", u32::from(mark))));
        let mut escapes = vec![Expr::OneOf(CharClass::of("\"\\/bfnrt"))];
        escapes.extend(escaped_marks);
        let escape = Expr::Sequence(vec![Expr::literal("\\"), Expr::choice(escapes)]);
        let char = Expr::choice(vec![Expr::OneOf(plain), escape]);
        let char = self.rules.define("char", char);
        let quote = || Expr::literal("\"");
        let string = Expr::Sequence(vec![quote(), char.repeated(0, None), quote()]);
        self.rules.define("string", string)
    }

    /// JSON of no schema, nested a few levels: endless nesting is not read.
    pub(super) fn any(&mut self) -> Expr {
        let string = self.string();
        let mut scalars = self.scalars(Types::SCALARS);
        scalars.push(string.clone());
        let mut value = self.rules.define("any-0", Expr::choice(scalars.clone()));
        for depth in 1..=ANY_DEPTH {
            let mut alternatives = scalars.clone();
            alternatives.push(array(value.clone()));
            alternatives.push(map(string.clone(), value));
            value = self
                .rules
                .define(format!("any-{depth}"), Expr::choice(alternatives));
        }
        value
    }
}

fn array(item: Expr) -> Expr {
    Expr::Sequence(vec![
        Expr::literal("["),
        item.separated(",", None).optional(),
        Expr::literal("]"),
    ])
}

fn map(key: Expr, value: Expr) -> Expr {
    let member = Expr::Sequence(vec![key, Expr::literal(":"), value]);
    Expr::Sequence(vec![
        Expr::literal("{"),
        member.separated(",", None).optional(),
        Expr::literal("}"),
    ])
}

fn digits(least: u32, most: u32) -> Expr {
    Expr::OneOf(CharClass::of("").and('0'..='9')).repeated(least, Some(most))
}

/// JSON in which no character opens or closes a part of a block.
fn json_text(value: &Value) -> String {
    let mut text = value.to_string();
    for mark in MARKS {
        // Outside of its strings JSON has no such character.
        text = text.replace(mark, &format!("\\u{:04x}", u32::from(mark)));
    }
    text
}
