use domain::base::iana::Opcode;
use domain::base::{Question, Ttl};
use domain::rdata::{A, Aaaa, Txt};
use proptest::prelude::*;

use super::*;

const MARKED: Mark = Mark { processes: [[9; 8], [8; 8], [0; 8], [0; 8]], hops: 2 };

fn name(text: &str) -> DnsName {
    text.parse().unwrap()
}

fn wire(text: &str) -> Name<Vec<u8>> {
    wire_name(&name(text)).unwrap()
}

fn key(text: &str, rtype: Rtype) -> Key {
    Key::new(&name(text), rtype, RECURSION)
}

/// `A 60 OWNER ADDRESS`, `CNAME 60 OWNER TARGET` or `SOA TTL OWNER MINIMUM`, one on each line.
fn response(key: &Key, rcode: Rcode, answers: &str, authority: &str) -> Vec<u8> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_qr(true);
    message.header_mut().set_aa(true);
    message.header_mut().set_rcode(rcode);
    let mut message = message.question();
    message.push(Question::new(wire_name(&key.name()).unwrap(), key.rtype(), Class::IN)).unwrap();
    let mut message = message.answer();
    for line in answers.lines() {
        let [rtype, ttl, owner, data] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let ttl = Ttl::from_secs(ttl.parse().unwrap());
        match rtype {
            "A" => message.push((wire(owner), ttl, data.parse::<A>().unwrap())).unwrap(),
            "AAAA" => message.push((wire(owner), ttl, data.parse::<Aaaa>().unwrap())).unwrap(),
            "CNAME" => message.push((wire(owner), ttl, Cname::new(wire(data)))).unwrap(),
            _ => panic!("{line}"),
        }
    }
    let mut message = message.authority();
    for line in authority.lines() {
        let [_, ttl, owner, minimum] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let [ttl, minimum] = [ttl, minimum].map(|text| Ttl::from_secs(text.parse().unwrap()));
        let soa = Soa::new(wire("ns.test"), wire("root.test"), 1.into(), ttl, ttl, ttl, minimum);
        message.push((wire(owner), ttl, soa)).unwrap();
    }
    let mut message = message.additional();
    message
        .opt(|opt| {
            opt.set_udp_payload_size(4096);
            Ok(())
        })
        .unwrap();
    message.finish()
}

fn asked(octets: &[u8]) -> (Head<'_>, Key, Option<Mark>) {
    match receive(octets) {
        Received::Question { head, key, mark } => (head, key, mark),
        Received::No { rcode, .. } => panic!("{rcode}"),
        Received::Nothing => panic!("nothing"),
    }
}

#[test]
fn what_we_ask_is_what_was_asked() {
    let key =
        Key::new(&name("Web.Shop.svc.cluster.local"), Rtype::from_int(64_321), RECURSION | UNCHECKED | KEY_DNSSEC_OK);
    let query = Query::new(&key, Some(MARKED));
    let (head, again, mark) = asked(query.as_octets());
    assert_eq!(again.as_slice(), key.as_slice());
    assert_eq!(mark, Some(MARKED));
    assert_eq!(head.udp_limit(), 1232);
    let plain = Query::new(&key, None);
    let (head, _, mark) = asked(plain.as_octets());
    assert_eq!((head.udp_limit(), mark), (512, None));
}

#[test]
fn what_cannot_be_asked() {
    let good = Query::new(&key("a.test", Rtype::A), Some(MARKED)).as_octets().to_vec();
    let change = |at: usize, octet: u8| {
        let mut octets = good.clone();
        octets[at] = octet;
        octets
    };
    let end = 12 + name("a.test").as_wire().len();
    let opt = end + 4;
    let twice = {
        let mut octets = change(11, 2);
        octets.extend_from_slice(&good[opt..]);
        octets
    };
    for (what, octets, expected) in [
        ("too short", good[..11].to_vec(), None),
        ("a response", change(2, 0x81), None),
        ("a notification", change(2, 0x20), Some(OptRcode::NOTIMP)),
        ("an update", change(2, 0x28), Some(OptRcode::NOTIMP)),
        ("no question", change(5, 0), Some(OptRcode::FORMERR)),
        ("two questions", change(5, 2), Some(OptRcode::FORMERR)),
        ("cut in the name", good[..15].to_vec(), Some(OptRcode::FORMERR)),
        ("cut in the option", good[..good.len() - 3].to_vec(), Some(OptRcode::FORMERR)),
        ("a label that is none", change(12, 0x7f), Some(OptRcode::FORMERR)),
        ("a name that points", change(12, 0xc0), Some(OptRcode::FORMERR)),
        ("another class", change(end + 3, 3), Some(OptRcode::NOTIMP)),
        ("a transfer", change(end + 1, 252), Some(OptRcode::NOTIMP)),
        ("another version of EDNS", change(opt + 6, 1), Some(OptRcode::BADVERS)),
        ("two OPT records", twice, Some(OptRcode::FORMERR)),
    ] {
        match (receive(&octets), expected) {
            (Received::Nothing, None) => {}
            (Received::No { head, rcode }, Some(expected)) => {
                assert_eq!(rcode, expected, "{what}");
                let reply = head.say(rcode, Some(Remark { code: Extended::Other, text: "no" }));
                let message = Message::from_slice(&reply).unwrap();
                assert_eq!(message.opt_rcode().to_int() & 0x0f, expected.to_int() & 0x0f, "{what}");
                assert_eq!(message.header().id().to_be_bytes(), good[..2], "{what}");
                assert_eq!(message.header().opcode(), Opcode::from_int(octets[2] >> 3 & 0x0f), "{what}");
            }
            _ => panic!("{what}"),
        }
    }
}

#[test]
fn answers_are_kept_for_as_long_as_they_hold() {
    let alias = "CNAME 300 a.test b.test";
    for (what, rcode, answers, authority, expected) in [
        (
            "the lowest counts",
            Rcode::NOERROR,
            "A 60 a.test 192.0.2.1\nA 7 a.test 192.0.2.2",
            "",
            (Kind::Positive, 7, None),
        ),
        ("an hour is enough", Rcode::NOERROR, "A 86400 a.test 192.0.2.1", "", (Kind::Positive, 3600, None)),
        ("no floor", Rcode::NOERROR, "A 0 a.test 192.0.2.1", "", (Kind::Positive, 0, None)),
        (
            "an alias and its end",
            Rcode::NOERROR,
            &format!("{alias}\nA 60 b.test 192.0.2.1"),
            "",
            (Kind::Positive, 60, None),
        ),
        ("an alias alone", Rcode::NOERROR, alias, "", (Kind::Positive, 300, Some("b.test"))),
        ("an alias to nothing", Rcode::NOERROR, alias, "SOA 20 test 10", (Kind::Negative, 10, None)),
        ("an alias to no name", Rcode::NXDOMAIN, alias, "SOA 20 test 10", (Kind::Negative, 10, None)),
        ("no such name", Rcode::NXDOMAIN, "", "SOA 20 test 10", (Kind::Negative, 10, None)),
        ("the SOA's own TTL", Rcode::NXDOMAIN, "", "SOA 5 test 10", (Kind::Negative, 5, None)),
        ("no longer than 30 s", Rcode::NXDOMAIN, "", "SOA 3600 test 3600", (Kind::Negative, 30, None)),
        ("nothing of the type", Rcode::NOERROR, "", "SOA 3600 test 3600", (Kind::Negative, 30, None)),
        ("without SOA", Rcode::NXDOMAIN, "", "", (Kind::Negative, 0, None)),
        ("another name's record", Rcode::NOERROR, "A 60 x.test 192.0.2.1", "", (Kind::Negative, 0, None)),
    ] {
        let key = key("a.test", Rtype::A);
        let read = Response::read(&response(&key, rcode, answers, authority), &key).unwrap();
        assert_eq!((read.kind, read.ttl, read.alias), (expected.0, expected.1, expected.2.map(name)), "{what}");
    }
    let round = "CNAME 60 a.test b.test\nCNAME 60 b.test a.test";
    let key = key("a.test", Rtype::A);
    assert_eq!(Response::read(&response(&key, Rcode::NOERROR, round, ""), &key), Err(Malformed));
}

#[test]
fn answers_are_told_as_they_were_asked_for() {
    let key = key("a.test", Rtype::A);
    let kept = Response::read(&response(&key, Rcode::NOERROR, "A 60 a.test 192.0.2.1", ""), &key).unwrap();
    let mut octets = Query::new(&key, Some(MARKED)).as_octets().to_vec();
    octets[13] = b'A';
    let (head, ..) = asked(&octets);
    for (age, ttl, remark) in [
        (Age::Seconds(0), 60, None),
        (Age::Seconds(59), 1, None),
        (Age::Seconds(99), 0, None),
        (Age::Stale, 30, Some(3)),
    ] {
        let reply = kept.to(&head, age, 1232);
        let message = Message::from_slice(&reply).unwrap();
        assert_eq!(&reply[..2], &octets[..2]);
        assert_eq!(reply[13], b'A', "the letters of the question");
        assert!(message.header().ra() && message.header().rd() && !message.header().aa());
        let record = message.answer().unwrap().next().unwrap().unwrap();
        assert_eq!(record.ttl().as_secs(), ttl);
        let opt = message.opt().unwrap();
        assert_eq!(opt.udp_payload_size(), 1232);
        assert_eq!(opt.opt().extended_error().map(|error| error.code().to_int()), remark);
    }
}

#[test]
fn what_does_not_fit_sends_to_tcp() {
    let key = key("a.test", Rtype::TXT);
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_qr(true);
    let mut message = message.question();
    message.push(Question::new(wire("a.test"), Rtype::TXT, Class::IN)).unwrap();
    let mut message = message.answer();
    for _ in 0..3 {
        let data: Txt<Vec<u8>> = Txt::build_from_slice(&[b'x'; 250]).unwrap();
        message.push((wire("a.test"), Ttl::from_secs(9), data)).unwrap();
    }
    let kept = Response::read(&message.finish(), &key).unwrap();
    let plain = Query::new(&key, None);
    let (head, ..) = asked(plain.as_octets());
    let reply = kept.to(&head, Age::Seconds(0), head.udp_limit());
    assert!(Query::is_truncated(&reply) && reply.len() <= 512);
    assert!(!Query::is_truncated(&kept.to(&head, Age::Seconds(0), usize::from(u16::MAX))));
    let wide = Query::new(&key, Some(MARKED));
    let (head, ..) = asked(wide.as_octets());
    assert!(!Query::is_truncated(&kept.to(&head, Age::Seconds(0), head.udp_limit())));
}

#[test]
fn chains_are_put_together() {
    let first = key("a.test", Rtype::A);
    let second = key("b.test", Rtype::A);
    let alias = Response::read(&response(&first, Rcode::NOERROR, "CNAME 300 a.test b.test", ""), &first).unwrap();
    let end = Response::read(&response(&second, Rcode::NOERROR, "A 60 b.test 192.0.2.1", ""), &second).unwrap();
    let whole = Response::chain(&first, &[Arc::new(alias.clone()), Arc::new(end)]).unwrap();
    assert_eq!((whole.kind, whole.ttl, whole.alias), (Kind::Positive, 60, None));
    let no = Response::read(&response(&second, Rcode::NXDOMAIN, "", "SOA 20 test 10"), &second).unwrap();
    let whole = Response::chain(&first, &[Arc::new(alias), Arc::new(no)]).unwrap();
    assert_eq!((whole.kind, whole.ttl, whole.rcode), (Kind::Negative, 10, Rcode::NXDOMAIN));
}

#[test]
fn answers_of_others_are_none() {
    let asked = key("a.test", Rtype::A);
    let query = Query::new(&asked, None);
    let mut good = response(&asked, Rcode::NOERROR, "A 60 a.test 192.0.2.1", "");
    good[..2].copy_from_slice(&query.as_octets()[..2]);
    assert!(query.is_answered_by(&good));
    let change = |at: usize, octet: u8| {
        let mut octets = good.clone();
        octets[at] = octet;
        octets
    };
    assert!(query.is_answered_by(&change(13, b'A')), "other letters are the same name");
    let other = good[0].wrapping_add(1);
    for (what, octets) in [
        ("another id", change(0, other)),
        ("a question", change(2, 0)),
        ("another name", change(13, b'b')),
        ("another type", change(21, 28)),
        ("nothing", Vec::new()),
    ] {
        assert!(!query.is_answered_by(&octets), "{what}");
    }
}

#[test]
fn loops_are_seen() {
    let mut mark = Mark::default();
    for process in 1..=4 {
        assert!(!mark.is_loop([process; 8]), "{mark:?}");
        mark = mark.and([process; 8]);
        assert!(mark.is_loop([process; 8]) && mark.is_loop([1; 8]), "{mark:?}");
    }
    assert!(mark.is_loop([9; 8]), "too many hands");
    assert_eq!(mark.and([9; 8]), mark);
}

proptest! {
    #[test]
    fn any_octets_are_read(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        read_any(&octets);
    }

    /// Near to what is right, where more of the code is.
    #[test]
    fn any_change_of_a_response_is_read(at in 0_usize..200, octet: u8, cut in 0_usize..40) {
        let key = key("a.test", Rtype::A);
        let answers = "CNAME 300 a.test b.test\nA 60 b.test 192.0.2.1";
        let mut octets = response(&key, Rcode::NOERROR, answers, "SOA 20 test 10");
        if let Some(place) = octets.get_mut(at) {
            *place = octet;
        }
        let length = octets.len().saturating_sub(cut);
        read_any(&octets[..length]);
        let query = Query::new(&key, Some(MARKED));
        let mut octets = query.as_octets().to_vec();
        if let Some(place) = octets.get_mut(at) {
            *place = octet;
        }
        read_any(&octets);
    }
}
