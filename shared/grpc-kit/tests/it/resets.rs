//! Streams and connections that a server ends without a status, as a server that is killed does.

use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::settings::ClientSettings;
use h2::Reason;
use http::Response;
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tonic::{Code, Status};

use crate::probe::Client;

/// The end of a stream by its server.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Before it answers, with this reason.
    Reset(Reason),
    /// After the head of its answer, with this reason.
    ResetAfterHead(Reason),
    /// With its connection, after the head of its answer.
    Close,
}

/// Serves one connection, and ends each stream of it.
async fn serve(listener: TcpListener, end: End) {
    let (socket, _) = listener.accept().await.unwrap();
    let mut connection = h2::server::handshake(socket).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        // A server that has read the request has taken it.
        let mut body = request.into_body();
        tokio::spawn(async move { while let Some(Ok(_)) = body.data().await {} });
        let head = Response::builder().header("content-type", "application/grpc");
        let head = head.body(()).unwrap();
        match end {
            End::Reset(reason) => respond.send_reset(reason),
            End::ResetAfterHead(reason) => {
                respond
                    .send_response(head, false)
                    .unwrap()
                    .send_reset(reason);
            }
            End::Close => {
                let _body = respond.send_response(head, false).unwrap();
                connection.abrupt_shutdown(Reason::CANCEL);
            }
        }
    }
}

/// Returns the statuses with which a call and a stream end.
async fn ends(end: End) -> [Status; 2] {
    let mut statuses = Vec::new();
    for streams in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, end));
        let settings = ClientSettings::to(format!("http://{address}"));
        let mut client = Client::new(grpc_kit::remote(&settings).unwrap());
        statuses.push(match streams {
            false => client.say("echo hello").await.unwrap_err(),
            true => match client.tell("count 3").await {
                Err(status) => status,
                Ok(mut answers) => answers.next().await.unwrap().unwrap_err(),
            },
        });
        serving.abort();
    }
    statuses.try_into().unwrap()
}

#[tokio::test]
async fn a_stream_that_its_server_ends_without_a_status_is_an_unavailable_dependency() {
    let reasons = [
        Reason::NO_ERROR,
        Reason::PROTOCOL_ERROR,
        Reason::INTERNAL_ERROR,
        Reason::FLOW_CONTROL_ERROR,
        Reason::STREAM_CLOSED,
        Reason::REFUSED_STREAM,
        Reason::CANCEL,
        Reason::ENHANCE_YOUR_CALM,
        Reason::INADEQUATE_SECURITY,
    ];
    let resets = reasons
        .into_iter()
        .flat_map(|reason| [End::Reset(reason), End::ResetAfterHead(reason)]);
    for end in resets.chain([End::Close]) {
        for status in ends(end).await {
            assert_eq!(status.code(), Code::Unavailable, "{end:?}: {status}");
            let reason = grpc_kit::reason(&status);
            assert_eq!(reason, Some(ErrorReason::DependencyUnavailable), "{end:?}");
        }
    }
}
