use super::*;
use crate::limit::{RateLimit, RateLimiter};

/// So long that only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Gets REFUSED from an index without zones: `. IN NS`.
const QUERY: &[u8] = b"\0\x11\0\x07\0\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01";

async fn with_limits<T>(limits: Limits, test: impl AsyncFnOnce(SocketAddr, &Metrics) -> T) -> T {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = Metrics::default();
    let shared = Shared {
        index: Arc::default(),
        settings: Arc::default(),
        limiter: Arc::new(RateLimiter::new(RateLimit::default())),
        metrics: metrics.clone(),
        recent: crate::recent::Recent::default(),
    };
    let shutdown = CancellationToken::new();
    let server = Server::new(shared, shutdown.clone(), limits);
    let serving = tokio::spawn(async move { server.serve(listener).await });
    let result = timeout(PATIENCE, test(address, &metrics)).await.unwrap();
    shutdown.cancel();
    timeout(PATIENCE, serving).await.unwrap().unwrap();
    assert_eq!(metrics.connections.get(), 0);
    result
}

/// Whether the server answers on this connection; otherwise it has closed it.
async fn is_served(stream: &mut TcpStream) -> bool {
    let mut response = [0; 19];
    stream.write_all(QUERY).await.is_ok() && stream.read_exact(&mut response).await.is_ok()
}

#[tokio::test]
async fn who_was_quiet_for_longest_makes_room() {
    let limits = Limits { connections: 2, ..LIMITS };
    with_limits(limits, async |address, metrics| {
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        assert!(is_served(&mut second).await && is_served(&mut first).await);
        let mut third = TcpStream::connect(address).await.unwrap();
        assert!(is_served(&mut third).await && is_served(&mut first).await);
        assert!(!is_served(&mut second).await);
        assert_eq!(metrics.connections_refused.get(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_and_half_a_message_are_closed() {
    let limits = Limits { idle: Duration::from_millis(50), ..LIMITS };
    for sent in [&b""[..], &QUERY[..1], &QUERY[..9]] {
        with_limits(limits, async |address, _| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(sent).await.unwrap();
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "after {} octets", sent.len());
        })
        .await;
    }
}

#[tokio::test]
async fn a_busy_connection_ends_in_time() {
    let limits = Limits { total: Duration::from_millis(100), ..LIMITS };
    with_limits(limits, async |address, _| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        while is_served(&mut stream).await {}
    })
    .await;
}

#[tokio::test]
async fn a_client_that_takes_no_answers_is_hung_up_on() {
    let limits = Limits { write: Duration::from_millis(50), ..LIMITS };
    with_limits(limits, async |address, _| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Ends once the server has closed, which it does only when its own side is full.
        while stream.write_all(QUERY).await.is_ok() {}
    })
    .await;
}
