//! The writer of blocks, and the change of one of their marks.

use serde_json::{Map, Value, json};

use super::Random;
use crate::families::Family;
use crate::pieces::{Meant, Pieces};

/// A way of writing calls.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// `<ACTION>` with elements.
    Action,
    /// `<|[REQUEST_TOOL]|>` with `「始」` and `「末」`.
    TamV1,
    /// `<|[REQUEST_TOOL]|>` with `»»»` and `«««`.
    TamV2,
    /// `<<<[TOOL_REQUEST]>>>` with `tool_name`.
    Vcp,
    /// `<tool_call name="x">` with `<param name="y">`.
    ToolCall,
    /// `<invoke name="x">` with `<parameter name="y">`.
    Invoke,
    /// `<function=x>` with `<parameter=y>`.
    Function,
    /// The format of a family of models.
    Of(&'static Family),
}

/// A well-formed text and its meaning.
#[derive(Debug)]
pub struct Written {
    pieces: Pieces,
    /// Its calls, in order.
    pub meant: Vec<Meant>,
}

/// Values of one line. None of them holds a mark or the name of a parameter before a colon.
const WORDS: &[&str] = &[
    "alpha",
    "two words",
    "C:\\temp\\x.txt",
    "a < b",
    "x > y && z",
    "f(a)[0]",
    "「quoted」",
    "100%",
    "</ ",
    "if a </b",
    "<b>bold</b>",
    "see <br> here",
    "«cited»",
    "# no remark",
    "note: it is so",
    "a]]b",
    "[]",
    "{x}",
    "// path",
    "全角：文字",
    "é",
    "-",
    "1,2,3",
    "\"q\"",
    "it's",
    "=",
];

/// Further lines of a text.
const LINES: &[&str] = &[
    "first line",
    "",
    "  indented",
    "    </",
    "last: no parameter",
    "<div>",
    "</div>",
    "# title",
    "* item",
    "x = y;",
    "「",
    "a </b c",
    "]]",
    "<!-- remark -->",
    "// end",
    "tail ",
];

const DATES: &[&str] = &["2024-01-31", "today", "x"];

impl Written {
    /// A text of one or two blocks with one to three calls each.
    pub fn new(form: Form, random: &mut Random) -> Self {
        let mut written = Self {
            pieces: Pieces::default(),
            meant: Vec::new(),
        };
        // JSON is a call only where it is the whole message.
        let alone = matches!(form, Form::Of(family) if family.is_alone());
        if !alone {
            written.text(random.pick(&["", "", "Let me look.\n", "I do it now.\n\n"]));
        }
        let blocks = 1 + usize::from(!alone && random.one_in(3));
        for block in 0..blocks {
            if block > 0 {
                written.text(random.pick(&["\n", "\n\n", " "]));
            }
            match form {
                Form::Action => written.action(random),
                Form::TamV1 | Form::TamV2 | Form::Vcp => written.fields(form, random),
                Form::ToolCall | Form::Invoke | Form::Function => written.tags(form, random),
                Form::Of(family) => {
                    let calls: Vec<Meant> =
                        (0..1 + random.below(3)).map(|_| call(random)).collect();
                    (family.write)(&mut written.pieces, &calls);
                    written.meant.extend(calls);
                }
            }
        }
        if !alone {
            written.text(random.pick(&["", "", "\n", "\nThat is all."]));
        }
        written
    }

    /// The text as it should be written.
    pub fn intact(&self) -> String {
        self.pieces.whole()
    }

    /// The text with one mark dropped, doubled, swapped with another or misspelt.
    pub fn mutated(&self, random: &mut Random) -> String {
        let marks = self.pieces.marks();
        let mut pieces = self.pieces.clone();
        // JSON alone has no marks but its own.
        let Some(at) = (!marks.is_empty()).then(|| random.pick(&marks)) else {
            return pieces.whole();
        };
        match random.below(8) {
            0 | 1 => pieces.at(at).clear(),
            2 => *pieces.at(at) = pieces.at(at).repeat(2),
            // Mostly with a near mark, which models confuse.
            3 | 4 => {
                let here = marks.iter().position(|mark| *mark == at).unwrap_or(0);
                let other = match random.one_in(4) {
                    true => random.pick(&marks),
                    false => marks[(here + 1 + random.below(4)) % marks.len()],
                };
                // Openings with their names in them are whole fields when they are swapped.
                if says_its_name(pieces.at(at)) && says_its_name(pieces.at(other)) {
                    return self.mutated(random);
                }
                let text = std::mem::take(pieces.at(at));
                *pieces.at(at) = std::mem::replace(pieces.at(other), text);
            }
            _ => *pieces.at(at) = misspelt(pieces.at(at), random),
        }
        pieces.whole()
    }

    fn text(&mut self, text: impl Into<String>) {
        self.pieces.text(text);
    }

    fn mark(&mut self, text: impl Into<String>) {
        self.pieces.mark(text);
    }

    fn action(&mut self, random: &mut Random) {
        let gap = random.pick(&["", "\n", "\n    "]);
        self.mark("<ACTION>");
        self.text(gap);
        for _ in 0..1 + random.below(3) {
            let call = call(random);
            let name = call.0.replace(':', "__");
            self.mark(format!("<{name}>"));
            self.text(gap);
            for (parameter, value) in &call.1 {
                let (open, close) = (format!("<{parameter}>"), format!("</{parameter}>"));
                self.element(&open, &close, value, gap, random);
            }
            self.mark(format!("</{name}>"));
            self.text(gap);
            self.meant.push(call);
        }
        self.mark("</ACTION>");
    }

    fn tags(&mut self, form: Form, random: &mut Random) {
        let gap = random.pick(&["", "\n", "\n    "]);
        let call = call(random);
        let (open, close) = match form {
            Form::ToolCall => (format!("<tool_call name=\"{}\">", call.0), "</tool_call>"),
            Form::Invoke => (format!("<invoke name=\"{}\">", call.0), "</invoke>"),
            _ => (format!("<function={}>", call.0), "</function>"),
        };
        self.mark(open);
        self.text(gap);
        for (name, value) in &call.1 {
            let (open, close) = match form {
                Form::ToolCall => (format!("<param name=\"{name}\">"), "</param>"),
                Form::Invoke => (format!("<parameter name=\"{name}\">"), "</parameter>"),
                _ => (format!("<parameter={name}>"), "</parameter>"),
            };
            self.element(&open, close, value, gap, random);
        }
        self.mark(close);
        self.meant.push(call);
    }

    /// A parameter as one element, or a list as several of the same name or of items.
    fn element(&mut self, open: &str, close: &str, value: &Value, gap: &str, random: &mut Random) {
        let Value::Array(items) = value else {
            self.mark(open);
            self.element_text(value, random);
            self.mark(close);
            self.text(gap);
            return;
        };
        let repeated = random.one_in(2);
        if !repeated {
            self.mark(open);
        }
        for item in items {
            self.mark(if repeated { open } else { "<item>" });
            self.element_text(item, random);
            self.mark(if repeated { close } else { "</item>" });
        }
        if !repeated {
            self.mark(close);
        }
        self.text(gap);
    }

    fn element_text(&mut self, value: &Value, random: &mut Random) {
        let Value::String(text) = value else {
            return self.text(value.to_string());
        };
        let broken = text.contains('\n');
        let frame = if broken { "\n" } else { "" };
        // Elements and ends of sections are safe in a section only.
        if broken || text.trim() != text || text.contains(['<', '&']) || random.one_in(3) {
            self.mark("<![CDATA[");
            self.text(format!("{frame}{text}{frame}"));
            self.mark("]]>");
        } else {
            self.text(text.as_str());
        }
    }

    fn fields(&mut self, form: Form, random: &mut Random) {
        let (open, close) = match form {
            Form::Vcp => ("<<<[TOOL_REQUEST]>>>", "<<<[END_TOOL_REQUEST]>>>"),
            _ => ("<|[REQUEST_TOOL]|>", "<|[END_TOOL]|>"),
        };
        let gap = random.pick(&["\n", "\n", ",\n", " ", ", "]);
        self.mark(open);
        self.text("\n");
        let calls = 1 + random.below(3);
        for step in 1..=calls {
            let call = call(random);
            let suffix = match calls {
                1 => String::new(),
                _ if matches!(form, Form::TamV2) => format!("_{step}"),
                _ => step.to_string(),
            };
            let command = match form {
                Form::Vcp => "tool_name",
                _ => "command",
            };
            self.field(&format!("{command}{suffix}"), &json!(call.0), form, random);
            for (name, value) in &call.1 {
                self.text(gap);
                self.field(&format!("{name}{suffix}"), value, form, random);
            }
            if step < calls {
                self.text(gap);
            }
            self.meant.push(call);
        }
        self.text("\n");
        self.mark(close);
    }

    fn field(&mut self, key: &str, value: &Value, form: Form, random: &mut Random) {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let frame = if text.contains('\n') { "\n" } else { "" };
        let escaped = !matches!(form, Form::TamV2) && random.one_in(6);
        let (open, close) = match form {
            Form::TamV2 => ("»»»", "«««"),
            _ if escaped => ("「始ESCAPE」", "「末ESCAPE」"),
            _ => ("「始」", "「末」"),
        };
        self.text(key);
        self.mark(":");
        self.mark(open);
        self.text(format!("{frame}{text}{frame}"));
        self.mark(close);
    }
}

/// A call with known values.
fn call(random: &mut Random) -> Meant {
    let mut arguments = Map::new();
    let tool = match random.below(5) {
        0 | 1 => {
            arguments.insert("query".to_owned(), json!(random.pick(WORDS).trim()));
            if random.one_in(2) {
                arguments.insert("top_k".to_owned(), json!(random.below(100)));
            }
            if random.one_in(2) {
                let labels = (0..2 + random.below(2)).map(|_| random.pick(DATES).to_string());
                arguments.insert("labels".to_owned(), labels.collect());
            }
            "search"
        }
        2 | 3 => {
            arguments.insert("path".to_owned(), json!(random.pick(WORDS).trim()));
            arguments.insert("content".to_owned(), json!(lines(random)));
            if random.one_in(2) {
                arguments.insert("date".to_owned(), json!(random.pick(DATES)));
            }
            "files:write"
        }
        _ => {
            if !random.one_in(4) {
                arguments.insert("text".to_owned(), json!(random.pick(WORDS).trim()));
            }
            "remember"
        }
    };
    (tool.to_owned(), arguments)
}

/// A text of one line or several.
fn lines(random: &mut Random) -> String {
    if random.one_in(3) {
        return random.pick(WORDS).trim().to_owned();
    }
    let mut text = random.pick(WORDS).to_owned();
    for _ in 0..1 + random.below(4) {
        text.push('\n');
        text.push_str(random.pick(LINES));
    }
    if random.one_in(2) {
        text.push('\n');
    }
    text
}

/// Whether a mark is an opening tag with the name of a parameter or tool in it.
fn says_its_name(mark: &str) -> bool {
    mark.contains('=')
}

/// The mark with one character missing, doubled, changed, moved or too many.
fn misspelt(mark: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = mark.chars().collect();
    if chars.is_empty() {
        return String::new();
    }
    let at = random.below(chars.len());
    match random.below(5) {
        0 | 1 => {
            chars.remove(at);
        }
        2 => {
            let c = chars[at];
            chars.insert(at, c);
        }
        3 if at + 1 < chars.len() => chars.swap(at, at + 1),
        _ => {
            chars[at] = random.pick(&[
                'x', ' ', '/', '<', '>', ';', '_', '末', '始', '[', ']', '|', '"',
            ])
        }
    }
    chars.into_iter().collect()
}
