//! A leaf as it is written: without what says nothing any more.
//!
//! Locking: none; the caller has the page latched, or a copy.

use super::{count, get16, is_sound, level, put16, raw, record, slot_at, unused_bytes, KIND_NODE};
use crate::record as encoded;
use ferrite_types::{TxnId, PAGE_BYTES};

/// A page that would be smaller by less than this is written as it is, in bytes.
const REST_GAIN_BYTES: usize = 64;

/// The leaf as it is at rest, in `out`: without garbage, and without the stamps of transactions
/// below `settled`, which everybody sees. False: it is hardly smaller, or no leaf; `out` means
/// nothing then.
///
/// This is what a page is written as. Pages are not overwritten, so it costs no further write
/// and no log: what redo finds differs from the page in memory by stamps that say nothing. A
/// delete-marked record keeps its stamp, which tells whether it may go.
pub fn strip_for_write(page: &[u8], settled: TxnId, out: &mut [u8]) -> bool {
    strip_gaining(page, settled, REST_GAIN_BYTES, out)
}

/// The same whatever the gain, so that nothing of a removed record is written.
pub fn strip_and_scrub_for_write(page: &[u8], settled: TxnId, out: &mut [u8]) -> bool {
    strip_gaining(page, settled, 1, out)
}

fn strip_gaining(page: &[u8], settled: TxnId, least: usize, out: &mut [u8]) -> bool {
    if page[5] != KIND_NODE || level(page) != 0 {
        return false;
    }
    let stamp_bytes = |slot| {
        let header = record(page, slot).header;
        let rests = !header.deleted && header.txn < settled;
        if rests {
            header.len() - encoded::FIXED_BYTES
        } else {
            0
        }
    };
    let stamps: usize = (0..count(page)).map(stamp_bytes).sum();
    if stamps + get16(page, 12) < least {
        return false;
    }
    let head = get16(page, 6);
    out[..head].copy_from_slice(&page[..head]);
    let mut tail = PAGE_BYTES;
    for slot in 0..count(page) {
        let bytes = raw(page, slot);
        let end = tail;
        if stamp_bytes(slot) > 0 {
            tail -= encoded::freeze_into(bytes, &mut out[..end]);
        } else {
            tail -= bytes.len();
            out[tail..end].copy_from_slice(bytes);
        }
        let at = slot_at(page, slot);
        put16(out, at, tail);
    }
    assert!(tail >= head, "records reach into the slots");
    put16(out, 8, tail);
    put16(out, 12, 0);
    debug_assert!(unused_bytes(out) >= unused_bytes(page), "it takes more");
    debug_assert!(is_sound(out) || !is_sound(page), "a page is spoilt");
    true
}
