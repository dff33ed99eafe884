//! The cache priority of a table, a byte in the fixed beginning of the plugin's bytes
//! (`make_definition` in `plugin/ferrite_share.cc`).
//!
//! A definition that an earlier version made has 0 there: normal.
//!
//! Locking: none.

use ferrite_types::format::CachePriority;

/// Opens the plugin's bytes.
const MAGIC: &[u8] = b"FRd1";
/// Where the priority is.
const AT: usize = 7;
/// In a definition that is to take the place of another one: as it was.
const KEEP: u8 = 255;

/// The priority that a definition asks for. One that is not known here, of a later version: normal.
pub(crate) fn cache_priority(definition: &[u8]) -> CachePriority {
    let byte = match definition.starts_with(MAGIC) {
        true => definition.get(AT).copied().unwrap_or_default(),
        false => 0,
    };
    CachePriority::from_u8(byte).unwrap_or_default()
}

/// A new definition that says "as it was" gets the priority of the old one.
pub(crate) fn keep_cache_priority(new: &mut [u8], old: &[u8]) {
    let keeps = new.starts_with(MAGIC) && new.get(AT) == Some(&KEEP);
    if keeps {
        new[AT] = cache_priority(old) as u8;
    }
    debug_assert!(!keeps || cache_priority(new) == cache_priority(old));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(byte: u8) -> Vec<u8> {
        [MAGIC, &[1, 2, 3, byte, 9, 9]].concat()
    }

    #[test]
    fn the_byte_is_read_and_kept() {
        assert_eq!(cache_priority(&of(2)), CachePriority::High);
        assert_eq!(cache_priority(&of(77)), CachePriority::Normal);
        assert_eq!(cache_priority(b"FRd1abc"), CachePriority::Normal);
        assert_eq!(cache_priority(b"xxxxxxx\x02"), CachePriority::Normal);
        let mut new = of(KEEP);
        keep_cache_priority(&mut new, &of(1));
        assert_eq!(new, of(1));
        let mut new = of(0);
        keep_cache_priority(&mut new, &of(2));
        assert_eq!(new, of(0), "it is said anew");
        keep_cache_priority(&mut [], &of(2));
    }
}
