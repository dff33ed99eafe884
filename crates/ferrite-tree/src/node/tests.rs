//! Node pages against a sorted map.

use super::*;
use crate::record::Header;
use ferrite_sync::random::Rng;
use std::collections::BTreeMap;

fn rec(suffix: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    record::encode(&Header::default(), suffix, value, &mut out);
    out
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let len = 1 + rng.below(12) as usize;
    let mut key = b"common".to_vec();
    key.extend((0..len).map(|_| rng.below(4) as u8));
    key
}

/// On a page that is nearly full, records that grow a little take no more than what they grow by.
#[test]
fn records_grow_where_they_are() {
    let mut page = vec![0u8; PAGE_BYTES];
    init(&mut page, IndexId(7), 0, b"", None, PageId::NONE);
    let value = |n: usize| vec![n as u8; 100];
    let mut n = 0;
    while free_bytes(&page) >= 860 {
        insert(&mut page, n, &rec(&(n as u32).to_be_bytes(), &value(n)));
        n += 1;
    }
    let stamped = Header {
        txn: ferrite_types::TxnId(5),
        ..Header::default()
    };
    for slot in (0..n).step_by(2) {
        let free = free_bytes(&page);
        let mut bytes = Vec::new();
        record::encode(
            &stamped,
            &(slot as u32).to_be_bytes(),
            &value(slot),
            &mut bytes,
        );
        replace(&mut page, slot, &bytes);
        assert_eq!(free_bytes(&page), free - 6);
        assert_eq!(get16(&page, 12), 0, "garbage after slot {slot}");
    }
    validate(&page, PageId(1)).unwrap();
    for slot in 0..n {
        let found = record(&page, slot);
        assert_eq!(found.suffix, (slot as u32).to_be_bytes());
        assert_eq!(found.value, value(slot));
        assert_eq!(found.header.txn.0, if slot % 2 == 0 { 5 } else { 0 });
    }
}

#[test]
fn random_edits_match_a_map() {
    for seed in 0..if cfg!(miri) { 8 } else { 60 } {
        let mut rng = Rng::new(seed);
        let mut page = vec![0u8; PAGE_BYTES];
        init(
            &mut page,
            IndexId(7),
            0,
            b"common",
            Some(b"commonz"),
            PageId(9),
        );
        assert_eq!(prefix(&page), b"common");
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for _ in 0..if cfg!(miri) { 100 } else { 2000 } {
            let key = random_key(&mut rng);
            let value = vec![rng.below(250) as u8; rng.below(60) as usize];
            let bytes = rec(&key[6..], &value);
            match find(&page, &key) {
                Ok(slot) if rng.below(2) == 0 => {
                    remove(&mut page, slot);
                    model.remove(&key);
                }
                Ok(slot) if can_replace(&page, slot, bytes.len()) => {
                    replace(&mut page, slot, &bytes);
                    model.insert(key, value);
                }
                Err(slot) if has_room(&page, bytes.len()) => {
                    insert(&mut page, slot, &bytes);
                    model.insert(key, value);
                }
                _ => {}
            }
        }
        validate(&page, PageId(1)).unwrap();
        assert_eq!(count(&page), model.len());
        for (slot, (key, value)) in model.iter().enumerate() {
            let mut found = Vec::new();
            key_into(&page, slot, &mut found);
            assert_eq!(&found, key);
            assert_eq!(record(&page, slot).value, value.as_slice());
            assert_eq!(find(&page, key), Ok(slot));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes when interpreted")]
fn parts_keep_every_key_under_new_prefixes() {
    let mut page = vec![0u8; PAGE_BYTES];
    init(&mut page, IndexId(1), 0, b"", None, PageId::NONE);
    for i in 0..200u32 {
        let key = format!("key{i:05}");
        insert(&mut page, i as usize, &rec(key.as_bytes(), b"v"));
    }
    let (mut left, mut right) = (vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]);
    copy_part(
        &page,
        0,
        100,
        b"key00000",
        Some(b"key00100"),
        PageId(5),
        &mut left,
    );
    copy_part(&page, 100, 200, b"key00100", None, PageId::NONE, &mut right);
    validate(&left, PageId(1)).unwrap();
    validate(&right, PageId(2)).unwrap();
    assert_eq!(prefix(&left), b"key00");
    assert!(covers(&left, b"key00099") && !covers(&left, b"key00100"));
    let mut joined = vec![0; PAGE_BYTES];
    init(&mut joined, IndexId(1), 0, b"", None, PageId::NONE);
    append_part(&left, 0, 100, &mut joined);
    append_part(&right, 0, 100, &mut joined);
    for slot in 0..200 {
        assert_eq!(raw(&joined, slot), raw(&page, slot));
    }
}

#[test]
fn keys_beyond_the_prefix_find_the_edges() {
    let mut page = vec![0u8; PAGE_BYTES];
    init(&mut page, IndexId(1), 0, b"mm1", Some(b"mm9"), PageId::NONE);
    insert(&mut page, 0, &rec(b"5", b""));
    assert_eq!(find(&page, b"a"), Err(0));
    assert_eq!(find(&page, b"m"), Err(0));
    assert_eq!(find(&page, b"z"), Err(1));
    assert_eq!(find(&page, b"mm4"), Err(0));
    assert_eq!(find(&page, b"mm6"), Err(1));
    assert_eq!(find(&page, b"mm5"), Ok(0));
}

#[test]
fn any_flipped_byte_is_found_or_harmless() {
    let mut page = vec![0u8; PAGE_BYTES];
    init(&mut page, IndexId(1), 0, b"", None, PageId::NONE);
    for i in 0..50u32 {
        let key = format!("key{i:05}");
        insert(&mut page, i as usize, &rec(key.as_bytes(), b"value"));
    }
    // Interpreted, a byte here and there.
    for at in (0..PAGE_BYTES).step_by(if cfg!(miri) { 211 } else { 1 }) {
        for bit in [0, 3, 7] {
            page[at] ^= 1 << bit;
            if validate(&page, PageId(1)).is_ok() {
                let _ = find(&page, b"key00025");
                for slot in 0..count(&page) {
                    let _ = record(&page, slot);
                }
            }
            page[at] ^= 1 << bit;
        }
    }
}
