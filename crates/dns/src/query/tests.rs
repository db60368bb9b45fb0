use std::fmt::Write as _;

use domain::base::iana::OptionCode;
use domain::base::message_builder::AdditionalBuilder;
use domain::base::opt::UnknownOptData;
use domain::base::{MessageBuilder, Name, ToName as _};
use domain::rdata::AllRecordData;

use std::sync::LazyLock;

use domain::base::Message;
use domain::base::iana::Rcode;

use super::*;
use crate::records::changes;

mod policy;
mod properties;
mod steered;

const FLEET: &str = include_str!("tests/fleet.txt");

/// Every block: a question, then all of the response but its copy of the question.
const DIALOGUE: &str = include_str!("tests/dialogue.txt");

#[test]
fn dialogue() {
    let index = Index::default().apply(&changes(FLEET));
    for block in DIALOGUE.split("\n\n") {
        let lines: Vec<&str> = block.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let question = lines[0].strip_prefix("? ").unwrap();
        let expected = lines[1..].join("\n") + "\n";
        for transport in [Transport::Udp, Transport::Tcp] {
            let mut out = Vec::new();
            let request = query(question).finish();
            let outcome = answer_over(&index, &request, transport, &mut out).unwrap();
            let told = tell(&out);
            assert_eq!(told, expected, "{question} over {transport:?}");
            assert_eq!(outcome.rcode.to_string(), told.split_whitespace().next().unwrap());
        }
    }
}

/// RFC 6672 2.2.
#[test]
fn what_a_dname_makes_too_long_is_said_to_be_so() {
    let front = format!("{}x", "a.".repeat(92));
    let told = ask(FLEET, query(&format!("{front}.long.fleet.example A")), Transport::Udp);
    assert!(told.starts_with("YXDOMAIN aa\nanswer long.fleet.example 30 DNAME a2345"), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
}

/// RFC 9471 3: a client that cannot reach the servers is to ask over TCP; other addresses are a kindness.
#[test]
fn missing_glue_is_a_truncated_answer_only_below_the_cut() {
    let mut text = String::from("z 30 SOA 1\n");
    for number in 0..14 {
        writeln!(text, "in.z 30 NS ns{number}.in.z\nns{number}.in.z 30 AAAA 2001:db8::{number}").unwrap();
        writeln!(text, "out.z 30 NS ns{number}.out.y.z\nns{number}.out.y.z 30 AAAA 2001:db8::{number}").unwrap();
    }
    for (asked, truncated, addresses) in [("x.in.z A", " tc", 5..10), ("x.out.z A", "", 5..10)] {
        let told = ask(&text, query(asked), Transport::Udp);
        assert_eq!(told.lines().next().unwrap(), format!("NOERROR{truncated}"), "{told}");
        let given = told.lines().filter(|line| line.starts_with("additional")).count();
        assert!(addresses.contains(&given), "{given} addresses:\n{told}");
    }
}

#[test]
fn cookies_identifiers_and_reasons_are_given_to_who_asks() {
    let index = Index::default().apply(&changes(FLEET));
    let settings = Settings::default().with_identity("ns1-eu").with_version("9");
    let client = |transport| Client { address: IpAddr::from([192, 0, 2, 7]), transport, now: 1_700_000_000 };
    let mut out = Vec::new();
    let mut options = |question: &str, sent: &[(u16, &[u8])], transport| {
        let mut request = query(question);
        let push = |opt: &mut domain::base::message_builder::OptBuilder<'_, Vec<u8>>| {
            sent.iter().try_for_each(|(code, value)| {
                opt.push(&UnknownOptData::new(OptionCode::from_int(*code), *value).unwrap())
            })
        };
        request.opt(push).unwrap();
        let request = request.finish();
        let proven = super::answer(&index, &settings, &client(transport), &request, &mut out).unwrap().proven;
        let message = Message::from_slice(&out).unwrap();
        let opt = message.opt().unwrap();
        let found: Vec<(u16, Vec<u8>)> = opt
            .opt()
            .iter::<UnknownOptData<_>>()
            .map(|option| option.map(|option| (option.code().to_int(), option.as_slice().to_vec())).unwrap())
            .collect();
        (proven, found)
    };
    let (proven, first) = options("fleet.example NS", &[(10, b"12345678")], Transport::Udp);
    assert!(!proven && first[0].0 == 10 && first[0].1.starts_with(b"12345678") && first[0].1.len() == 24);
    let (proven, second) = options("fleet.example NS", &[(10, &first[0].1)], Transport::Udp);
    assert!(proven && second == first);
    assert!(options("fleet.example NS", &[], Transport::Tcp).0);
    assert_eq!(options("fleet.example NS", &[(3, b"")], Transport::Udp).1, [(3, b"ns1-eu".to_vec())]);
    assert_eq!(options("other.test NS", &[], Transport::Udp).1, [(15, vec![0, 20])]);

    for (question, text) in [("version.bind TXT CH", "9"), ("ID.server TXT CH", "ns1-eu")] {
        super::answer(&index, &settings, &client(Transport::Udp), &query(question).finish(), &mut out).unwrap();
        let told = tell(&out);
        assert!(told.starts_with("NOERROR aa\nanswer") && told.ends_with(&format!("TXT \"{text}\"\n")), "{told}");
    }
}

#[test]
fn who_is_put_off_gets_a_way_on_but_no_records() {
    let client = Client { address: IpAddr::from([192, 0, 2, 7]), transport: Transport::Udp, now: 1 };
    let mut out = vec![0; PAYLOAD_SIZE.into()];
    let mut with_cookie = query("fleet.example NS");
    with_cookie.opt(|opt| opt.push(&UnknownOptData::new(OptionCode::COOKIE, b"12345678").unwrap())).unwrap();
    for (request, rcode, truncated, length) in [
        (query("fleet.example NS"), OptRcode::NOERROR, true, 12 + 19),
        (with_opt("fleet.example NS", 0, 1232, false), OptRcode::NOERROR, true, 12 + 19 + 11),
        (with_cookie, OptRcode::BADCOOKIE, false, 12 + 19 + 11 + 4 + 24),
    ] {
        let written = put_off(&SETTINGS, &client, &request.finish(), &mut out);
        let message = Message::from_slice(&out[..written]).unwrap();
        assert_eq!((message.header().tc(), written), (truncated, length));
        assert_eq!(message.opt_rcode(), rcode);
    }
}

#[test]
fn an_alias_chain_ends_after_eight_links() {
    let mut text = String::from("z 30 SOA 1\n");
    for link in 0..12 {
        writeln!(text, "n{link}.z 30 CNAME n{}.z", link + 1).unwrap();
    }
    let told = ask(&text, query("n0.z A"), Transport::Udp);
    assert_eq!(told.lines().filter(|line| line.starts_with("answer")).count(), MAX_CHAIN);
    assert!(told.ends_with("answer n7.z 30 CNAME n8.z\n"), "{told}");
}

#[test]
fn names_come_back_in_the_case_they_were_asked() {
    let index = Index::default().apply(&changes(FLEET));
    let mut out = Vec::new();
    let asked = "aPi.C1.fLeEt.ExAmPlE";
    answer_over(&index, &query(&format!("{asked} A")).finish(), Transport::Udp, &mut out).unwrap();
    let message = Message::from_slice(&out).unwrap();
    assert_eq!(message.sole_question().unwrap().qname().to_string(), asked);
    let owner = message.answer().unwrap().next().unwrap().unwrap().owner().to_string();
    assert_eq!(owner, asked);
    // Header, question, and one record whose owner is a pointer.
    assert_eq!(out.len(), 12 + (asked.len() + 2 + 4) + 16);
}

#[test]
fn edns_is_answered_when_asked() {
    let mut unknown = query("api.c1.fleet.example A");
    unknown.opt(|opt| opt.push(&UnknownOptData::new(OptionCode::from_int(65_001), b"what").unwrap())).unwrap();
    for (request, expected) in [
        (query("api.c1.fleet.example A"), None),
        (with_opt("api.c1.fleet.example A", 0, 4096, false), Some("NOERROR v0 1232")),
        (with_opt("api.c1.fleet.example A", 0, 0, true), Some("NOERROR v0 1232 do")),
        (with_opt("nothing.fleet.example A", 0, 4096, true), Some("NXDOMAIN v0 1232 do")),
        (with_opt("other.test A", 0, 4096, false), Some("REFUSED v0 1232")),
        (with_opt("api.c1.fleet.example A", 1, 4096, false), Some("BADVERS v0 1232")),
        (with_opt("other.test A CH", 255, 4096, true), Some("BADVERS v0 1232 do")),
        (unknown, Some("NOERROR v0 1232")),
    ] {
        let index = Index::default().apply(&changes(FLEET));
        let mut out = Vec::new();
        let request = request.finish();
        let outcome = answer_over(&index, &request, Transport::Udp, &mut out).unwrap();
        let message = Message::from_slice(&out).unwrap();
        let told = message.opt().map(|opt| {
            let rcode = opt.rcode(message.header());
            assert_eq!(rcode, outcome.rcode);
            let dnssec_ok = if opt.dnssec_ok() { " do" } else { "" };
            format!("{rcode} v{} {}{dnssec_ok}", opt.version(), opt.udp_payload_size())
        });
        assert_eq!(told.as_deref(), expected);
        let answers = message.header_counts().ancount();
        assert_eq!(answers > 0, outcome.rcode == OptRcode::NOERROR);
    }
}

#[test]
fn what_does_not_fit_is_truncated_over_udp_only() {
    // 12 octets of header, 9 of question, 16 for each address, 11 for an OPT: 30 addresses and an OPT make 512 octets,
    // 75 make 1232.
    for (addresses, edns, transport, expected) in [
        (30, None, Transport::Udp, Some(501)),
        (31, None, Transport::Udp, None),
        (31, None, Transport::Tcp, Some(517)),
        (30, Some(512), Transport::Udp, Some(512)),
        (31, Some(512), Transport::Udp, None),
        (30, Some(0), Transport::Udp, Some(512)),
        (31, Some(0), Transport::Udp, None),
        (31, Some(528), Transport::Udp, Some(528)),
        (31, Some(527), Transport::Udp, None),
        (75, Some(1232), Transport::Udp, Some(1232)),
        (75, Some(4096), Transport::Udp, Some(1232)),
        (76, Some(4096), Transport::Udp, None),
        (4093, Some(512), Transport::Tcp, Some(65_520)),
    ] {
        let index = Index::default().apply(&changes(&zone_of_addresses(addresses)));
        let request = match edns {
            None => query("a.z A"),
            Some(size) => with_opt("a.z A", 0, size, false),
        };
        let mut out = Vec::new();
        let request = request.finish();
        let outcome = answer_over(&index, &request, transport, &mut out).unwrap();
        let case = format!("{addresses} addresses, {edns:?}, {transport:?}");
        let message = Message::from_slice(&out).unwrap();
        assert_eq!(message.header().tc(), expected.is_none(), "{case}");
        assert_eq!(outcome.truncated, expected.is_none(), "{case}");
        assert_eq!(message.opt().is_some(), edns.is_some(), "{case}");
        match expected {
            Some(length) => assert_eq!(out.len(), length, "{case}"),
            None => assert_eq!(message.header_counts().ancount(), 0, "{case}"),
        }
    }
}

#[test]
fn what_no_transport_can_carry_is_our_failure() {
    assert_eq!(ask(&zone_of_addresses(4096), query("a.z A"), Transport::Tcp), "SERVFAIL\n");
    assert_eq!(ask(&zone_of_addresses(4096), query("a.z A"), Transport::Udp), "NOERROR aa tc\n");
}

#[test]
fn what_is_no_query_gets_an_error_or_silence() {
    let request = query("api.c1.fleet.example A").finish();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut request = request.clone();
        change(&mut request);
        request
    };
    let two_opts = {
        let mut request = with_opt("api.c1.fleet.example A", 0, 1232, false);
        request.opt(|_| Ok(())).unwrap();
        request.finish()
    };
    let owned_opt = {
        let mut octets = request.clone();
        octets[11] = 1;
        octets.extend_from_slice(b"\x01a\0\0\x29\x04\xd0\0\0\0\0\0\0");
        octets
    };
    let short_cookie = {
        let mut octets = request.clone();
        octets[11] = 1;
        octets.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\x06\0\x0a\0\x02ab");
        octets
    };
    let overlong_option = {
        let mut octets = request.clone();
        octets[11] = 1;
        octets.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\x04\0\x0a\0\x08");
        octets
    };
    for (what, request, expected) in [
        ("nothing", Vec::new(), None),
        ("half a header", request[..11].to_vec(), None),
        ("a response", changed(&|request| request[2] |= 0x80), None),
        ("only a header", changed(&|request| request.truncate(12)), Some(Rcode::FORMERR)),
        ("no question", changed(&|request| request[5] = 0), Some(Rcode::FORMERR)),
        ("two questions", changed(&|request| request[5] = 2), Some(Rcode::FORMERR)),
        ("half a question", changed(&|request| request.truncate(request.len() - 1)), Some(Rcode::FORMERR)),
        (
            "a name that points to itself",
            changed(&|request| request[12..14].copy_from_slice(b"\xc0\x0c")),
            Some(Rcode::FORMERR),
        ),
        ("a missing record", changed(&|request| request[11] = 1), Some(Rcode::FORMERR)),
        ("two OPTs", two_opts, Some(Rcode::FORMERR)),
        ("an OPT with an owner", owned_opt, Some(Rcode::FORMERR)),
        ("a cookie that is too short", short_cookie, Some(Rcode::FORMERR)),
        ("an option longer than its OPT", overlong_option, Some(Rcode::FORMERR)),
        ("a status", changed(&|request| request[2] |= 2 << 3), Some(Rcode::NOTIMP)),
        ("a notify", changed(&|request| request[2] |= 4 << 3), Some(Rcode::NOTIMP)),
        ("an update", changed(&|request| request[2] |= 5 << 3), Some(Rcode::NOTIMP)),
    ] {
        let index = Index::default().apply(&changes(FLEET));
        let mut out = b"what was there before".to_vec();
        let outcome = answer_over(&index, &request, Transport::Udp, &mut out);
        assert_eq!(outcome.map(|outcome| outcome.rcode), expected.map(OptRcode::from), "{what}");
        let Some(rcode) = expected else {
            assert!(out.is_empty(), "{what}");
            continue;
        };
        let header = Message::from_slice(&out).unwrap().header();
        assert_eq!((header.id(), header.qr(), header.rcode()), (ID, true, rcode), "{what}");
        assert_eq!(header.opcode(), Message::from_slice(&request).unwrap().header().opcode(), "{what}");
    }
}

#[test]
fn the_longest_name_and_the_root_are_names_too() {
    let longest = format!("{}fleet.example", "a.".repeat(120));
    assert_eq!(DnsName::parse(&longest).unwrap().as_wire().len(), model::name::MAX_NAME);
    let told = ask(FLEET, with_opt(&format!("{longest} A"), 0, 512, true), Transport::Udp);
    assert_eq!(told, "NXDOMAIN aa\nauthority fleet.example 30 SOA #7\n");

    let root = ". 30 SOA 1\n. 30 NS a.test\n* 30 A 192.0.2.1\n";
    assert_eq!(ask(root, query(". NS"), Transport::Udp), "NOERROR aa\nanswer . 30 NS a.test\n");
    assert_eq!(ask(root, query("x.y A"), Transport::Udp), "NOERROR aa\nanswer x.y 30 A 192.0.2.1\n");
}

#[test]
fn flags_come_back_as_they_should() {
    let mut request = query("api.c1.fleet.example A");
    let header = request.header_mut();
    header.set_rd(true);
    header.set_cd(true);
    header.set_ad(true);
    header.set_aa(true);
    header.set_tc(true);
    assert_eq!(ask(FLEET, request, Transport::Udp).lines().next(), Some("NOERROR aa rd"));
}

#[test]
fn the_outcome_names_the_zone_of_the_question() {
    let index = Index::default().apply(&changes(FLEET));
    for (question, zone) in [
        ("over.fleet.example A", Some("fleet.example")),
        ("x.inner.fleet.example A", Some("inner.fleet.example")),
        ("other.test A", None),
    ] {
        let request = query(question).finish();
        let outcome = answer_over(&index, &request, Transport::Udp, &mut Vec::new()).unwrap();
        assert_eq!(outcome.apex().map(ToString::to_string).as_deref(), zone, "{question}");
    }
}

const ID: u16 = 0xbeef;

static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);

fn answer_over<'a>(
    index: &'a Index,
    request: &'a [u8],
    transport: Transport,
    out: &mut Vec<u8>,
) -> Option<Outcome<'a>> {
    let client = Client { address: IpAddr::from([192, 0, 2, 200]), transport, now: 1_700_000_000 };
    super::answer(index, &SETTINGS, &client, request, out)
}

/// `NAME TYPE [CLASS]`
fn query(question: &str) -> AdditionalBuilder<Vec<u8>> {
    let fields: Vec<&str> = question.split_whitespace().collect();
    let class = fields.get(2).map_or(Class::IN, |class| class.parse().unwrap());
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(ID);
    let mut builder = builder.question();
    builder.push((Name::vec_from_str(fields[0]).unwrap(), fields[1].parse().unwrap(), class)).unwrap();
    builder.additional()
}

fn with_opt(question: &str, version: u8, payload_size: u16, dnssec_ok: bool) -> AdditionalBuilder<Vec<u8>> {
    let mut request = query(question);
    let fill = |opt: &mut domain::base::message_builder::OptBuilder<'_, Vec<u8>>| {
        opt.set_version(version);
        opt.set_udp_payload_size(payload_size);
        opt.set_dnssec_ok(dnssec_ok);
        Ok(())
    };
    request.opt(fill).unwrap();
    request
}

fn ask(zones: &str, request: AdditionalBuilder<Vec<u8>>, transport: Transport) -> String {
    let mut out = Vec::new();
    answer_over(&Index::default().apply(&changes(zones)), &request.finish(), transport, &mut out).unwrap();
    tell(&out)
}

/// A response as text: code and flags, then a line for each record.
fn tell(response: &[u8]) -> String {
    let message = Message::from_slice(response).unwrap();
    let header = message.header();
    assert!(header.qr() && header.id() == ID && !header.ra());
    let mut text = header.rcode().to_string();
    for (set, flag) in
        [(header.aa(), " aa"), (header.tc(), " tc"), (header.rd(), " rd"), (header.ad(), " ad"), (header.cd(), " cd")]
    {
        text.push_str(if set { flag } else { "" });
    }
    text.push('\n');
    let (_, answer, authority, additional) = message.sections().unwrap();
    for (section, records) in [("answer", answer), ("authority", authority), ("additional", additional)] {
        for record in records {
            let record = record.unwrap().into_any_record::<AllRecordData<_, _>>().unwrap();
            let data = match record.data() {
                AllRecordData::Opt(_) => continue,
                AllRecordData::Soa(soa) => format!("#{}", soa.serial()),
                data => data.to_string().trim_end_matches('.').to_owned(),
            };
            let owner = DnsName::from_wire(record.owner().to_vec().as_slice()).unwrap();
            let ttl = record.ttl().as_secs();
            writeln!(text, "{section} {owner} {ttl} {} {data}", record.rtype()).unwrap();
        }
    }
    text
}

fn zone_of_addresses(count: u16) -> String {
    let mut text = String::from("z 30 SOA 1\n");
    for address in 0..count {
        let [high, low] = address.to_be_bytes();
        writeln!(text, "a.z 30 A 192.0.{high}.{low}").unwrap();
    }
    text
}
