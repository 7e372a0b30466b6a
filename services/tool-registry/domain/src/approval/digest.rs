//! The digest that a consent is bound to, and the shown form of arguments.

use std::fmt::Write;

use core_types::{Principal, text::is_hidden};

const DOMAIN: &str = "tavern.approval.v1";

/// Returns the digest that a decision quotes (rule G802), in hexadecimal digits.
pub fn digest_of(tool: &str, tool_digest: &str, effect: &str, canonical: &str) -> String {
    let parts = [DOMAIN, tool, tool_digest, effect, canonical];
    hex::encode(canonical_json::digest_of_parts(parts.map(str::as_bytes)))
}

/// Returns the digest by which an approval is remembered for later calls of the same principal: that of a
/// decision, without the effect.
pub fn digest_to_remember(
    tool: &str,
    tool_digest: &str,
    principal: &Principal,
    canonical: &str,
) -> String {
    if principal.is_local() {
        return digest_of(tool, tool_digest, "", canonical);
    }
    let parts = [DOMAIN, tool, tool_digest, "", canonical, principal.as_str()];
    hex::encode(canonical_json::digest_of_parts(parts.map(str::as_bytes)))
}

/// Returns canonical JSON with all characters escaped that are invisible, or that change the
/// reading order of the others (rule G803). It is the same value.
pub fn shown(canonical: &str) -> String {
    let mut text = String::with_capacity(canonical.len());
    for character in canonical.chars() {
        if !is_hidden(character) {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(text, "\\u{unit:04x}").expect("a String takes all that is written");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn g802_an_approval_has_the_digest_of_the_vector() {
        let arguments = json!({"to": "player", "item": "moonmoss ring", "value": 80});
        let digest = digest_of(
            "workflow:grant_item",
            "85a2802a31781f04b71bcce4ea4fbb6a874b3f811bad9084b45673f6a035deb8",
            "eff_5c1f0c9a7a1e4a7b8b0d2f6a9c3e1d07",
            &canonical_json::to_string(&arguments),
        );
        let expected = "a65bd82f335dcce821678f663eccbd240c8228c23fb1e31c37b43d399e2ff361";
        assert_eq!(digest, expected);
    }

    #[test]
    fn an_approval_is_remembered_for_its_principal_and_that_of_local_as_before() {
        let of = |name: &str| digest_to_remember("t", "d", &Principal::new(name).unwrap(), "{}");
        assert_eq!(of("local"), digest_of("t", "d", "", "{}"));
        assert_ne!(of("ada"), of("local"));
        assert_ne!(of("ada"), of("bob"));
    }

    #[test]
    fn g803_hidden_characters_are_escaped_and_the_value_stays() {
        let value = json!({"a": "pay\u{202e}001\u{200b} \u{e0041}é🙂"});
        let text = shown(&canonical_json::to_string(&value));
        assert_eq!(text, "{\"a\":\"pay\\u202e001\\u200b \\udb40\\udc41é🙂\"}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
