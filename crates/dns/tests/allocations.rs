//! Nothing is allocated from one packet to the next.

// The lint knows test functions, but not what they call.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use dns::{Client, Guides, Index, Settings, Transport};
use model::steering::{Known, Standings, Unhealthy};

mod records;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator; a counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const FLEET: &str = "
    fleet.example 30 SOA 7
    fleet.example 30 NS ns1.fleet.example
    ns1.fleet.example 30 A 192.0.2.53
    api.c1.fleet.example 30 A 192.0.2.10
    *.c1.fleet.example 30 A 192.0.2.11
    www.fleet.example 30 CNAME api.c1.fleet.example
    loop.fleet.example 30 CNAME pool.fleet.example
    pool.fleet.example 30 CNAME loop.fleet.example
    old.fleet.example 30 DNAME c1.fleet.example
    mail.fleet.example 30 MX 10 ns1.fleet.example
    sub.fleet.example 30 NS ns.sub.fleet.example
    ns.sub.fleet.example 30 A 192.0.2.99
    near.fleet.example 30 STEER geo
    near.fleet.example 30 MEMBER c1 52.5,13.4 192.0.2.1 2001:db8::1
    near.fleet.example 30 MEMBER c2 40.7,-74.0 192.0.2.2
    near.fleet.example 30 MEMBER c3 1.3,103.8 192.0.2.3
    heavy.fleet.example 30 STEER weighted c1=2 c2=1
    heavy.fleet.example 30 MEMBER c1 - 192.0.2.1
    heavy.fleet.example 30 MEMBER c2 - 192.0.2.2
    first.fleet.example 30 STEER failover c2
    first.fleet.example 30 MEMBER c1 - 192.0.2.1
    first.fleet.example 30 MEMBER c2 - 192.0.2.2
    fast.fleet.example 30 STEER latency
    fast.fleet.example 30 MEMBER c1 - 192.0.2.1
    *.all.fleet.example 30 STEER roundRobin
    *.all.fleet.example 30 MEMBER c1 - 192.0.2.1 192.0.2.11
    *.all.fleet.example 30 MEMBER c2 - 192.0.2.2
    shop.fleet.example 30 CNAME near.fleet.example
";

const PLACES: &[u8] = b"192.0.2.0/24 50 8\n198.51.100.0/24 40 -70\n2001:db8::/32 1 100";

#[test]
fn no_query_allocates() {
    let index = Index::default().apply(&records::changes(FLEET));
    let guides = Guides::default();
    guides.places.store(Some(Arc::new(geo::Map::parse(PLACES).unwrap())));
    let out = Known { unhealthy: Some(Unhealthy::FailedChecks), ..Known::default() };
    let standings: Standings = [(records::member_key("c1"), out)].into_iter().collect();
    guides.standings.store(Arc::new(standings));
    let settings = Settings::default().with_identity("ns1").with_version("1").with_guides(guides);
    let asked = [
        ("api.c1.fleet.example", 1),
        ("any.c1.fleet.example", 1),
        ("nothing.fleet.example", 1),
        ("c1.fleet.example", 1),
        ("www.fleet.example", 1),
        ("loop.fleet.example", 28),
        ("x.old.fleet.example", 1),
        ("mail.fleet.example", 15),
        ("a.sub.fleet.example", 1),
        ("fleet.example", 255),
        ("fleet.example", 252),
        ("other.test", 1),
        ("near.fleet.example", 1),
        ("near.fleet.example", 28),
        ("near.fleet.example", 255),
        ("heavy.fleet.example", 1),
        ("first.fleet.example", 1),
        ("fast.fleet.example", 1),
        ("x.all.fleet.example", 1),
        ("x.all.fleet.example", 28),
        ("shop.fleet.example", 1),
    ];
    // Cookie, NSID and a client's subnet.
    let options = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x1b\0\x0a\0\x0812345678\0\x03\0\0\0\x08\0\x07\0\x01\x18\0\xc6\x33\x64";
    let mut requests = Vec::new();
    for (name, qtype) in asked {
        for with_options in [false, true] {
            let mut request = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(with_options)];
            request.extend_from_slice(records::name(name).as_wire());
            request.extend_from_slice(&[0, qtype, 0, 1]);
            request.extend_from_slice(if with_options { options } else { b"" });
            requests.push(request);
        }
    }
    // Cut short they are malformed.
    let malformed: Vec<_> = requests.iter().map(|request| request[..request.len() - 1].to_vec()).collect();
    requests.extend(malformed);

    let mut response = Vec::with_capacity(usize::from(u16::MAX));
    for transport in [Transport::Udp, Transport::Tcp] {
        let client = Client { address: IpAddr::from([192, 0, 2, 1]), transport, now: 1_700_000_000 };
        for request in &requests {
            let before = ALLOCATIONS.get();
            let answered = dns::answer(&index, &settings, &client, request, &mut response).is_some();
            assert_eq!(ALLOCATIONS.get() - before, 0, "{request:?}");
            assert!(answered);
        }
    }
    // The counter counts.
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
