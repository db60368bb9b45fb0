//! Streams: other protocols, gRPC's way of using HTTP/2, and bodies larger than memory should be.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::ingress::UpstreamTls;

use crate::backend::{runtime, serve, text};
use crate::fixture::{Authority, Front, Site, curl};

/// A WebSocket server, as far as we can see: it changes the protocol and says everything back.
pub(crate) fn echo() -> std::net::SocketAddr {
    serve(None, |mut request| async move {
        assert_eq!(request.headers()["connection"], "upgrade");
        assert_eq!(request.headers()["sec-websocket-key"], "dGhlIHNhbXBsZSBub25jZQ==");
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgraded.await.unwrap());
            let (mut reader, mut writer) = tokio::io::split(&mut stream);
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        });
        let response = Response::builder().status(101).header("connection", "upgrade");
        response
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
            .body(text(""))
            .unwrap()
    })
}

#[test]
fn other_protocols_are_carried_once_granted() {
    let front = Front::start(Site::new("shop.test", &[echo()]).table());
    let mut client = front.connect();
    // The first octets of the new protocol may come along.
    client.say("GET /chat HTTP/1.1\r\nhost: shop.test\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nhello");
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.header("sec-websocket-accept")), (101, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")));
    assert_eq!((answer.header("upgrade"), answer.header("connection")), (Some("websocket"), Some("upgrade")));
    assert_eq!(client.exactly(5), b"hello");
    for round in 0..100 {
        let message = format!("GET /{round} HTTP/1.1\r\n\r\n\0");
        client.say(&message);
        assert_eq!(client.exactly(message.len()), message.as_bytes());
    }
    // Both ways at once, and more than any buffer holds.
    let mut writer = client.0.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        for _ in 0..256 {
            writer.write_all(&[7; 16 << 10]).unwrap();
        }
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    assert_eq!(client.rest(), vec![7; 256 * (16 << 10)]);
    sending.join().unwrap();
    front.wait_for_metric(r#"fleetgate_web_requests_total{ingress="acme/web",code="1xx",protocol="http/1"}"#, 1);
    front.wait_for_metric("fleetgate_web_upstream_connections", 0);
}

/// Sends back what it gets, piece by piece, with a status behind it, as a gRPC server does.
fn grpc(tls: Option<&model::ingress::Certificate>) -> std::net::SocketAddr {
    serve(tls.map(|certificate| (certificate, &["h2", "http/1.1"][..])), |request: Request<Incoming>| async move {
        assert_eq!(
            (request.version(), &request.headers()["te"]),
            (http::Version::HTTP_2, &"trailers".parse::<http::HeaderValue>().unwrap())
        );
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, hyper::Error>>(1);
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                if sender.send(Ok(frame)).await.is_err() {
                    return;
                }
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let _ = sender.send(Ok(Frame::trailers(trailers))).await;
        });
        let mut receiver = receiver;
        let stream = futures(move |cx| receiver.poll_recv(cx));
        Response::builder().header("content-type", "application/grpc").body(StreamBody::new(stream).boxed()).unwrap()
    })
}

fn futures<T>(
    poll: impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Send + Sync + 'static,
) -> impl futures_util::Stream<Item = T> + Send + Sync {
    let mut poll = poll;
    futures_util::stream::poll_fn(move |cx| poll(cx))
}

/// A conversation over HTTP/2 both ways: every message is answered before the next is sent, and the status comes last.
#[test]
fn grpc_streams_both_ways_with_trailers() {
    let authority = Authority::new();
    let certificate = authority.issue("shop.test");
    let verified = UpstreamTls::Verified { authorities: Arc::new([authority.der()]) };
    for (member, upstream) in [(grpc(None), UpstreamTls::Plain), (grpc(Some(&certificate)), verified)] {
        let mut site = Site::new("shop.test", &[member]);
        site.upstream = upstream;
        let front = Front::start(site.table());
        runtime().block_on(async {
            let stream = tokio::net::TcpStream::connect(front.http).await.unwrap();
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
            let (mut sender, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            // Several at once share the connections.
            for _ in 0..3 {
                let (messages, mut receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
                let body = StreamBody::new(futures(move |cx| receiver.poll_recv(cx)));
                let request = Request::post("http://shop.test/shop.Cart/Watch")
                    .header("content-type", "application/grpc+proto")
                    .header("te", "trailers")
                    .body(body)
                    .unwrap();
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.headers()["content-type"], "application/grpc");
                let mut answers = response.into_body();
                for round in 0..50 {
                    let message = Bytes::from(format!("message {round}"));
                    messages.send(Ok(Frame::data(message.clone()))).await.unwrap();
                    let answer = answers.frame().await.unwrap().unwrap().into_data().unwrap();
                    assert_eq!(answer, message);
                }
                drop(messages);
                let trailers = answers.frame().await.unwrap().unwrap().into_trailers().unwrap();
                assert_eq!(trailers["grpc-status"], "0");
                assert!(answers.frame().await.is_none());
            }
        });
        assert_eq!(front.metric("fleetgate_web_upstream_connects_total"), 1);
    }
}

#[test]
fn grpc_needs_a_member_with_http_2() {
    let authority = Authority::new();
    let certificate = authority.issue("shop.test");
    let member = serve(Some((&certificate, &["http/1.1"])), |_| async { Response::new(text("")) });
    let mut site = Site::new("shop.test", &[member]);
    site.upstream = UpstreamTls::Unverified;
    let front = Front::start(site.table());
    let url = format!("http://{}/", front.http);
    let arguments = [
        "--http2-prior-knowledge",
        "-H",
        "host: shop.test",
        "-H",
        "content-type: application/grpc",
        "-i",
        "-d",
        "x",
        &url,
    ];
    let (_, said) = curl(&arguments);
    assert!(said.starts_with("HTTP/2 502"), "{said}");
}

/// Counts what it gets.
fn counting() -> std::net::SocketAddr {
    serve(None, |request: Request<Incoming>| async move {
        let (mut body, mut count) = (request.into_body(), 0);
        while let Some(frame) = body.frame().await {
            count += frame.unwrap().data_ref().map_or(0, Bytes::len);
        }
        Response::new(text(count.to_string()))
    })
}

/// Kilobytes of this process, which has the front and the backend in it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Memory does not follow the size of a body, in either protocol, nor where the receiver is slow.
#[test]
fn large_bodies_take_no_memory() {
    const SIZE: usize = 256 << 20;
    let front = Front::start(Site::new("shop.test", &[counting()]).table());
    let url = format!("http://{}/", front.http);
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let before = resident();
        let arguments =
            format!("head -c {SIZE} /dev/zero | curl -s --noproxy '*' {protocol} -H 'host: shop.test' -T - {url}");
        let mut upload = std::process::Command::new("sh");
        upload.args(["-c", &arguments]).stdout(std::process::Stdio::piped());
        let mut upload = upload.spawn().unwrap();
        let mut most = 0;
        while upload.try_wait().unwrap().is_none() {
            most = most.max(resident());
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut said = String::new();
        upload.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, SIZE.to_string(), "{protocol}");
        let grown = most.saturating_sub(before);
        // Other tests run in this process at the same time; a tenth of the body is still a lot.
        assert!(grown < 25 << 10, "{protocol}: {grown} KiB more while {} KiB passed", SIZE >> 10);
    }
}

/// A client that reads nothing stops the member, not us from having memory.
#[test]
fn slow_readers_stop_the_sender() {
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let member = serve(None, move |_| {
        let count = Arc::clone(&count);
        async move {
            let stream = futures(move |_| {
                let before = count.fetch_add(64 << 10, std::sync::atomic::Ordering::Relaxed);
                std::task::Poll::Ready((before < 1 << 30).then(|| Ok(Frame::data(Bytes::from(vec![0; 64 << 10])))))
            });
            Response::new(StreamBody::new(stream).boxed())
        }
    });
    let front = Front::start(Site::new("shop.test", &[member]).table());
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    // Until it stands still.
    let mut before = usize::MAX;
    crate::fixture::wait_for("the sender to stop", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = sent.load(std::sync::atomic::Ordering::Relaxed);
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    assert!(before < 64 << 20, "{before} octets are somewhere");
}

/// Rarely sent and allowed: what a client sends reaches the member, whatever the method.
#[test]
fn bodies_of_get_requests_arrive() {
    let front = Front::start(Site::new("shop.test", &[counting()]).table());
    let url = format!("http://{}/", front.http);
    for more in [&["-H", "transfer-encoding: chunked"][..], &[]] {
        for protocol in ["--http1.1", "--http2-prior-knowledge"] {
            let arguments =
                [&[protocol, "-X", "GET", "-H", "host: shop.test", "-d", "12345"][..], more, &[&url]].concat();
            let (_, said) = curl(&arguments);
            assert_eq!(said, "5", "{protocol} {more:?}");
        }
    }
}
