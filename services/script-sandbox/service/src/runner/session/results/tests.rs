use blob_store::BlobSettings;
use core_types::Tenant;

use super::*;

fn results(directory: &std::path::Path, total: usize) -> Results {
    let settings = BlobSettings {
        directory: directory.to_owned(),
        total,
        ..BlobSettings::default()
    };
    let store = ResultStore {
        blobs: BlobStore::open(&settings).unwrap(),
        caller: Caller::named(Tenant::DEFAULT, "alice"),
    };
    Results::new(store)
}

fn shown(parts: &[(&str, &str)]) -> ShownResult {
    let data = serde_json::Map::from_iter(
        parts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).into())),
    );
    let result = serde_json::json!({ "cell": 1, "origin": "display", "data": data });
    serde_json::from_value(result).unwrap()
}

async fn given_to(results: &mut Results, shown: ShownResult) -> Option<CellResult> {
    let taken = results.take(1, shown)?;
    results.keep(taken).await
}

#[tokio::test]
async fn contents_follow_their_types() {
    let directory = tempfile::tempdir().unwrap();
    let mut results = results(directory.path(), 1 << 20);
    let text = |text: &str| Some(Shown::Text(text.to_owned()));
    let long = format!("a/{}", "b".repeat(125));
    let longer = format!("{long}b");
    for (media_type, given, expected) in [
        ("text/plain", "é", text("é")),
        ("TEXT/Plain", "é", text("é")),
        ("image/svg+xml", "<svg/>", text("<svg/>")),
        ("application/json", "{\"a\":1}", text("{\"a\":1}")),
        ("application/vnd.x+json", "7", text("7")),
        ("image/png", "AAEC", Some(Shown::Bytes(vec![0, 1, 2]))),
        (&long, "", Some(Shown::Bytes(vec![]))),
        ("application/json", "{", None),
        ("application/json", &"[".repeat(1000), None),
        ("image/png", "no base64!", None),
        ("application/javascript", "alert(1)", None),
        ("text/javascript", "alert(1)", None),
        (&longer, "", None),
        ("text", "", None),
        ("text/", "", None),
        ("a/b/c", "", None),
        ("text/html; charset=utf-8", "", None),
    ] {
        let result = given_to(&mut results, shown(&[(media_type, given)])).await;
        let content = result.map(|mut result| result.data.remove(0).content);
        assert_eq!(content, expected, "{media_type} {given:.9}");
    }
    let html = "x".repeat(MAX_HTML_BYTES + 1);
    let both = shown(&[("text/html", &html), ("text/plain", "x")]);
    let result = given_to(&mut results, both).await.unwrap();
    assert_eq!((result.index, result.data.len()), (7, 1));
}

#[tokio::test]
async fn results_beyond_a_bound_are_dropped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut of_room = results(directory.path(), 100 << 20);
    let most = "x".repeat(MAX_RESULT_BYTES);
    let more = shown(&[("text/plain", &most), ("text/latex", "x")]);
    assert_eq!(given_to(&mut of_room, more).await, None);
    for _ in 0..4 {
        let result = given_to(&mut of_room, shown(&[("text/plain", &most)])).await;
        assert!(matches!(
            result.unwrap().data[0].content,
            Shown::Blob(digest) if digest == BlobDigest::of(most.as_bytes())
        ));
    }
    assert_eq!(
        given_to(&mut of_room, shown(&[("text/plain", "x")])).await,
        None
    );
    assert_eq!(given_to(&mut of_room, shown(&[])).await, None);
    assert_eq!(of_room.dropped(), 3);

    let directory = tempfile::tempdir().unwrap();
    let mut of_number = results(directory.path(), 1 << 20);
    for number in 0..40 {
        let result = given_to(&mut of_number, shown(&[("text/plain", "x")])).await;
        assert_eq!(result.is_some(), number < MAX_RESULTS);
    }
    assert!(of_number.take(2, shown(&[("text/plain", "x")])).is_none());
    assert_eq!(of_number.dropped(), 9);
}

#[tokio::test]
async fn a_representation_without_room_is_dropped_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut results = results(directory.path(), 64 << 10);
    let large = "x".repeat(128 << 10);
    let both = shown(&[("text/html", &large), ("text/plain", "x")]);
    let result = given_to(&mut results, both).await.unwrap();
    assert_eq!(result.data.len(), 1);
    assert_eq!(result.data[0].media_type, "text/plain");
    let alone = given_to(&mut results, shown(&[("text/html", &large)])).await;
    assert_eq!((alone, results.dropped()), (None, 2));
    let next = given_to(&mut results, shown(&[("text/plain", "x")])).await;
    assert_eq!(next.unwrap().index, 1);
}

#[test]
fn metadata_is_a_bounded_object_or_none() {
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_METADATA_BYTES));
    for (given, expected) in [
        (
            "{\"image/png\":{\"width\":1}}",
            "{\"image/png\":{\"width\":1}}",
        ),
        ("", ""),
        ("[]", ""),
        ("{", ""),
        ("{} {}", ""),
        (&long, ""),
    ] {
        assert_eq!(object(given.to_owned()), expected, "{given:.20}");
    }
}
