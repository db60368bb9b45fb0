//! DNS questions, and whether an answer holds an address.

use std::net::Ipv4Addr;

use model::DnsName;

/// RFC 1035 4.1.1: header of a query with one question; the rest of its counts are zero.
const HEADER: usize = 12;
const RCODE: u8 = 0xF;
const NO_ERROR: u8 = 0;
const A: u16 = 1;
const IN: u16 = 1;

/// A query for the IPv4 addresses of a name.
pub fn for_addresses(id: u16, name: &DnsName) -> Vec<u8> {
    let mut query = Vec::with_capacity(HEADER + name.as_wire().len() + 4);
    for word in [id, 0, 1, 0, 0, 0] {
        query.extend(word.to_be_bytes());
    }
    query.extend(name.as_wire());
    query.extend(A.to_be_bytes());
    query.extend(IN.to_be_bytes());
    query
}

/// Whether `response` is a good answer to `query` with exactly these addresses.
pub fn is_answered_by(query: &[u8], response: &[u8], addresses: &[Ipv4Addr]) -> bool {
    let (Some(asked), Some(header)) = (query.get(..2), response.get(..HEADER)) else { return false };
    let no_error = header[3] & RCODE == NO_ERROR;
    let answers = usize::from(u16::from_be_bytes([header[6], header[7]]));
    let holds = |address: &Ipv4Addr| response[HEADER..].windows(4).any(|octets| octets == address.octets());
    &header[..2] == asked && no_error && answers == addresses.len() && addresses.iter().all(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_with_the_addresses_will_do() {
        let query = for_addresses(7, &DnsName::parse("c1.example").unwrap());
        let [one, other] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
        let mut response = query.clone();
        response[7] = 1;
        response.extend(one.octets());
        assert!(is_answered_by(&query, &response, &[one]));
        assert!(!is_answered_by(&query, &response, &[other]));
        assert!(!is_answered_by(&query, &response, &[one, other]));
        assert!(!is_answered_by(&for_addresses(8, &DnsName::root()), &response, &[one]));
        response[3] = 3;
        assert!(!is_answered_by(&query, &response, &[one]), "NXDOMAIN");
    }
}
