//! As much of HTTP/2 as it takes to ask for a page again and again (RFC 9113, RFC 7541): requests are rendered
//! beforehand, of responses only the frames' heads are read, and the status.

use anyhow::{bail, ensure};

use super::{PATH, Site};

const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// `:status: 200` in the static table.
const STATUS_200: u8 = 0x88;

/// What a client begins with: no table for header compression, so that the status reads without one, no pushes, and a
/// window that never closes.
pub(super) fn preface() -> Vec<u8> {
    let mut octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let settings = [[0, 1, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0]].concat();
    octets.extend(frame(SETTINGS, 0, 0, &settings));
    octets.extend(frame(8, 0, 0, &(i32::MAX.cast_unsigned() - 65_535).to_be_bytes()));
    octets
}

/// A request without its stream, which is set by [`set_stream`].
pub(super) fn request(site: Site, user_agent: &str) -> Vec<u8> {
    // GET, https.
    let mut block = vec![0x82, 0x87];
    // Literals that are not to be kept, by the numbers of their names in the static table.
    for (name, value) in [
        (&[0x04][..], PATH),
        (&[0x01], site.name().as_str()),
        (&[0x0f, 58 - 15], user_agent),
        (&[0x0f, 19 - 15], "*/*"),
        (&[0x0f, 16 - 15], "gzip, br"),
    ] {
        block.extend_from_slice(name);
        block.push(u8::try_from(value.len()).ok().filter(|length| *length < 127).expect("these values are short"));
        block.extend_from_slice(value.as_bytes());
    }
    frame(HEADERS, END_STREAM | END_HEADERS, 0, &block)
}

pub(super) fn set_stream(request: &mut [u8], stream: u32) {
    request[5..FRAME_HEAD].copy_from_slice(&stream.to_be_bytes());
}

/// Takes the frames that are complete off the front. `ended` is called with every stream that was answered with 200;
/// what the server wants to be told is added to `replies`.
pub(super) fn take(received: &mut Vec<u8>, replies: &mut Vec<u8>, mut ended: impl FnMut(u32)) -> anyhow::Result<()> {
    let mut at = 0;
    while let Some(head) = received.get(at..at + FRAME_HEAD) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let Some(payload) = received.get(at + FRAME_HEAD..at + FRAME_HEAD + length) else { break };
        match kind {
            HEADERS => {
                // The first may say that the table stays empty.
                let ok = payload.iter().take_while(|octet| **octet == 0x20).count();
                ensure!(payload.get(ok) == Some(&STATUS_200), "a response is not 200: {payload:?}");
            }
            SETTINGS if flags & ACK == 0 => replies.extend(frame(SETTINGS, ACK, 0, &[])),
            PING if flags & ACK == 0 => replies.extend(frame(PING, ACK, 0, payload)),
            RST_STREAM | GOAWAY => bail!("the proxy ends a stream or all of them: {payload:?}"),
            _ => {}
        }
        if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            ended(stream);
        }
        at += FRAME_HEAD + length;
    }
    received.drain(..at);
    Ok(())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).expect("frames are small").to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
