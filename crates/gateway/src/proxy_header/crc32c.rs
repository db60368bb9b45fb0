//! CRC-32C (Castagnoli), as the checksum TLV wants it.

/// The reflected form of the polynomial 0x1EDC6F41.
const POLYNOMIAL: u32 = 0x82F6_3B78;
const TABLE: [u32; 256] = table();

/// The checksum of a header whose own four-byte field, which starts at `at`, counts as zero.
pub(super) fn with_field_zeroed(header: &[u8], at: usize) -> u32 {
    let before = update(!0, &header[..at]);
    !update(update(before, &[0; 4]), &header[at + 4..])
}

fn update(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, &byte| TABLE[usize::from(state.to_le_bytes()[0] ^ byte)] ^ (state >> 8))
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index: u32 = 0;
    while index < 256 {
        let mut entry = index;
        let mut bit = 0;
        while bit < 8 {
            entry = if entry & 1 == 1 { (entry >> 1) ^ POLYNOMIAL } else { entry >> 1 };
            bit += 1;
        }
        table[index as usize] = entry;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_comes_out() {
        assert_eq!(!update(!0, b"123456789"), 0xE306_9283);
        // RFC 3720 B.4: 32 bytes of zeros.
        assert_eq!(!update(!0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(with_field_zeroed(&[0xFF; 4], 0), !update(!0, &[0; 4]));
    }
}
