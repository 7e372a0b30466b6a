//! The wording of the section in each language.

use super::Language;
use crate::Dialect;

pub(super) struct Words {
    pub(super) intro: &'static str,
    pub(super) tools: &'static str,
    pub(super) skills: &'static str,
    pub(super) parameters: &'static str,
    pub(super) required: &'static str,
    pub(super) optional: &'static str,
    pub(super) example: &'static str,
    pub(super) worked_example: &'static str,
    pub(super) chain: &'static str,
    action_closing: &'static str,
    block_closing: &'static str,
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
    worked_example: "A complete call:",
    chain: "Several calls in one block run one after the other and are numbered:",
    action_closing: "When you decide to use a tool or skill, first explain your reasoning, then output the <ACTION> block with the chosen tool/skill ID as the main tag, and its parameters as child tags. If no action is needed, just provide your textual response.",
    block_closing: "When you decide to use a tool or skill, first explain your reasoning, then output one call block. If no action is needed, just provide your textual response.",
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
    worked_example: "一次完整的调用：",
    chain: "一个块中的多个调用按编号依次执行：",
    action_closing: "当你决定使用工具或技能时，先说明理由，再输出 <ACTION> 块，以所选工具或技能的 ID 作为主标签，参数作为子标签。如果不需要行动，直接用文字回应即可。",
    block_closing: "当你决定使用工具或技能时，先说明理由，再输出一个调用块。如果不需要行动，直接用文字回应即可。",
    action_rules: "只写一个 <ACTION> 块，不要放在代码围栏里，写完 </ACTION> 就停下；结果会以 Observation 给出。含有 <、& 或多行内容的值用 <![CDATA[ 和 ]]> 包裹。列表写成重复的 <item> 元素，对象写成嵌套元素。",
    fields_rules: "只写一个块，不要放在代码围栏里，写完结束标记就停下；结果会以 Observation 给出。`command` 指定工具；每个值写在「始」与「末」之间，无需转义。如果值本身含有这些词，改用「始ESCAPE」和「末ESCAPE」。",
    fields_v2_rules: "只写一个块，不要放在代码围栏里，写完结束标记就停下；结果会以 Observation 给出。`command` 指定工具；每个值写在 »»» 与 ««« 之间，无需转义。",
    vcp_rules: "只写一个块，不要放在代码围栏里，写完结束标记就停下；结果会以 Observation 给出。`tool_name` 指定工具；每个值写在「始」与「末」之间。如果值本身含有这些词，改用「始ESCAPE」和「末ESCAPE」。",
    tag_rules: "只写一个 <tool_call> 元素，不要放在代码围栏里，写完就停下；结果会以 Observation 给出。含有 <、& 或多行内容的值用 <![CDATA[ 和 ]]> 包裹。",
    json_rules: "只写一个含 name 和 arguments 的 JSON 对象，写完就停下；结果会以 Observation 给出。",
};
