//! The log record that says how new blobs are: by it recovery knows what a page on disk has
//! without reading it.
//!
//! PAGE_LSNS: version (u8 = 1), count (u32), then count times page id (u32), LSN (u64): that of the
//! blob which the newest MAP_DELTA before names for the page. It follows that record in the log,
//! and no other record about the place of one of its pages comes between. It may be missing: then
//! the page is read.
//!
//! Invariant: decoding checks everything before it hands out anything.

use ferrite_types::{Error, Lsn, PageId, Result};

use crate::store::Store;
use crate::wire::{get_u32, get_u64};

const VERSION: u8 = 1;
const LSNS_HEAD: usize = 5;
const LSNS_ENTRY: usize = 12;

impl Store {
    /// Appends the body of a PAGE_LSNS record to `out`: what was written of the page ends there
    /// in the log.
    pub fn encode_page_lsns(written: &[(PageId, Lsn)], out: &mut Vec<u8>) {
        let end = out.len() + LSNS_HEAD + written.len() * LSNS_ENTRY;
        out.reserve(end - out.len());
        out.push(VERSION);
        out.extend_from_slice(&(written.len() as u32).to_le_bytes());
        for (page, lsn) in written {
            // What decoding refuses is not written.
            assert!(page.0 != 0 && lsn.0 != 0, "{page} has changes up to {lsn}");
            out.extend_from_slice(&page.0.to_le_bytes());
            out.extend_from_slice(&lsn.0.to_le_bytes());
        }
        assert!(
            out.len() == end,
            "{} entries end at {}",
            written.len(),
            out.len()
        );
    }

    /// Calls `each` for every entry of a PAGE_LSNS body, in order.
    ///
    /// # Errors
    /// `Corrupt` when the body is not one; `each` was not called then.
    pub fn decode_page_lsns(body: &[u8], each: &mut dyn FnMut(PageId, Lsn)) -> Result<()> {
        let bad = |what: &str| Error::Corrupt(format!("log: page LSN record: {what}"));
        if body.first() != Some(&VERSION) {
            return Err(bad("unknown version"));
        }
        let count = get_u32(body, 1).ok_or_else(|| bad("too short"))? as usize;
        if (body.len() - LSNS_HEAD) as u64 != count as u64 * LSNS_ENTRY as u64 {
            return Err(bad("length and count differ"));
        }
        let entries = || body[LSNS_HEAD..].chunks_exact(LSNS_ENTRY).map(entry);
        if entries().any(|e| e.is_none()) {
            return Err(bad("not a page id and an LSN"));
        }
        entries().flatten().for_each(|(page, lsn)| each(page, lsn));
        Ok(())
    }
}

fn entry(bytes: &[u8]) -> Option<(PageId, Lsn)> {
    let page = get_u32(bytes, 0).filter(|&p| p != 0)?;
    let lsn = get_u64(bytes, 4).filter(|&l| l != 0)?;
    Some((PageId(page), Lsn(lsn)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_every_cut_is_noticed() {
        let written = [(PageId(7), Lsn(80)), (PageId(9), Lsn(1 << 50))];
        let mut body = Vec::new();
        Store::encode_page_lsns(&written, &mut body);
        let mut read = Vec::new();
        Store::decode_page_lsns(&body, &mut |page, lsn| read.push((page, lsn))).unwrap();
        assert_eq!(read, written);
        for cut in 0..body.len() {
            assert!(Store::decode_page_lsns(&body[..cut], &mut |_, _| panic!()).is_err());
        }
        for at in [0, 5, 9] {
            let mut bad = body.clone();
            bad[at..at + if at == 9 { 8 } else { 1 }].fill(0);
            assert!(Store::decode_page_lsns(&bad, &mut |_, _| panic!()).is_err());
        }
    }
}
