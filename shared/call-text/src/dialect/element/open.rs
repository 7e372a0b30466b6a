//! The tags that open a block or a call.

use call_catalogue::{Catalogue, Dialect};

use crate::Policy;
use crate::scan::tag::{Tag, TagKind};

/// The part of a block that an opening tag in the text begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// A wrapper, by its lower-case name.
    Wrapper(&'static str),
    /// A call that needs no wrapper.
    Call,
    /// A visible tool's element: a call if `</ACTION>` follows it (A11), else text (A12).
    BareTool,
}

/// Whether elements of this name carry a call's name in an attribute or after `=`.
pub(in crate::dialect::element) fn is_generic_call(name: &str) -> bool {
    // Most names are none of these, by their length.
    matches!(name.len(), 4 | 6 | 8 | 9 | 13)
        && [
            "tool_call",
            "invoke",
            "function",
            "tool",
            "function_call",
            "call",
            "use_tool",
        ]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether elements of this name carry a parameter's name in an attribute or after `=`.
pub(super) fn is_generic_parameter(name: &str) -> bool {
    name.starts_with(['p', 'P', 'a', 'A'])
        && ["param", "parameter", "arg", "argument"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a tag opens a call by the name in its attribute or after its `=`.
pub(super) fn names_call(tag: &Tag, text: &str, catalogue: &Catalogue) -> bool {
    let name = tag.name.of(text);
    let named = tag.named(text).filter(|_| is_generic_call(name));
    named.is_some_and(|(called, _)| {
        let sure = ["tool_call", "invoke", "function"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known));
        called.contains(char::is_alphanumeric) && (sure || catalogue.has_visible(called))
    })
}

/// Returns the block or call that a tag in the text opens; `None` for a tag that is text.
pub(crate) fn opening(
    tag: &Tag,
    text: &str,
    catalogue: &Catalogue,
    policy: &Policy,
    line_start: bool,
) -> Option<Opening> {
    if tag.kind == TagKind::Close {
        return None;
    }
    let name = tag.name.of(text);
    let allows = |dialect: Dialect| policy.dialect.is_none_or(|fixed| fixed == dialect);
    let tags = allows(Dialect::ToolTag) || allows(Dialect::ToolJson);
    let open = tag.kind == TagKind::Open;
    if open && allows(Dialect::Action) && name.eq_ignore_ascii_case("action") {
        return Some(Opening::Wrapper("action"));
    }
    let named = tag.named(text);
    if tags {
        for wrapper in ["tool_call", "function_calls", "tool_calls"] {
            if open
                && named.is_none()
                && tag.attributes.len() <= usize::from(policy.nonce.is_some())
                && name.eq_ignore_ascii_case(wrapper)
            {
                return Some(Opening::Wrapper(wrapper));
            }
        }
        if allows(Dialect::ToolTag) && names_call(tag, text, catalogue) {
            return Some(Opening::Call);
        }
    }
    let bare = allows(Dialect::Action) && line_start && !policy.strict && policy.nonce.is_none();
    if bare && catalogue.has_visible(name) {
        return Some(Opening::BareTool);
    }
    None
}
