use super::*;

#[test]
fn the_words_of_a_vendor_are_found_and_cut() {
    let long = "x".repeat(2_000);
    let cases = [
        (
            r#"{"error":{"message":"no such model","type":"t"}}"#,
            "no such model",
        ),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "Overloaded",
        ),
        (r#"{"error":"overloaded"}"#, "overloaded"),
        (r#"{"detail":"nope"}"#, "nope"),
        ("<html>\n502</html>", "<html> 502</html>"),
        ("", "it gave no reason"),
        (long.as_str(), &long[..500]),
    ];
    for (body, expected) in cases {
        let error = read(500, &HeaderMap::new(), body, SystemTime::now());
        let ModelError::Refused(refusal) = error else {
            panic!("{error:?}")
        };
        assert_eq!(refusal.message, expected);
    }
}

#[test]
fn the_wait_is_read_in_every_form() {
    let now = httpdate::parse_http_date("Fri, 20 Nov 2026 10:00:00 GMT").unwrap();
    let cases = [
        (None, Some("7"), Some(Duration::from_secs(7))),
        (None, Some("0.5"), Some(Duration::from_millis(500))),
        (Some("250"), Some("7"), Some(Duration::from_millis(250))),
        (
            None,
            Some("Fri, 20 Nov 2026 10:00:30 GMT"),
            Some(Duration::from_secs(30)),
        ),
        (
            None,
            Some("Fri, 20 Nov 2026 09:00:00 GMT"),
            Some(Duration::ZERO),
        ),
        (None, Some("soon"), None),
        (None, Some("-3"), None),
        (None, None, None),
    ];
    for (milliseconds, header, expected) in cases {
        assert_eq!(
            retry_after(milliseconds, header, now),
            expected,
            "{header:?}"
        );
    }
}

#[test]
fn an_exhausted_quota_is_recognised() {
    let cases = [
        (
            r#"{"error":{"message":"m","code":"insufficient_quota"}}"#,
            true,
        ),
        (
            r#"{"error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
            true,
        ),
        (
            r#"{"error":{"message":"slow down","code":"rate_limit"}}"#,
            false,
        ),
        ("insufficient_quota", false),
    ];
    for (body, expected) in cases {
        let error = read(429, &HeaderMap::new(), body, SystemTime::now());
        assert_eq!(error.code() == "model_quota_exhausted", expected, "{body}");
        assert_eq!(error.is_retryable(), !expected, "{body}");
    }
}

#[test]
fn the_wish_of_the_endpoint_overrules_the_status() {
    let mut headers = HeaderMap::new();
    headers.insert("x-should-retry", "false".parse().unwrap());
    assert!(!read(503, &headers, "", SystemTime::now()).is_retryable());
    headers.insert("x-should-retry", "true".parse().unwrap());
    assert!(read(400, &headers, "", SystemTime::now()).is_retryable());
}

#[test]
fn g603_a_request_that_is_too_long_is_known_by_code_or_words() {
    for (body, expected) in [
        (
            r#"{"error":{"message":"too many tokens","code":"context_length_exceeded"}}"#,
            true,
        ),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 201000 tokens > 200000 maximum"}}"#,
            true,
        ),
        (
            r#"{"error":{"message":"the name is too long","code":"bad_request"}}"#,
            false,
        ),
        ("", false),
    ] {
        let error = read(400, &HeaderMap::new(), body, SystemTime::now());
        assert_eq!(error.is_context_exceeded(), expected, "{body}");
    }
}
