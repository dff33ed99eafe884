//! The key of one table as the other one of a foreign key has it: with that one's NULL markers,
//! directions and widths.
//!
//! Both sides' parts are of one class (`matching`): numbers have the same width, texts the same
//! collation and so the same bytes; what is compared as bytes may be of fixed width on one side and in
//! groups on the other.
//!
//! Invariant: no byte is read beyond the key. Locking: none.

use crate::catalog::describe::PartKind;
use crate::catalog::links::{Encoding, LinkPart};

/// Bytes in a group of a string that is ordered by its bytes.
const GROUP: usize = 8;

/// What a key means on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// A column is NULL: it refers to nothing.
    Null,
    /// No row of the other table can have the value.
    Nowhere,
    /// The other index's keys begin so.
    Key,
}

/// What a key begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    /// Bytes of the constraint's parts.
    pub(crate) bytes: usize,
    pub(crate) turned: Turned,
}

/// Reads the constraint's parts in front of `key` and puts into `out` what the other index's keys begin
/// with. None: the key is cut short.
pub(crate) fn turn(parts: &[LinkPart], key: &[u8], out: &mut Vec<u8>) -> Option<Front> {
    out.clear();
    let (mut at, mut turned) = (0, Turned::Key);
    for part in parts {
        let flip = flip_of(&part.own);
        if part.own.nullable {
            let marker = key.get(at)? ^ flip;
            at += 1;
            if marker == 0 {
                turned = Turned::Null;
                continue;
            }
        }
        let length = value_length(&part.own, flip, key.get(at..)?)?;
        let value = key.get(at..at + length)?;
        at += length;
        if turned == Turned::Key && !put(part, value, flip, out) {
            turned = Turned::Nowhere;
        }
    }
    Some(Front { bytes: at, turned })
}

/// Where the key goes on behind these parts. None: it is cut short.
pub(crate) fn skip(parts: &[Encoding], key: &[u8]) -> Option<usize> {
    let mut at = 0;
    for part in parts {
        let flip = flip_of(part);
        if part.nullable {
            let marker = key.get(at)? ^ flip;
            at += 1;
            if marker == 0 {
                continue;
            }
        }
        at += value_length(part, flip, key.get(at..)?)?;
    }
    (at <= key.len()).then_some(at)
}

fn flip_of(side: &Encoding) -> u8 {
    match side.descending {
        true => 0xff,
        false => 0,
    }
}

/// Bytes of a value that is not NULL.
fn value_length(side: &Encoding, flip: u8, from: &[u8]) -> Option<usize> {
    match side.kind {
        PartKind::Binary => groups_length(from, GROUP, false, flip),
        PartKind::Text => {
            let mut length = 0;
            for (group, pad) in side.levels.each() {
                length += groups_length(from.get(length..)?, usize::from(*group), *pad, flip)?;
            }
            Some(length)
        }
        _ => Some(side.width as usize),
    }
}

/// Bytes of a run of groups. The last one's marker counts its bytes, or is 2 where spaces fill it.
fn groups_length(from: &[u8], group: usize, pad: bool, flip: u8) -> Option<usize> {
    let mut length = 0;
    loop {
        let marker = from.get(length + group)? ^ flip;
        length += group + 1;
        let last = match pad {
            true => marker == 2,
            false => usize::from(marker) <= group,
        };
        if last {
            return Some(length);
        }
    }
}

/// Appends a value as the other side has it; false: it cannot have it.
fn put(part: &LinkPart, value: &[u8], flip: u8, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    if part.other.nullable {
        out.push(1);
    }
    let plain = value.iter().map(|byte| byte ^ flip);
    let fits = match (part.own.kind, part.other.kind) {
        (PartKind::Bytes, PartKind::Bytes) => {
            out.extend(plain);
            part.own.width == part.other.width
        }
        (PartKind::Bytes, PartKind::Binary) => {
            put_groups(&plain.collect::<Vec<_>>(), out);
            true
        }
        (PartKind::Binary, PartKind::Bytes) => {
            let before = out.len();
            take_groups(&plain.collect::<Vec<_>>(), out);
            out.len() - before == part.other.width as usize
        }
        _ => {
            out.extend(plain);
            true
        }
    };
    let flip_there = flip_of(&part.other);
    out[start..].iter_mut().for_each(|byte| *byte ^= flip_there);
    fits
}

fn put_groups(mut value: &[u8], out: &mut Vec<u8>) {
    while value.len() > GROUP {
        let (group, rest) = value.split_at(GROUP);
        out.extend_from_slice(group);
        out.push(GROUP as u8 + 1);
        value = rest;
    }
    out.extend_from_slice(value);
    out.resize(out.len() + GROUP - value.len(), 0);
    out.push(value.len() as u8);
}

fn take_groups(groups: &[u8], out: &mut Vec<u8>) {
    for group in groups.chunks_exact(GROUP + 1) {
        let used = usize::from(group[GROUP]).min(GROUP);
        out.extend_from_slice(&group[..used]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::links::Levels;

    fn side(kind: PartKind, nullable: bool, descending: bool, width: u32) -> Encoding {
        Encoding {
            kind,
            nullable,
            descending,
            width,
            levels: Levels::default(),
        }
    }

    fn part(own: Encoding, other: Encoding) -> LinkPart {
        LinkPart {
            own_column: 0,
            other_column: 0,
            own,
            other,
        }
    }

    fn turned(parts: &[LinkPart], key: &[u8]) -> (Front, Vec<u8>) {
        let mut out = vec![7];
        let front = turn(parts, key, &mut out).unwrap();
        for cut in 0..front.bytes {
            assert_eq!(turn(parts, &key[..cut], &mut out), None, "{cut}");
        }
        let front_again = turn(parts, key, &mut out).unwrap();
        assert_eq!(front, front_again);
        (front, out)
    }

    fn bytes_of(groups: &[(&[u8; 8], u8)]) -> Vec<u8> {
        let group = |(bytes, marker): &(&[u8; 8], u8)| [&bytes[..], &[*marker]].concat();
        groups.iter().flat_map(group).collect()
    }

    #[test]
    fn markers_and_directions_are_those_of_the_other_side() {
        let number = |nullable, descending| side(PartKind::Signed, nullable, descending, 4);
        let all = [false, true].map(|a| [false, true].map(|b| number(a, b)));
        for own in all.iter().flatten() {
            for other in all.iter().flatten() {
                let put = |side: &Encoding, value: &[u8]| {
                    let mut key = vec![];
                    key.extend(side.nullable.then_some(1));
                    key.extend_from_slice(value);
                    let flip = flip_of(side);
                    key.iter().map(|b| b ^ flip).collect::<Vec<u8>>()
                };
                let value = [0x80, 0, 1, 0xfe];
                let mut key = put(own, &value);
                let length = key.len();
                key.extend_from_slice(b"behind");
                let (front, out) = turned(&[part(*own, *other)], &key);
                assert_eq!((front.bytes, front.turned), (length, Turned::Key));
                assert_eq!(out, put(other, &value));
            }
        }
    }

    #[test]
    fn a_null_refers_to_nothing_and_the_rest_is_passed() {
        let number = side(PartKind::Unsigned, true, true, 2);
        let plain = side(PartKind::Unsigned, false, false, 2);
        let parts = [part(number, plain), part(plain, plain)];
        let (front, _) = turned(&parts, &[0xff, 1, 2, 3]);
        assert_eq!((front.bytes, front.turned), (3, Turned::Null));
        let (front, out) = turned(&parts, &[0xfe, 0xff, 0xfc, 1, 2, 3]);
        assert_eq!((front.bytes, front.turned), (5, Turned::Key));
        assert_eq!(out, [0, 3, 1, 2]);
    }

    #[test]
    fn parts_are_passed_whatever_they_hold() {
        let number = side(PartKind::Unsigned, true, true, 2);
        let groups = side(PartKind::Binary, false, true, 0);
        let nine = bytes_of(&[(b"abcdefgh", 9), (b"i\0\0\0\0\0\0\0", 1)]);
        let down: Vec<u8> = nine.iter().map(|b| !b).collect();
        for (front, bytes) in [(&[0xff][..], 19), (&[0xfe, 1, 2], 21)] {
            let key = [front, &down, b"..."].concat();
            assert_eq!(skip(&[number, groups], &key), Some(bytes));
            for cut in 0..bytes {
                assert_eq!(skip(&[number, groups], &key[..cut]), None, "{cut}");
            }
        }
        assert_eq!(skip(&[], &[]), Some(0));
    }

    #[test]
    fn strings_of_bytes_may_be_of_fixed_width_on_one_side() {
        let fixed = |width| side(PartKind::Bytes, false, false, width);
        let groups = |descending| side(PartKind::Binary, false, descending, 0);
        let nine = bytes_of(&[(b"abcdefgh", 9), (b"i\0\0\0\0\0\0\0", 1)]);
        let (front, out) = turned(&[part(fixed(9), groups(false))], b"abcdefghi...");
        assert_eq!((front.bytes, front.turned), (9, Turned::Key));
        assert_eq!(out, nine);
        let down: Vec<u8> = nine.iter().map(|b| !b).collect();
        let (front, out) = turned(&[part(groups(true), fixed(9))], &down);
        assert_eq!((front.bytes, front.turned), (18, Turned::Key));
        assert_eq!(out, b"abcdefghi");
        let (front, _) = turned(&[part(groups(false), fixed(8))], &nine);
        assert_eq!(front.turned, Turned::Nowhere);
        let (front, _) = turned(&[part(fixed(9), fixed(8))], b"abcdefghi");
        assert_eq!(front.turned, Turned::Nowhere);
        let (front, out) = turned(&[part(groups(false), groups(true))], &nine);
        assert_eq!((front.bytes, out), (18, down));
        let empty = bytes_of(&[(&[0; 8], 0)]);
        let (front, out) = turned(&[part(groups(false), groups(false))], &empty);
        assert_eq!((front.bytes, out), (9, empty));
    }
}
