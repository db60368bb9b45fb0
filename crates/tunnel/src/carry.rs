//! What goes back and forth between a stream and a socket.

use std::future::poll_fn;
use std::io;

use bytes::{BufMut as _, BytesMut};
use h2::Reason;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::stream::Stream;

/// What a reader waits with. Thousands of streams are idle most of the time.
const SMALLEST: usize = 4 << 10;
/// And what it takes at once where much comes: one frame.
const LARGEST: usize = 64 << 10;

/// Until both have sent all. What ends one half of one ends that half of the other; what breaks one breaks the other: the
/// caller drops `socket` after an error, having said whether that is an abort there too.
pub async fn carry<S: AsyncRead + AsyncWrite + Unpin>(stream: &Stream, socket: &mut S) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(socket);
    let up = async {
        let mut size = SMALLEST;
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(size);
            let read = from.read_buf(&mut (&mut buffer).limit(size)).await?;
            if read == 0 {
                return stream.end();
            }
            size = if read == size { (size * 4).min(LARGEST) } else { (size / 2).max(SMALLEST).max(read) };
            let mut piece = buffer.split().freeze();
            while !piece.is_empty() {
                poll_fn(|context| stream.poll_send(&mut piece, context)).await?;
            }
        }
    };
    let down = async {
        while let Some(chunk) = poll_fn(|context| stream.poll_chunk(context)).await? {
            to.write_all(&chunk).await?;
        }
        to.shutdown().await
    };
    let carried = tokio::try_join!(up, down);
    if carried.is_err() {
        // RFC 9113 8.5: so a broken connection is told.
        stream.reset(Reason::CONNECT_ERROR);
    }
    carried.map(drop)
}
