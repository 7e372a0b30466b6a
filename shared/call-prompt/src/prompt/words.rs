//! The wording of the section in each language.

use call_catalogue::Dialect;

use super::Language;

/// The subject of a worked example.
#[derive(Clone, Copy)]
pub(super) enum Example {
    /// An answer without a call.
    Plain,
    /// One call.
    Call,
    /// A list or an object as a parameter.
    Structured,
    /// A text that has to be delimited.
    Awkward,
    /// A call after an error.
    Correction,
    /// Several calls.
    Chain,
}

pub(super) struct Words {
    pub(super) intro: &'static str,
    pub(super) tools: &'static str,
    pub(super) skills: &'static str,
    pub(super) parameters: &'static str,
    pub(super) required: &'static str,
    pub(super) optional: &'static str,
    pub(super) example: &'static str,
    pub(super) examples: &'static str,
    plain: (&'static str, &'static str),
    call: (&'static str, &'static str),
    structured: (&'static str, &'static str),
    awkward: (&'static str, &'static str),
    correction: (&'static str, &'static str),
    chain: (&'static str, &'static str),
    action_closing: &'static str,
    block_closing: &'static str,
    /// Keeps a model from the form in which it was trained to write calls.
    pub(super) other_forms: &'static str,
    action_rules: &'static str,
    fields_rules: &'static str,
    fields_v2_rules: &'static str,
    vcp_rules: &'static str,
    tag_rules: &'static str,
    json_rules: &'static str,
}

impl Words {
    pub(super) fn of(language: Language) -> &'static Words {
        match language {
            Language::En => &ENGLISH,
            Language::Zh => &CHINESE,
        }
    }

    pub(super) fn closing(&self, dialect: Dialect) -> &'static str {
        if dialect == Dialect::Action {
            self.action_closing
        } else {
            self.block_closing
        }
    }

    /// Returns the title of an example, and the text before its call.
    pub(super) fn example(&self, example: Example) -> (&'static str, &'static str) {
        match example {
            Example::Plain => self.plain,
            Example::Call => self.call,
            Example::Structured => self.structured,
            Example::Awkward => self.awkward,
            Example::Correction => self.correction,
            Example::Chain => self.chain,
        }
    }

    pub(super) fn rules(&self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Action => self.action_rules,
            Dialect::TamV1 => self.fields_rules,
            Dialect::TamV2 => self.fields_v2_rules,
            Dialect::Vcp => self.vcp_rules,
            Dialect::ToolTag => self.tag_rules,
            Dialect::ToolJson | Dialect::Native => self.json_rules,
        }
    }
}

static ENGLISH: Words = Words {
    intro: "You have access to the following tools and skills:",
    tools: "Tools (direct function calls):",
    skills: "Skills (workflow executions):",
    parameters: "Parameters",
    required: "required",
    optional: "optional",
    example: "Example",
    examples: "Examples (the values are made up):",
    plain: (
        "No tool is needed:",
        "A day has 24 hours; I know that without a tool.",
    ),
    call: ("One call:", "I do not know this yet, so I look it up."),
    structured: (
        "A list or an object as a parameter:",
        "This parameter has parts, so I write each of them.",
    ),
    awkward: (
        "A value with special characters and several lines:",
        "I write the text exactly as it is meant.",
    ),
    correction: (
        "A correction after an error:",
        "I misspelled a parameter, so I call the tool again with the right name.",
    ),
    chain: (
        "Several calls in one block, which run one after the other and are numbered:",
        "I need both, so I ask for both at once.",
    ),
    action_closing: "When you decide to use a tool or skill, first explain your reasoning, then output the <ACTION> block with the chosen tool/skill ID as the main tag, and its parameters as child tags. If no action is needed, just provide your textual response.",
    block_closing: "When you decide to use a tool or skill, first explain your reasoning, then output one call block. If no action is needed, just provide your textual response.",
    other_forms: "Calls in any other form may not be read.",
    action_rules: "Write one <ACTION> block, outside of code fences, and stop after </ACTION>; the result comes as an Observation. Wrap values that hold <, & or several lines in <![CDATA[ and ]]>. Write lists as repeated <item> elements and objects as nested elements.",
    fields_rules: "Write one block, outside of code fences, and stop after its end marker; the result comes as an Observation. `command` names the tool; every value stands between 「始」 and 「末」 and needs no escaping. If a value itself contains these words, delimit it with 「始ESCAPE」 and 「末ESCAPE」.",
    fields_v2_rules: "Write one block, outside of code fences, and stop after its end marker; the result comes as an Observation. `command` names the tool; every value stands between »»» and ««« and needs no escaping.",
    vcp_rules: "Write one block, outside of code fences, and stop after its end marker; the result comes as an Observation. `tool_name` names the tool; every value stands between 「始」 and 「末」. If a value itself contains these words, delimit it with 「始ESCAPE」 and 「末ESCAPE」.",
    tag_rules: "Write one <tool_call> element, outside of code fences, and stop after it; the result comes as an Observation. Wrap values that hold <, & or several lines in <![CDATA[ and ]]>.",
    json_rules: "Write one JSON object with name and arguments, and stop after it; the result comes as an Observation.",
};

static CHINESE: Words = Words {
    intro: "你可以使用以下工具和技能：",
    tools: "工具（直接函数调用）：",
    skills: "技能（工作流执行）：",
    parameters: "参数",
    required: "必需",
    optional: "可选",
    example: "示例",
    examples: "示例（其中的值都是虚构的）：",
    plain: ("不需要工具：", "一天有 24 小时，这不需要工具就能回答。"),
    call: ("一次调用：", "这一点我还不知道，所以先查一下。"),
    structured: (
        "以列表或对象作为参数：",
        "这个参数由几部分组成，所以我逐一写出。",
    ),
    awkward: ("含有特殊字符和多行内容的值：", "我把这段文字原样写出。"),
    correction: (
        "出错后的纠正：",
        "我把参数名写错了，所以用正确的名称再调用一次。",
    ),
    chain: (
        "一个块中的多个调用，编号后依次执行：",
        "两者都需要，所以一次提出。",
    ),
    action_closing: "当你决定使用工具或技能时，先说明理由，再输出 <ACTION> 块，以所选工具或技能的 ID 作为主标签，参数作为子标签。如果不需要行动，直接用文字回应即可。",
    block_closing: "当你决定使用工具或技能时，先说明理由，再输出一个调用块。如果不需要行动，直接用文字回应即可。",
    other_forms: "用其他形式写的调用可能不会被读取。",
    action_rules: "只写一个 <ACTION> 块，不要放在代码围栏里，写完 </ACTION> 就停下；结果会以 Observation 给出。含有 <、& 或多行内容的值用 <![CDATA[ 和 ]]> 包裹。列表写成重复的 <item> 元素，对象写成嵌套元素。",
    fields_rules: "只写一个块，不要放在代码围栏里，写完结束标记就停下；结果会以 Observation 给出。`command` 指定工具；每个值写在「始」与「末」之间，无需转义。如果值本身含有这些词，改用「始ESCAPE」和「末ESCAPE」。",
    fields_v2_rules: "只写一个块，不要放在代码围栏里，写完结束标记就停下；结果会以 Observation 给出。`command` 指定工具；每个值写在 »»» 与 ««« 之间，无需转义。",
    vcp_rules: "只写一个块，不要放在代码围栏里，写完结束标记就停下；结果会以 Observation 给出。`tool_name` 指定工具；每个值写在「始」与「末」之间。如果值本身含有这些词，改用「始ESCAPE」和「末ESCAPE」。",
    tag_rules: "只写一个 <tool_call> 元素，不要放在代码围栏里，写完就停下；结果会以 Observation 给出。含有 <、& 或多行内容的值用 <![CDATA[ 和 ]]> 包裹。",
    json_rules: "只写一个含 name 和 arguments 的 JSON 对象，写完就停下；结果会以 Observation 给出。",
};
