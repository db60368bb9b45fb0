//! `dns::answer`: any request of a small fleet, over both transports.
#![no_main]

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use dns::{Client, Index, Outcome, Settings, Transport};
use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
use domain::base::message::Message;
use domain::base::name::{ParsedName, ToName};
use domain::base::record::Record;
use domain::rdata::AllRecordData;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/dns/tests/records/mod.rs"]
mod records;

/// A name of every kind.
const FLEET: &str = "
    fleet.example               300 SOA 7 30
    fleet.example               60 NS ns1.fleet.example
    fleet.example               60 NS ns.other.test
    ns1.fleet.example           60 A 192.0.2.53
    api.c1.fleet.example        30 A 192.0.2.10
    *.c1.fleet.example          30 A 192.0.2.11
    *.c1.fleet.example          30 AAAA 2001:db8::11
    deep.between.c1.fleet.example 30 A 192.0.2.13
    www.fleet.example           30 CNAME api.c1.fleet.example
    out.fleet.example           30 CNAME cdn.other.test
    lost.fleet.example          30 CNAME nothing.fleet.example
    over.fleet.example          30 CNAME a.z
    *.alias.fleet.example       30 CNAME any.c1.fleet.example
    self.fleet.example          30 CNAME self.fleet.example
    tick.fleet.example          30 CNAME tock.fleet.example
    tock.fleet.example          30 CNAME tick.fleet.example
    sub.fleet.example           30 NS ns.sub.fleet.example
    ns.sub.fleet.example        30 A 192.0.2.99
    into.fleet.example          30 CNAME www.sub.fleet.example
    inner.fleet.example         30 SOA 9 30
    a.inner.fleet.example       30 A 192.0.2.30
    first.fleet.example         30 STEER failover c2
    first.fleet.example         30 MEMBER c1 - 192.0.2.41
    first.fleet.example         30 MEMBER c2 - 192.0.2.42 2001:db8::42
    z                           30 SOA 1
    a.z                         30 A 192.0.2.1
";
/// How many addresses make 512 octets and 1232 with a short name, and with a longer one do not fit any more.
const AT_A_LIMIT: [(&str, u8); 2] = [("*.some.z", 29), ("*.many.z", 74)];

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut fleet = FLEET.to_owned();
    for (name, count) in AT_A_LIMIT {
        fleet.extend((0..count).map(|last| format!("{name} 30 A 198.51.100.{last}\n")));
    }
    Index::default().apply(&records::changes(&fleet))
});

/// With an identity, so that whoever asks for it gets one.
static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings::default().with_identity("fuzz").with_version("1"));

fn answer(request: &[u8], transport: Transport, out: &mut Vec<u8>) -> Option<Outcome<'static>> {
    let client = Client { address: Ipv4Addr::LOCALHOST.into(), transport, now: 1_700_000_000 };
    dns::answer(&INDEX, &SETTINGS, &client, request, out)
}

fuzz_target!(|request: &[u8]| {
    let (udp, tcp) = (ask(request, Transport::Udp), ask(request, Transport::Tcp));
    let (Some((udp, over_udp)), Some((tcp, over_tcp))) = (udp, tcp) else {
        // Silence is only for what has no id, or is an answer itself.
        assert!(request.len() < 12 || request[2] & 0x80 != 0);
        return;
    };
    assert!(!over_tcp.truncated, "there is no larger transport to ask for");
    assert_eq!((over_udp.rcode, over_udp.apex()), (over_tcp.rcode, over_tcp.apex()));
    let limit = udp_limit(request);
    assert!(udp.len() <= limit, "{} bytes over UDP to who takes {limit}", udp.len());
    if over_udp.truncated {
        assert!(tcp.len() > limit, "cut, though it would have fitted");
    } else {
        assert_eq!(udp, tcp, "one answer, whatever carries it");
    }
    check_letters(request, &tcp);
});

/// Asks, and checks what holds for every answer.
fn ask(request: &[u8], transport: Transport) -> Option<(Vec<u8>, Outcome<'static>)> {
    let mut out = b"what was there before".to_vec();
    let outcome = answer(request, transport, &mut out);
    assert_eq!(outcome.is_none(), out.is_empty());
    let outcome = outcome?;

    let (asked, told) = (Message::from_slice(request).unwrap(), Message::from_slice(&out).unwrap());
    let (question, header) = (asked.header(), told.header());
    assert_eq!((header.id(), header.opcode(), header.rd()), (question.id(), question.opcode(), question.rd()));
    assert!(header.qr() && !header.ra() && !header.ad() && !header.cd() && !header.z());
    assert_eq!(header.tc(), outcome.truncated);
    assert_eq!(told.opt_rcode(), outcome.rcode);
    assert!(answer(&out, transport, &mut Vec::new()).is_none(), "two servers would talk for ever");

    let sections = Sections::read(told);
    if matches!(header.rcode(), Rcode::FORMERR | Rcode::NOTIMP) {
        assert!(question.opcode() == Opcode::QUERY || header.rcode() == Rcode::NOTIMP);
        assert!(sections.answer.is_empty() && sections.authority.is_empty(), "an error has no records");
    } else {
        check_answer(asked, told, &sections, &outcome);
    }
    Some((out, outcome))
}

type Line<'a> = Record<ParsedName<&'a [u8]>, AllRecordData<&'a [u8], ParsedName<&'a [u8]>>>;

/// Every record, its data read too; nothing may stand behind the last.
struct Sections<'a> {
    answer: Vec<Line<'a>>,
    authority: Vec<Line<'a>>,
    additional: Vec<Line<'a>>,
}

impl<'a> Sections<'a> {
    fn read(message: &'a Message<[u8]>) -> Self {
        let mut section = message.answer().expect("the question can be read");
        let [answer, authority, additional] = [(); 3].map(|()| {
            let records = section.by_ref().map(|record| record.unwrap().into_any_record().unwrap()).collect();
            if let Some(next) = section.next_section().unwrap() {
                section = next;
            }
            records
        });
        Self { answer, authority, additional }
    }
}

fn check_answer(asked: &Message<[u8]>, told: &Message<[u8]>, sections: &Sections<'_>, outcome: &Outcome<'_>) {
    let question = asked.sole_question().expect("no answer without a question");
    let repeated = told.sole_question().expect("the question comes back");
    // In the very letters that it was asked in: resolvers check that.
    assert_eq!(repeated.qname().to_vec().as_slice(), question.qname().to_vec().as_slice());
    assert_eq!((repeated.qtype(), repeated.qclass()), (question.qtype(), question.qclass()));
    assert_eq!(told.opt().is_some(), asked.opt().is_some(), "only who sent an OPT gets one");

    let header = told.header();
    let no_records = sections.answer.is_empty() && sections.authority.is_empty();
    if !matches!(outcome.rcode, OptRcode::NOERROR | OptRcode::NXDOMAIN) {
        return assert!(no_records, "an error has no records");
    }
    if question.qclass() != Class::IN {
        return;
    }
    assert!(outcome.apex().is_some() && (outcome.truncated || !no_records));
    // From alias to alias, and then what was asked for.
    let mut owner = question.qname().to_vec();
    for record in &sections.answer {
        assert!(record.owner().name_eq(&owner), "{} does not follow from {owner}", record.owner());
        assert_eq!(record.class(), Class::IN);
        match record.data() {
            AllRecordData::Cname(alias) if question.qtype() != Rtype::CNAME => owner = alias.cname().to_vec(),
            _ => assert!(matches!(question.qtype(), qtype if qtype == record.rtype() || qtype == Rtype::ANY)),
        }
    }
    let authority: Vec<Rtype> = sections.authority.iter().map(Record::rtype).collect();
    match authority[..] {
        // An answer; a "no"; a referral, which is not ours to vouch for unless an alias of ours led there.
        [] => assert!(outcome.truncated || (header.aa() && outcome.rcode == OptRcode::NOERROR)),
        [Rtype::SOA] => assert!(header.aa()),
        _ => {
            assert!(authority.iter().all(|rtype| *rtype == Rtype::NS) && outcome.rcode == OptRcode::NOERROR);
            assert_eq!(header.aa(), !sections.answer.is_empty());
        }
    }
    let others = sections.additional.iter().map(Record::rtype).filter(|rtype| *rtype != Rtype::OPT);
    assert!(others.clone().all(|rtype| matches!(rtype, Rtype::A | Rtype::AAAA)));
    let names_hosts = matches!(question.qtype(), Rtype::NS | Rtype::MX | Rtype::SRV | Rtype::ANY);
    assert!(others.count() == 0 || names_hosts || authority.contains(&Rtype::NS), "addresses of hosts that are named");
}

/// What the client takes, by the words of RFC 1035 4.2.1 and RFC 6891 6.2.3, and ours of 1232.
fn udp_limit(request: &[u8]) -> usize {
    let opt = Message::from_slice(request).ok().and_then(Message::opt);
    opt.map_or(512, |opt| opt.udp_payload_size().clamp(512, 1232).into())
}

/// The same question in other letters has the same answer in other letters.
fn check_letters(request: &[u8], told: &[u8]) {
    let mut shouted = request.to_vec();
    let mut at = 12;
    while let Some(&length @ 1..64) = shouted.get(at) {
        let label = at + 1..at + 1 + usize::from(length);
        at = label.end;
        let Some(label) = shouted.get_mut(label) else { return };
        for octet in label {
            *octet ^= if octet.is_ascii_alphabetic() { 0x20 } else { 0 };
        }
    }
    let mut out = Vec::new();
    answer(&shouted, Transport::Tcp, &mut out);
    assert!(out.eq_ignore_ascii_case(told), "{shouted:?}");
}
