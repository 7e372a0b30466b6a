//! Parts of a schema as validators of their own.

use super::*;

#[test]
fn a_part_holds_values_against_its_own_rules_and_the_references_of_the_whole() {
    for extra in [
        json!({}),
        json!({"$id": "https://example.test/tool.json"}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
    ] {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "a b/c%": {"anyOf": [
                    {"$ref": "#/$defs/short"},
                    {"type": "array", "items": {"$ref": "#/properties/a%20b~1c%25"}},
                    {"type": "object", "properties": {"again": {"$ref": "#"}}, "required": ["again"]}
                ]}
            },
            "$defs": {"short": {"type": "string", "maxLength": 2}}
        });
        let members = schema.as_object_mut().unwrap();
        members.extend(extra.as_object().unwrap().clone());
        let whole = Schema::compile(&schema).unwrap();
        let part = whole.part("/properties/a b~1c%").unwrap();
        for (value, valid) in [
            (json!("ab"), true),
            (json!("abc"), false),
            (json!(["ab", ["a"]]), true),
            (json!([3]), false),
            (json!({"again": {"a b/c%": "ab"}}), true),
            (json!({"again": {"a b/c%": "abc"}}), false),
        ] {
            assert_eq!(whole.part_is_valid(&part, &value), valid, "{value} {extra}");
        }
        assert!(whole.part("/properties/other").is_none());
    }
}
