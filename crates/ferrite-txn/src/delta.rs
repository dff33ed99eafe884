//! Older payloads as differences to newer ones.
//!
//! The usual form: the older payload equals the newer one but for one hole (`keep_head`,
//! body, `keep_tail`). When a version between two others is dropped, the older one must be
//! told as a difference to the newer one: their differences are composed, which needs no
//! payload ("the older value wins"). The result may have several holes: a list of pieces.
//!
//! Pieces in a body: a u16 whose two top bits say what follows and whose low 14 bits say how
//! many bytes: 0 literal (the bytes follow), 1 copy from the newer payload (u16: distance
//! from its start), 2 copy from the newer payload (u16: distance of the first byte from its
//! end).
//!
//! Invariant: `compose(a, b)` applied to N equals `b` applied to (`a` applied to N).

use crate::version::{VersionHead, VERSION_FULL, VERSION_PATCH};

const LEN_BITS: u32 = 14;
const LEN_MAX: usize = (1 << LEN_BITS) - 1;

/// How much of `new`'s start and end equals `old`'s: the older payload is then
/// `new[..head] + old[head..old.len() - tail] + new[new.len() - tail..]`.
pub fn diff(old: &[u8], new: &[u8]) -> (u16, u16) {
    let most = old.len().min(new.len()).min(usize::from(u16::MAX));
    let head = common_head(&old[..most], &new[..most]);
    let rest = most - head;
    let tail = common_tail(&old[old.len() - rest..], &new[new.len() - rest..]);
    debug_assert!(head + tail <= most, "{head} and {tail} of {most} overlap");
    (head as u16, tail as u16)
}

fn common_head(a: &[u8], b: &[u8]) -> usize {
    debug_assert_eq!(a.len(), b.len());
    let mut n = 0;
    for (x, y) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        if x != y {
            break;
        }
        n += 16;
    }
    n + a[n..]
        .iter()
        .zip(&b[n..])
        .take_while(|(x, y)| x == y)
        .count()
}

fn common_tail(a: &[u8], b: &[u8]) -> usize {
    // Chunks are cut from the end: with unequal lengths the rests would not face each other.
    debug_assert_eq!(a.len(), b.len());
    let mut n = 0;
    for (x, y) in a.rchunks_exact(16).zip(b.rchunks_exact(16)) {
        if x != y {
            break;
        }
        n += 16;
    }
    let (a, b) = (&a[..a.len() - n], &b[..b.len() - n]);
    n + a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(x, y)| x == y)
        .count()
}

/// Puts the older payload into `out` (cleared first), given the next newer one.
pub fn apply(newer: &[u8], head: &VersionHead, body: &[u8], out: &mut Vec<u8>) {
    out.clear();
    if head.flags & VERSION_PATCH == 0 {
        let (h, t) = (usize::from(head.keep_head), usize::from(head.keep_tail));
        out.extend_from_slice(&newer[..h]);
        debug_assert!(
            h + t <= newer.len(),
            "{:?} keeps {h} + {t} bytes of {}",
            head.addr,
            newer.len()
        );
        out.extend_from_slice(body);
        out.extend_from_slice(&newer[newer.len() - t..]);
        return;
    }
    for piece in pieces(head, body) {
        piece.put(newer, out);
    }
}

/// A part of an older payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Bytes(&'a [u8]),
    /// `newer[at..at + len]`
    Head {
        at: usize,
        len: usize,
    },
    /// `newer[newer.len() - back..][..len]`
    Tail {
        back: usize,
        len: usize,
    },
}

impl<'a> Piece<'a> {
    fn len(&self) -> usize {
        match *self {
            Piece::Bytes(b) => b.len(),
            Piece::Head { len, .. } | Piece::Tail { len, .. } => len,
        }
    }

    fn put(&self, newer: &[u8], out: &mut Vec<u8>) {
        match *self {
            Piece::Bytes(b) => out.extend_from_slice(b),
            Piece::Head { at, len } => out.extend_from_slice(&newer[at..at + len]),
            Piece::Tail { back, len } => {
                let at = newer.len() - back;
                out.extend_from_slice(&newer[at..at + len]);
            }
        }
    }

    /// Bytes `from..to` of this piece.
    fn part(&self, from: usize, to: usize) -> Piece<'a> {
        debug_assert!(from < to && to <= self.len(), "{from}..{to} of {self:?}");
        match *self {
            Piece::Bytes(b) => Piece::Bytes(&b[from..to]),
            Piece::Head { at, .. } => Piece::Head {
                at: at + from,
                len: to - from,
            },
            Piece::Tail { back, .. } => Piece::Tail {
                back: back - from,
                len: to - from,
            },
        }
    }
}

/// A version's payload in terms of the next newer one.
pub(crate) fn pieces<'a>(head: &VersionHead, body: &'a [u8]) -> Vec<Piece<'a>> {
    let mut all = Vec::with_capacity(3);
    if head.flags & VERSION_PATCH == 0 {
        let (h, t) = (usize::from(head.keep_head), usize::from(head.keep_tail));
        push(&mut all, Piece::Head { at: 0, len: h });
        push(&mut all, Piece::Bytes(body));
        push(&mut all, Piece::Tail { back: t, len: t });
        return all;
    }
    let mut b = body;
    let take2 = |b: &mut &'a [u8]| {
        let v = u16::from_le_bytes([b[0], b[1]]);
        *b = &b[2..];
        usize::from(v)
    };
    while !b.is_empty() {
        let op = take2(&mut b);
        let len = op & LEN_MAX;
        match op >> LEN_BITS {
            0 => {
                push(&mut all, Piece::Bytes(&b[..len]));
                b = &b[len..];
            }
            1 => {
                let at = take2(&mut b);
                push(&mut all, Piece::Head { at, len });
            }
            _ => {
                let back = take2(&mut b);
                push(&mut all, Piece::Tail { back, len });
            }
        }
    }
    all
}

/// Adds a piece; one that continues the last copy makes it longer.
fn push<'a>(all: &mut Vec<Piece<'a>>, p: Piece<'a>) {
    if p.len() == 0 {
        return;
    }
    debug_assert!(
        !matches!(p, Piece::Tail { back, len } if back < len),
        "{p:?} reaches past the end"
    );
    match (all.last_mut(), p) {
        (Some(Piece::Head { at, len }), Piece::Head { at: a, len: l }) if *at + *len == a => {
            *len += l;
        }
        (Some(Piece::Tail { back, len }), Piece::Tail { back: b, len: l }) if *back - *len == b => {
            *len += l;
        }
        _ => all.push(p),
    }
}

/// `middle` in terms of N and `older` in terms of the middle state: `older` in terms of N.
pub(crate) fn compose<'a>(middle: &[Piece<'a>], older: &[Piece<'a>]) -> Vec<Piece<'a>> {
    let middle_len: usize = middle.iter().map(Piece::len).sum();
    let mut all = Vec::with_capacity(older.len() + middle.len());
    for p in older {
        match *p {
            Piece::Bytes(_) => push(&mut all, *p),
            Piece::Head { at, len } => slice(middle, at, at + len, &mut all),
            Piece::Tail { back, len } => {
                let at = middle_len - back;
                slice(middle, at, at + len, &mut all);
            }
        }
    }
    debug_assert_eq!(payload_len(&all), payload_len(older), "a payload of pieces");
    all
}

/// Bytes `from..to` of a payload told in pieces.
fn slice<'a>(of: &[Piece<'a>], from: usize, to: usize, all: &mut Vec<Piece<'a>>) {
    debug_assert!(from <= to, "{from}..{to}");
    let mut at = 0;
    for p in of {
        let end = at + p.len();
        let (a, b) = (from.max(at), to.min(end));
        if a < b {
            push(all, p.part(a - at, b - at));
        }
        at = end;
    }
    debug_assert!(to <= at, "a copy reaches past the middle payload");
}

/// Pieces in the form they are stored.
#[derive(Debug)]
pub(crate) struct Packed {
    /// `VERSION_FULL` and `VERSION_PATCH` as they apply.
    pub flags: u8,
    pub keep_head: u16,
    pub keep_tail: u16,
    pub body: Vec<u8>,
}

/// The most compact form of a list of pieces.
pub(crate) fn pack(all: &[Piece<'_>]) -> Packed {
    let mut rest = all;
    let (mut keep_head, mut keep_tail) = (0, 0);
    if let Some((Piece::Head { at: 0, len }, more)) = rest.split_first() {
        if let Ok(len) = u16::try_from(*len) {
            keep_head = len;
            rest = more;
        }
    }
    if let Some((Piece::Tail { back, len }, more)) = rest.split_last() {
        if back == len {
            if let Ok(len) = u16::try_from(*len) {
                keep_tail = len;
                rest = more;
            }
        }
    }
    if rest.iter().all(|p| matches!(p, Piece::Bytes(_))) {
        let mut body = Vec::new();
        rest.iter().for_each(|p| p.put(&[], &mut body));
        debug_assert_eq!(
            usize::from(keep_head) + body.len() + usize::from(keep_tail),
            payload_len(all),
            "a payload packed"
        );
        let full = keep_head == 0 && keep_tail == 0;
        return Packed {
            flags: if full { VERSION_FULL } else { 0 },
            keep_head,
            keep_tail,
            body,
        };
    }
    let mut body = Vec::new();
    all.iter().for_each(|p| pack_piece(*p, &mut body));
    debug_assert!(body.len() <= usize::from(u16::MAX), "{} bytes", body.len());
    Packed {
        flags: VERSION_PATCH,
        keep_head: 0,
        keep_tail: 0,
        body,
    }
}

fn pack_piece(p: Piece<'_>, out: &mut Vec<u8>) {
    let mut from = 0;
    while from < p.len() {
        let to = p.len().min(from + LEN_MAX);
        let len = (to - from) as u16;
        let put2 = |out: &mut Vec<u8>, v: u16| out.extend_from_slice(&v.to_le_bytes());
        let distance = |n: usize| u16::try_from(n).expect("payloads are shorter than 64 KiB");
        match p.part(from, to) {
            Piece::Bytes(b) => {
                put2(out, len);
                out.extend_from_slice(b);
            }
            Piece::Head { at, .. } => {
                put2(out, 1 << LEN_BITS | len);
                put2(out, distance(at));
            }
            Piece::Tail { back, .. } => {
                put2(out, 2 << LEN_BITS | len);
                put2(out, distance(back));
            }
        }
        from = to;
    }
}

/// Length of the payload told in pieces.
pub(crate) fn payload_len(all: &[Piece<'_>]) -> usize {
    all.iter().map(Piece::len).sum()
}

/// The payload told in pieces, given the newer one.
pub(crate) fn payload(all: &[Piece<'_>], newer: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload_len(all));
    all.iter().for_each(|p| p.put(newer, &mut out));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::VERSION_DELETED;
    use ferrite_sync::random::Rng;
    use ferrite_types::VersionAddr;
    use ferrite_types::{IndexId, TxnId};

    fn head(p: &Packed) -> VersionHead {
        VersionHead {
            addr: VersionAddr::NONE,
            begin: TxnId(1),
            end: TxnId(2),
            next: VersionAddr::NONE,
            flags: p.flags | VERSION_DELETED,
            keep_head: p.keep_head,
            keep_tail: p.keep_tail,
            body_len: p.body.len(),
            index: IndexId(1),
        }
    }

    fn difference(old: &[u8], new: &[u8]) -> Packed {
        let (h, t) = diff(old, new);
        Packed {
            flags: 0,
            keep_head: h,
            keep_tail: t,
            body: old[usize::from(h)..old.len() - usize::from(t)].to_vec(),
        }
    }

    fn mutate(rng: &mut Rng, from: &[u8]) -> Vec<u8> {
        let mut to = from.to_vec();
        for _ in 0..rng.between(0, 3) {
            let at = rng.below(to.len() as u64 + 1) as usize;
            let cut = rng.below(6).min((to.len() - at) as u64) as usize;
            let new: Vec<u8> = (0..rng.below(8)).map(|_| rng.below(4) as u8).collect();
            to.splice(at..at + cut, new);
        }
        to
    }

    #[test]
    fn diff_is_exact() {
        for (old, new) in [
            (&b"abcdef"[..], &b"abXdef"[..]),
            (b"", b"abc"),
            (b"aaa", b"aaaaa"),
            (b"same", b"same"),
            (b"abc", b""),
        ] {
            let p = difference(old, new);
            let mut out = Vec::new();
            apply(new, &head(&p), &p.body, &mut out);
            assert_eq!(out, old);
        }
        assert_eq!(
            diff(b"0123456789abcdefXYZ", b"0123456789abcdefxYZ"),
            (16, 2)
        );
    }

    #[test]
    fn composed_differences_equal_two_steps() {
        let mut rng = Rng::new(7);
        for _ in 0..4000 {
            let mut states = vec![(0..rng.below(60)).map(|i| i as u8).collect::<Vec<u8>>()];
            for _ in 0..4 {
                let next = mutate(&mut rng, states.last().unwrap());
                states.push(next);
            }
            // states[0] is the newest; fold all steps into one.
            let mut all = difference(&states[1], &states[0]);
            for i in 2..states.len() {
                let step = difference(&states[i], &states[i - 1]);
                let (a, b) = (head(&all), head(&step));
                let one = compose(&pieces(&a, &all.body), &pieces(&b, &step.body));
                assert_eq!(payload_len(&one), states[i].len());
                assert_eq!(payload(&one, &states[0]), states[i]);
                all = pack(&one);
                let mut out = Vec::new();
                apply(&states[0], &head(&all), &all.body, &mut out);
                assert_eq!(out, states[i]);
            }
        }
    }

    #[test]
    fn long_pieces_are_split() {
        let newer: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
        let all = [
            Piece::Head { at: 5, len: 20_000 },
            Piece::Bytes(&newer[..17_000]),
            Piece::Tail {
                back: 19_000,
                len: 18_000,
            },
        ];
        let p = pack(&all);
        assert_eq!(p.flags, VERSION_PATCH);
        let mut out = Vec::new();
        apply(&newer, &head(&p), &p.body, &mut out);
        assert_eq!(out, payload(&all, &newer));
    }
}
