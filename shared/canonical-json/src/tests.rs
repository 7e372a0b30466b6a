use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// A text, its canonical text, and the digest of the canonical text.
const VECTORS: [(&str, &str, &str); 5] = [
    (
        r#"{"b":1.0,"a":[1e2,-0,0.10]}"#,
        r#"{"a":[100,0,0.1],"b":1}"#,
        "8663f2f06976239e45adb9065e6d0eb36ba0e73aa643516ad7d5a6df8c0b8a12",
    ),
    (
        r#"{"id":9007199254740993}"#,
        r#"{"id":9007199254740993}"#,
        "2185812179ffd2b19c8154d2d409599d231fb75ef4968df59b7f02b435c094fa",
    ),
    (
        r#"{"é":"\u0007\u202e","z":null,"Z":true}"#,
        "{\"Z\":true,\"z\":null,\"é\":\"\\u0007\u{202e}\"}",
        "c771ff34e5e010a12a9d687fddf963fafb6f150282162b266a7c9bb26c1fd49c",
    ),
    (
        r#"{"big":1e60,"tiny":1.5E-50}"#,
        r#"{"big":1e60,"tiny":1.5e-50}"#,
        "7477bbd5db382dfead74311283c2376aee09db15a9ce89b7f93bb5751f8ea4c8",
    ),
    (
        r#"{"item":"moonmoss ring","value":80,"to":"player"}"#,
        r#"{"item":"moonmoss ring","to":"player","value":80}"#,
        "ae80cb81fa66b9535584e27e7fcdcec98205efce609759a02dcd11c5dfb58ae7",
    ),
];

fn parse(written: &str) -> Value {
    serde_json::from_str(written).unwrap()
}

#[test]
fn g802_each_vector_has_its_text_and_its_digest() {
    for (written, canonical, sha256) in VECTORS {
        let value = parse(written);
        assert_eq!(to_string(&value), canonical);
        assert_eq!(hex::encode(digest(&value)), sha256);
    }
}

#[test]
fn g802_numbers_of_one_value_have_one_text() {
    for (written, expected) in [
        ("-0.0", "0"),
        ("0e5", "0"),
        ("-1.50", "-1.5"),
        ("100", "100"),
        ("1e2", "100"),
        ("0.001e3", "1"),
        ("123e-2", "1.23"),
        ("0.000001", "0.000001"),
        ("1e30", "1e30"),
        ("12.5e40", "1.25e41"),
        ("-1e-30", "-1e-30"),
        ("1E400", "1e400"),
        (
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        ),
    ] {
        assert_eq!(to_string(&parse(written)), expected, "{written}");
    }
}

proptest! {
    #[test]
    fn the_text_of_a_value_reads_as_an_equal_value(mantissa: i64, exponent in -60i32..60) {
        let written = format!("{mantissa}e{exponent}");
        let text = to_string(&parse(&written));
        prop_assert_eq!(to_string(&parse(&text)), text.clone());
        let (read, meant): (f64, f64) = (text.parse().unwrap(), written.parse().unwrap());
        prop_assert_eq!(read, meant);
    }

    #[test]
    fn the_order_of_keys_makes_no_difference(keys in proptest::collection::hash_set(".{0,6}", 0..8)) {
        let forward: serde_json::Map<_, _> = keys.iter().map(|key| (key.clone(), Value::Null)).collect();
        let backward = forward.clone().into_iter().rev().collect();
        prop_assert_eq!(digest(&Value::Object(forward)), digest(&Value::Object(backward)));
    }
}
