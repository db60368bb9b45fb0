use domain::base::iana::Rtype;
use model::DnsName;
use model::zone_file::ZoneFile;
use proptest::prelude::*;

use super::parse;
use crate::Mistake;

fn read(text: &str) -> Result<ZoneFile, Mistake> {
    parse(text.as_bytes(), &DnsName::parse("z.test").unwrap(), 30)
}

/// A line per record: name, TTL, type and data.
fn lines(file: &ZoneFile) -> Vec<String> {
    let mut lines = Vec::new();
    for name in file.names() {
        let owner = DnsName::from_wire(name.wire).unwrap();
        for set in name.sets.map(|number| file.set(number)) {
            for data in set.records() {
                let data = data.escape_ascii();
                lines.push(format!(
                    "{owner} {} {} {data}",
                    set.ttl,
                    Rtype::from_int(set.rtype).to_mnemonic_str().unwrap_or("?")
                ));
            }
        }
    }
    lines
}

#[test]
fn a_file_in_all_the_ways_of_rfc_1035() {
    let file = read(
        "; the whole of 5.1\r\n\
         $TTL 1h\r\n\
         @   IN SOA ns1 Host\\.Master ( 2024010101 ; the serial\r\n\
         \t 1d 2H 4w 1h30m )\r\n\
         \tNS ns1\r\n\
         \x20 60 NS ns2.Other.test.\n\
         ns1 A 192.0.2.1\n\
         \tIN 5 AAAA 2001:db8::1\n\
         $ORIGIN sub\n\
         WWW 7 IN CNAME @\n\
         @ IN 7 TXT (\"a b\" c\\059d \"\"\n  \"\\\"\")   ; two lines\n\
         \\*.x\\.y\\003 MX 10 mail\n\
         $ORIGIN .\n\
         last.z.test PTR z.test",
    )
    .unwrap();
    assert_eq!(
        lines(&file),
        [
            "z.test 60 NS \\x03ns1\\x01z\\x04test\\x00",
            "z.test 60 NS \\x03ns2\\x05Other\\x04test\\x00",
            "last.z.test 3600 PTR \\x01z\\x04test\\x00",
            "ns1.z.test 3600 A \\xc0\\x00\\x02\\x01",
            "ns1.z.test 5 AAAA  \\x01\\r\\xb8\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01",
            "sub.z.test 7 TXT \\x03a b\\x03c;d\\x00\\x01\\\"",
            "www.sub.z.test 7 CNAME \\x03sub\\x01z\\x04test\\x00",
            "*.x\\.y\\003.sub.z.test 3600 MX \\x00\\n\\x04mail\\x03sub\\x01z\\x04test\\x00",
        ]
    );
    let soa = file.soa().unwrap();
    assert_eq!(
        (soa.primary.to_string().as_str(), soa.mailbox.to_string().as_str()),
        ("ns1.z.test", "host\\.master.z.test")
    );
    let numbers = [soa.ttl, soa.serial, soa.refresh, soa.retry, soa.expire, soa.minimum];
    assert_eq!(numbers, [3600, 2_024_010_101, 86_400, 7200, 2_419_200, 5400]);
}

/// Each row: records, and the TTL of the last.
#[test]
fn a_record_without_a_ttl_takes_one_over() {
    for (text, ttl) in [
        ("a A 192.0.2.1", 30),
        ("a 9 A 192.0.2.1\nb A 192.0.2.2", 9),
        ("$TTL 8\na 9 A 192.0.2.1\nb A 192.0.2.2", 8),
        ("a 9 A 192.0.2.1\n$TTL 2147483647\nb A 192.0.2.2", 2_147_483_647),
        ("a 9 A 192.0.2.1\nb IN A 192.0.2.2", 9),
        ("a 0 A 192.0.2.1", 0),
    ] {
        let file = read(text).unwrap();
        assert_eq!(file.set(u32::try_from(file.names().count() - 1).unwrap()).ttl, ttl, "{text}");
    }
}

/// Each row: what stands before `A 192.0.2.1`, and the names that have it.
#[test]
fn an_owner_is_taken_over_or_written_again() {
    for (text, names) in [
        ("a A 192.0.2.9\n ", vec!["a.z.test"]),
        ("a A 192.0.2.9\na ", vec!["a.z.test"]),
        ("a A 192.0.2.9\nA ", vec!["a.z.test"]),
        ("a A 192.0.2.9\nb A 192.0.2.8\na ", vec!["a.z.test"]),
        ("a A 192.0.2.9\n$ORIGIN b\na ", vec!["a.b.z.test"]),
        ("a A 192.0.2.9\n$ORIGIN b\n ", vec!["a.z.test"]),
        ("@ A 192.0.2.9\n\"@\" ", vec!["@.z.test"]),
        ("\"@\" A 192.0.2.9\n@ ", vec!["z.test"]),
    ] {
        let file = read(&format!("{text}A 192.0.2.1")).unwrap_or_else(|mistake| panic!("{text}: {mistake}"));
        let wanted = "A \\xc0\\x00\\x02\\x01";
        let found: Vec<_> = lines(&file).into_iter().filter(|line| line.ends_with(wanted)).collect();
        let expected: Vec<_> = names.iter().map(|name| format!("{name} 30 {wanted}")).collect();
        assert_eq!(found, expected, "{text}");
    }
}

/// Each row: a record, and its data.
#[test]
fn data_of_many_types() {
    for (text, data) in [
        ("a SRV 1 2 3 t", "\\x00\\x01\\x00\\x02\\x00\\x03\\x01t\\x01z\\x04test\\x00"),
        ("a CAA 0 issue \"ca.test\"", "\\x00\\x05issueca.test"),
        (
            "a HTTPS 1 . alpn=\"h2,h3\" port=53",
            "\\x00\\x01\\x00\\x00\\x01\\x00\\x06\\x02h2\\x02h3\\x00\\x03\\x00\\x02\\x005",
        ),
        ("a DS 1 8 2 ( AA bb\n CC )", "\\x00\\x01\\x08\\x02\\xaa\\xbb\\xcc"),
        ("a TLSA 3 1 1 00ff", "\\x03\\x01\\x01\\x00\\xff"),
        ("a SSHFP 1 1 00ff", "\\x01\\x01\\x00\\xff"),
        ("a HINFO \"a b\" c", "\\x03a b\\x01c"),
        ("a RP @ .", "\\x01z\\x04test\\x00\\x00"),
        ("a NAPTR 1 2 \"u\" \"x\" \"!a!\" t.", "\\x00\\x01\\x00\\x02\\x01u\\x01x\\x03!a!\\x01t\\x00"),
        ("a KX 1 t.", "\\x00\\x01\\x01t\\x00"),
        ("a SPF \"v=spf1 -all\"", "\\x0bv=spf1 -all"),
        ("a TXT \"gr\u{fc}n\"", "\\x05gr\\xc3\\xbcn"),
        // RFC 3597 5.
        ("a TYPE65280 \\# 3 01 0203", "\\x01\\x02\\x03"),
        ("a TYPE65280 \\# 0", ""),
        ("a CLASS1 TYPE1 \\# 4 C0000201", "\\xc0\\x00\\x02\\x01"),
        ("a TYPE1 192.0.2.1", "\\xc0\\x00\\x02\\x01"),
        ("a LOC \\# 2 ( 00\n 01 )", "\\x00\\x01"),
    ] {
        let file = read(text).unwrap_or_else(|mistake| panic!("{text}: {mistake}"));
        let found: Vec<_> = file.set(0).records().map(|data| data.escape_ascii().to_string()).collect();
        assert_eq!(found, [data], "{text}");
    }
}

#[test]
fn mistakes_have_a_line_and_a_reason() {
    let long = "a".repeat(64);
    for (text, expected) in [
        ("", "1:1: the zone file has no records; where none are wanted, leave `zoneFile` out"),
        ("; nothing\n\n", "3:1: the zone file has no records; where none are wanted, leave `zoneFile` out"),
        ("\n$INCLUDE other", "2:1: $INCLUDE is not supported: a Zone has one zone file, beside its manifest"),
        ("$GENERATE 1-2 a A 192.0.2.$", "1:1: no directive is called `$GENERATE`; known are $ORIGIN and $TTL"),
        ("$TTL", "1:5: the TTL is missing"),
        ("$TTL 1x", "1:6: `1x` is no TTL: seconds up to 2147483647, or such as 1h30m"),
        ("$TTL 2147483648", "1:6: `2147483648` is no TTL: seconds up to 2147483647, or such as 1h30m"),
        ("$ORIGIN a b", "1:11: `b` is one word too many"),
        (" A 192.0.2.1", "1:2: the first record has no owner; there is none before it to take over"),
        ("\n\na\tA\t192.0.2", "3:5: `192.0.2` is no IPv4 address"),
        ("a AAAA 192.0.2.1", "1:8: `192.0.2.1` is no IPv6 address"),
        ("a CH A 192.0.2.1", "1:3: class `CH`; only IN is served"),
        ("a IN CLASS3 A 192.0.2.1", "1:6: class `CLASS3`; only IN is served"),
        ("a IN", "1:5: the record's type is missing"),
        ("a IN ADDRESS 192.0.2.1", "1:6: no record type is called `ADDRESS`"),
        ("a OPT \\# 0", "1:3: records of type `OPT` do not stand in zones"),
        ("a A", "1:4: the record's data is missing"),
        ("a A ; nothing", "1:4: the record's data is missing"),
        ("a A 192.0.2.1 192.0.2.2", "1:15: `192.0.2.2` is one word too many"),
        ("a NS b..c", "1:6: `b..c`: the name has an empty label (two dots in a row, or a leading dot)"),
        ("a NS \"\"", "1:6: ``: a DNS name must not be empty"),
        (
            "a SRV 1 2 3 b..c",
            "1:7: the data of this SRV record cannot be read: it is not what a record of this type holds",
        ),
        ("a NS b\\256", "1:6: `b\\\\256`: `\\` is followed by three digits up to 255, or by one other character"),
        ("a NS b\\", "1:7: the line ends in the middle of an escape"),
        ("a NS \u{e4}", "1:6: `\\xc3\\xa4`: write octets that are no visible ASCII as `\\DDD`"),
        (
            "a A \\# 3 000000",
            "1:5: the data of this A record cannot be read: it is not what a record of this type holds",
        ),
        (
            "a NS \\# 2 C000",
            "1:6: the data of this NS record cannot be read: it is not what a record of this type holds",
        ),
        ("a LOC 1 2 3", "1:7: the data of this LOC record cannot be read: unknown record type with concrete data"),
        ("a TXT \"b\n", "1:7: the quote is not closed on its line; a line feed inside is `\\010`"),
        ("a TXT ( b\n\n", "1:7: `(` without its `)`"),
        ("a TXT b )\n", "1:9: `)` without its `(`"),
        ("b.other. A 192.0.2.1", "1:1: b.other lies outside of the zone z.test"),
        (
            "a A 192.0.2.1\na CNAME b\n",
            "2:1: a.z.test has a CNAME record and other records; RFC 2181 10.1 allows one CNAME and nothing beside it",
        ),
        (
            "a CNAME b\nb A 192.0.2.1\n\nA TXT t\n",
            "1:1: a.z.test has a CNAME record and other records; RFC 2181 10.1 allows one CNAME and nothing beside it",
        ),
        ("a SOA a b 1 1 1 1 1", "1:1: the SOA record stands at a.z.test instead of the apex"),
        ("@ SOA a b 1 1 1 1 1\n@ SOA a b 1 1 1 1 1", "2:1: a second SOA record"),
        ("@ SOA a b 1 1 1 1", "1:18: the negative TTL is missing"),
        ("@ SOA a b 1h 1 1 1 1", "1:11: `1h` is no serial of 32 bits"),
        (
            format!("{long} A 192.0.2.1").as_str(),
            format!("1:1: `{long}`: label \"{long}\" is longer than 63 octets").as_str(),
        ),
        (
            format!("{} A 192.0.2.1", "a.".repeat(128)).as_str(),
            format!("1:1: `{}`: the name is longer than 255 octets", "a.".repeat(32)).as_str(),
        ),
        (
            format!("a TXT {}", "a".repeat(256)).as_str(),
            "1:7: the text is longer than 255 octets; split it into several",
        ),
    ] {
        assert_eq!(read(text).map_err(|mistake| mistake.to_string()).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn an_apex_may_be_the_root_or_hold_a_star() {
    for (apex, text) in [(".", "a A 192.0.2.1\n. NS a"), ("a.*.test", "@ NS b\nb A 192.0.2.1")] {
        let apex = DnsName::parse(apex).unwrap();
        let file = parse(text.as_bytes(), &apex, 30).unwrap();
        assert!(file.has(&apex, 2), "{apex}");
        assert_eq!(file.names().count(), 2, "{apex}");
    }
}

proptest! {
    #[test]
    fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&octets, &DnsName::root(), 30);
    }

    /// Nearer to what is written: words of every type, cut and put together at random.
    #[test]
    fn any_words_are_read_or_refused(
        rtype in 0..300_u16,
        words in prop::collection::vec("[ -~\\n\u{e4}]{0,9}|\\\\#|[0-9]{1,6}|[0-9A-F]{2,8}|[a-z.]{1,9}|\"[ -~]{0,5}\"|alpn=|[()]", 0..9),
    ) {
        let text = format!("a TYPE{rtype} {}\nb A 192.0.2.1", words.join(" "));
        let _ = read(&text);
    }
}
