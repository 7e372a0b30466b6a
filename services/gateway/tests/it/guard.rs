//! The hosts and origins that may call by plain HTTP.

use crate::edge::Edge;

const PARSE: &str = "/tavern.gateway.v1.GatewayService/ParseText";
const JSON: &str = "content-type: application/json\r\n";

#[tokio::test]
async fn only_names_of_the_server_are_served() {
    let edge = Edge::start().await;
    let own = edge.host();
    for (headers, status) in [
        (format!("host: {own}\r\n"), 200),
        ("host: localhost\r\n".to_owned(), 200),
        ("host: LOCALHOST:80\r\n".to_owned(), 200),
        ("host: 127.8.9.1:7401\r\n".to_owned(), 200),
        ("host: [::1]:7401\r\n".to_owned(), 200),
        ("host: tavern.example:443\r\n".to_owned(), 200),
        ("host: rebound.example\r\n".to_owned(), 421),
        ("host: localhost.example\r\n".to_owned(), 421),
        ("host: 10.0.0.1\r\n".to_owned(), 421),
        (format!("host: {own}\r\nhost: {own}\r\n"), 400),
        ("host: a@localhost\r\n".to_owned(), 400),
        (String::new(), 400),
    ] {
        let answer = edge.send("GET", "/", &headers, b"").await;
        assert_eq!(answer.status, status, "{headers}: {}", answer.head);
        let headers = format!("{headers}{JSON}");
        let answer = edge
            .send("POST", PARSE, &headers, b"{\"catalogue\":{}}")
            .await;
        assert_eq!(answer.status, status, "{headers}: {}", answer.head);
    }
}

#[tokio::test]
async fn only_own_and_listed_pages_may_call() {
    let edge = Edge::start().await;
    let host = edge.host();
    for (headers, status) in [
        (format!("origin: http://{host}\r\n"), 200),
        ("origin: https://app.example\r\n".to_owned(), 200),
        (format!("origin: https://{host}\r\n"), 403),
        ("origin: http://app.example\r\n".to_owned(), 403),
        ("origin: https://app.example:8443\r\n".to_owned(), 403),
        ("origin: null\r\n".to_owned(), 403),
        (format!("origin: http://{host}\r\norigin: null\r\n"), 403),
        ("sec-fetch-site: cross-site\r\n".to_owned(), 403),
        ("sec-fetch-site: same-site\r\n".to_owned(), 403),
        ("sec-fetch-site: same-origin\r\n".to_owned(), 200),
        ("sec-fetch-site: none\r\n".to_owned(), 200),
    ] {
        let headers = format!("host: {host}\r\n{JSON}{headers}");
        let answer = edge
            .send("POST", PARSE, &headers, b"{\"catalogue\":{}}")
            .await;
        assert_eq!(answer.status, status, "{headers}");
        assert!(answer.has("vary: origin"), "{}", answer.head);
        let listed = answer.has("access-control-allow-origin: https://app.example");
        assert_eq!(listed, headers.contains("origin: https://app.example\r\n"));
    }
}

#[tokio::test]
async fn a_listed_proxy_states_where_its_clients_are() {
    let https = "x-forwarded-proto: https\r\n";
    let elsewhere = "x-forwarded-host: tavern.example\r\n";
    for (proxies, forwarded, origin, status) in [
        (&["127.0.0.1"][..], https, "https://HOST", 200),
        (&["10.0.0.0/8", "127.0.0.0/8"], https, "https://HOST", 200),
        (&["::ffff:127.0.0.1"], https, "https://HOST", 200),
        (&["127.0.0.1"], https, "http://HOST", 403),
        (&["127.0.0.1"], "", "https://HOST", 403),
        (&["127.0.0.1"], "", "http://HOST", 200),
        (&["127.0.0.2", "::/0"], https, "https://HOST", 403),
        (&[], https, "https://HOST", 403),
        (&["127.0.0.1"], "x-forwarded-proto: ftp\r\n", "", 400),
        (
            &["127.0.0.1"],
            "x-forwarded-proto: https, http\r\n",
            "",
            400,
        ),
        (&[], "x-forwarded-proto: ftp\r\n", "http://HOST", 200),
    ] {
        let edge = Edge::behind(proxies).await;
        let host = edge.host();
        let origin = match origin {
            "" => String::new(),
            origin => format!("origin: {}\r\n", origin.replace("HOST", &host)),
        };
        let headers = format!("host: {host}\r\n{JSON}{forwarded}{origin}");
        let answer = edge
            .send("POST", PARSE, &headers, b"{\"catalogue\":{}}")
            .await;
        assert_eq!(answer.status, status, "{proxies:?}: {headers}");
    }
    for (proxies, forwarded, status) in [
        (&["127.0.0.1"][..], elsewhere.to_owned(), 200),
        (
            &["127.0.0.1"],
            elsewhere.replace("example", "example:443"),
            200,
        ),
        (
            &["127.0.0.1"],
            elsewhere.replace("example", "example:444"),
            403,
        ),
        (&["127.0.0.1"], elsewhere.replace("tavern", "rebound"), 421),
        (&["127.0.0.1"], elsewhere.replace("tavern", "a@tavern"), 400),
        (&["127.0.0.1"], elsewhere.repeat(2), 400),
        (&[], elsewhere.to_owned(), 403),
    ] {
        let edge = Edge::behind(proxies).await;
        let origin = "origin: https://tavern.example\r\n";
        let headers = format!("host: {}\r\n{https}{forwarded}{origin}", edge.host());
        let answer = edge.send("GET", "/", &headers, b"").await;
        assert_eq!(answer.status, status, "{proxies:?}: {headers}");
        if status == 200 {
            assert!(answer.text().contains("https://tavern.example/console is"));
        }
    }
}

#[tokio::test]
async fn browsers_keep_to_tls_that_a_listed_proxy_ends_for_a_name_that_is_not_of_loopback() {
    let https = "x-forwarded-proto: https\r\n";
    let named = format!("host: tavern.example\r\n{https}");
    let listed = Edge::behind(&["127.0.0.1"]).await;
    let unlisted = Edge::start().await;
    for (edge, headers, keeps) in [
        (&listed, named.clone(), true),
        (&listed, named.replace("https", "http"), false),
        (&listed, "host: tavern.example\r\n".to_owned(), false),
        (&listed, named.replace("tavern.example", "localhost"), false),
        (
            &listed,
            named.replace("tavern.example", "[::1]:7401"),
            false,
        ),
        (
            &listed,
            format!("host: localhost\r\nx-forwarded-host: tavern.example\r\n{https}"),
            true,
        ),
        (
            &listed,
            format!("{named}x-forwarded-host: localhost\r\n"),
            false,
        ),
        (&unlisted, named.clone(), false),
    ] {
        for (path, status) in [("/console", 200), ("/none", 404)] {
            let answer = edge.send("GET", path, &headers, b"").await;
            assert_eq!(answer.status, status, "{headers}");
            let asks = answer.has("strict-transport-security: max-age=31536000");
            assert_eq!(asks, keeps, "{headers}: {}", answer.head);
        }
    }
    // A name that is none of the server's is not kept to anything.
    let foreign = named.replace("tavern", "rebound");
    let refused = listed.send("GET", "/console", &foreign, b"").await;
    assert_eq!(refused.status, 421);
    assert!(!refused.head.contains("strict-transport-security"));
}

#[tokio::test]
async fn a_link_leads_to_the_front_page_and_nowhere_else() {
    let edge = Edge::start().await;
    let visit = "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n";
    let visit = format!("host: {}\r\n{visit}", edge.host());
    assert_eq!(edge.send("GET", "/", &visit, b"").await.status, 200);
    assert_eq!(
        edge.send("GET", "/v1/models", &visit, b"").await.status,
        403
    );
    let script = visit.replace("navigate", "no-cors");
    assert_eq!(edge.send("GET", "/", &script, b"").await.status, 403);
}

#[tokio::test]
async fn a_preflight_names_what_listed_pages_may_send() {
    let edge = Edge::start().await;
    let ask = |origin: &str| {
        format!(
            "host: {}\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n",
            edge.host()
        )
    };
    let listed = edge
        .send("OPTIONS", PARSE, &ask("https://app.example"), b"")
        .await;
    assert_eq!(listed.status, 204);
    assert!(listed.has("access-control-allow-origin: https://app.example"));
    assert!(listed.head.contains("connect-protocol-version"));
    assert!(listed.head.contains("if-none-match") && listed.head.contains("put, delete"));
    assert!(!listed.head.contains("access-control-allow-credentials"));
    let other = edge
        .send("OPTIONS", PARSE, &ask("https://other.example"), b"")
        .await;
    assert_eq!(other.status, 403);
    assert!(!other.head.contains("access-control-allow"));
}
