//! The questions: 45 % for the API server of a cluster, 45 % for an application of one under a label that nobody has
//! asked for before, and 10 % for a name directly under the apex that is not there.
//!
//! They are rendered before the load begins. Only the random labels are written anew every time, so that no server can
//! have the answer ready from before.

use model::DnsName;

use super::names;
use crate::Random;
use crate::fleet::{DOMAIN, GATEWAY, Member};

/// Each has an id of its own, which is its place.
pub const COUNT: usize = 1 << 16;
/// More than the longest query of ours has.
const ROOM: usize = 64;
/// RFC 1035 4.1.1.
const HEADER: usize = 12;
/// Behind the header, and behind the length of the label.
const LABEL: usize = HEADER + 1;
/// Sixteen letters to the power of this: a label does not come twice.
const LETTERS: usize = 8;
const A: u16 = 1;
const AAAA: u16 = 28;
/// RFC 6891 6.1.2: the root, type OPT, 1232 octets, no flags, no options.
const OPT: [u8; 11] = [0, 0, 41, 0x04, 0xD0, 0, 0, 0, 0, 0, 0];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Api(Member),
    /// Under the wildcard.
    App(Member, Family),
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// What must come back, as far as a load can look at every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    pub rcode: u8,
    pub answers: u16,
}

const NO_ERROR: u8 = 0;
const NXDOMAIN: u8 = 3;

#[derive(Debug, Clone)]
pub struct Query {
    octets: [u8; ROOM],
    length: usize,
    pub question: Question,
    pub expected: Expected,
}

/// All queries of a load, in the order in which they are sent, again and again.
pub struct Queries {
    list: Vec<Query>,
    random: Random,
}

impl Queries {
    pub fn new(clusters: u32, seed: u64) -> anyhow::Result<Self> {
        let mut random = Random::seeded(seed);
        let ids = 0..=u16::MAX;
        let list = ids.map(|id| Query::new(id, Question::any(clusters, &mut random)));
        Ok(Self { list: list.collect::<anyhow::Result<_>>()?, random })
    }

    pub fn get(&self, id: u16) -> &Query {
        &self.list[usize::from(id)]
    }

    /// How long the query is; then [`Self::write`] takes that many octets.
    pub fn length(&self, id: u16) -> usize {
        self.get(id).length
    }

    /// The query, with a new label where the label does not matter.
    pub fn write(&mut self, id: u16, octets: &mut [u8]) {
        let query = &self.list[usize::from(id)];
        octets.copy_from_slice(&query.octets[..query.length]);
        if !matches!(query.question, Question::Api(_)) {
            // Four bits each become one of the letters from a to p.
            let letters = (self.random.draw() & 0x0F0F_0F0F_0F0F_0F0F) + 0x6161_6161_6161_6161;
            octets[LABEL..LABEL + LETTERS].copy_from_slice(&letters.to_ne_bytes());
        }
    }
}

impl Question {
    fn any(clusters: u32, random: &mut Random) -> Self {
        let member = Member(random.below(clusters));
        match random.below(100) {
            0..45 => Self::Api(member),
            45..90 if random.below(2) == 0 => Self::App(member, Family::V4),
            45..90 => Self::App(member, Family::V6),
            _ => Self::Missing,
        }
    }

    /// With some label where the label does not matter.
    fn name(self) -> String {
        let label = "a".repeat(LETTERS);
        match self {
            Self::Api(member) => format!("api.{}.{DOMAIN}", member.name()),
            Self::App(member, _) => format!("{label}.{}.{DOMAIN}", member.name()),
            Self::Missing => format!("{label}.{DOMAIN}"),
        }
    }

    fn kind(self) -> u16 {
        match self {
            Self::App(_, Family::V6) => AAAA,
            Self::Api(_) | Self::App(_, Family::V4) | Self::Missing => A,
        }
    }

    fn expected(self) -> Expected {
        match self {
            Self::Api(_) => Expected { rcode: NO_ERROR, answers: 1 },
            Self::App(..) => Expected { rcode: NO_ERROR, answers: 2 },
            Self::Missing => Expected { rcode: NXDOMAIN, answers: 0 },
        }
    }

    /// The data of the records that answer it.
    pub fn data(self) -> Vec<String> {
        match self {
            Self::Api(_) => vec![GATEWAY.to_string()],
            Self::App(member, Family::V4) => member.nodes().map(|address| address.to_string()).into(),
            Self::App(member, Family::V6) => names::nodes_v6(member).map(|address| address.to_string()).into(),
            Self::Missing => Vec::new(),
        }
    }
}

impl Query {
    fn new(id: u16, question: Question) -> anyhow::Result<Self> {
        let mut message = Vec::with_capacity(ROOM);
        // One question and one additional record.
        for word in [id, 0, 1, 0, 0, 1] {
            message.extend(word.to_be_bytes());
        }
        message.extend(DnsName::parse(&question.name())?.as_wire());
        message.extend(question.kind().to_be_bytes());
        message.extend(1_u16.to_be_bytes());
        message.extend(OPT);
        let mut octets = [0; ROOM];
        octets[..message.len()].copy_from_slice(&message);
        Ok(Self { octets, length: message.len(), question, expected: question.expected() })
    }
}

impl Expected {
    /// Whether this message is an answer with this result, whole and by who has the authority.
    pub fn is_met(self, message: &[u8]) -> bool {
        let Some(header) = message.get(..HEADER) else { return false };
        // QR and AA, of any opcode none, and not truncated.
        let flags = header[2] & 0b1111_1110 == 0b1000_0100;
        let answers = u16::from_be_bytes([header[6], header[7]]);
        flags && header[3] & 0x0F == self.rcode && answers == self.answers
    }
}

/// The id of a message that has one.
pub fn id_of(message: &[u8]) -> Option<u16> {
    let [high, low, ..] = *message else { return None };
    Some(u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_that_of_the_load() {
        let queries = Queries::new(100, 1).unwrap();
        let share = |wanted: fn(Question) -> bool| {
            let count = queries.list.iter().filter(|query| wanted(query.question)).count();
            (100 * count + COUNT / 2) / COUNT
        };
        assert_eq!(share(|question| matches!(question, Question::Api(_))), 45);
        assert_eq!(share(|question| matches!(question, Question::App(..))), 45);
        assert_eq!(share(|question| question == Question::Missing), 10);
    }

    #[test]
    fn labels_are_new_every_time_and_nothing_else_is() {
        let mut queries = Queries::new(100, 1).unwrap();
        for id in 0..100 {
            let [mut once, mut again] = [vec![0; queries.length(id)], vec![0; queries.length(id)]];
            queries.write(id, &mut once);
            queries.write(id, &mut again);
            assert_eq!(id_of(&once), Some(id));
            let is_api = matches!(queries.get(id).question, Question::Api(_));
            assert_eq!(once == again, is_api);
            for message in [&mut once, &mut again] {
                assert!(message[LABEL..LABEL + 3].iter().all(u8::is_ascii_lowercase));
                message[LABEL..LABEL + LETTERS].fill(b'a');
            }
            assert_eq!(once, again);
        }
    }

    #[test]
    fn only_the_whole_answer_with_authority_will_do() {
        let message = |flags: [u8; 2], answers: u8| [0, 7, flags[0], flags[1], 0, 1, 0, answers, 0, 0, 0, 1];
        let expected = Expected { rcode: 3, answers: 2 };
        for (flags, answers, met) in [
            ([0x84, 0x03], 2, true),
            ([0x84, 0x03], 1, false),
            ([0x84, 0x00], 2, false),
            ([0x86, 0x03], 2, false), // truncated
            ([0x80, 0x03], 2, false), // without authority
            ([0x04, 0x03], 2, false), // a query
        ] {
            assert_eq!(expected.is_met(&message(flags, answers)), met, "{flags:?} {answers}");
        }
        assert!(!expected.is_met(&[0, 7]));
    }
}
