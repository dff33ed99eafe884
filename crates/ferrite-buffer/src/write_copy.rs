//! What of a dirty page goes into a batch: a copy of it, or of its changes since it was written last.
//!
//! Locking: the frame's shared latch while bytes are copied, which nobody waits for here; packing
//! comes after it is free.

use crate::frame::Kind;
use crate::pool::Pool;
use crate::write::{Copied, WriteBatch};
use ferrite_store::{PageImage, Staged, StoredBlob};
use ferrite_sync::atomic::Ordering;
use ferrite_types::{IndexId, Lsn, PAGE_BYTES};

/// What of a page goes into a batch.
enum Part {
    Whole(Staged),
    /// The changes since that blob.
    Delta(StoredBlob),
}

impl Pool {
    /// What is written of a page.
    fn image<'a>(&self, bytes: &'a [u8], tidied: &'a mut [u8]) -> PageImage<'a> {
        let smaller = self
            .write_filter
            .get()
            .is_some_and(|write_filter| write_filter(bytes, tidied));
        let page = if smaller { tidied } else { bytes };
        debug_assert_eq!(page[..6], bytes[..6], "the filter made another page of it");
        let (head, tail) = crate::page_prefix::used(page);
        assert!(head <= tail && tail <= PAGE_BYTES, "gap {head}..{tail}");
        PageImage {
            head: &page[..head],
            tail: &page[tail..],
        }
    }

    /// Copies the dirty page of frame `f` into the batch. False: batch full. It is packed when its
    /// latch is free again.
    pub(crate) fn copy_into(&self, f: u32, batch: &mut WriteBatch) -> bool {
        if batch.blobs.is_full() {
            return false;
        }
        let frame = self.frame(f);
        if !frame.latch.try_shared() {
            self.dirty_queue.push(&self.frames, f);
            return true;
        }
        let page = frame.page();
        let ticket = self.writer.next_ticket.fetch_add(1, Ordering::Relaxed);
        // A new page, or an image, shows in its frame before the directory names that: it comes into the queue again.
        let is_named = || self.store.directory().get(page).as_frame() == Some(f);
        let writable = page.0 != 0
            && matches!(frame.kind(), Kind::Leaf | Kind::Inner)
            && is_named()
            && frame.take_ticket(ticket);
        let copied = writable.then(|| self.copy_latched(f, ticket, batch));
        frame.latch.unlock_shared();
        match copied {
            Some((Part::Whole(staged), index, copied)) => {
                self.pack_into(staged, index, copied, batch);
            }
            Some((Part::Delta(base), index, copied)) => {
                self.delta_into(base, index, copied, batch);
            }
            None => {}
        }
        true
    }

    /// Copies what is to be written of the dirty page of frame `f`, whose shared latch and ticket the
    /// caller has.
    fn copy_latched(&self, f: u32, ticket: u64, batch: &mut WriteBatch) -> (Part, IndexId, Copied) {
        let frame = self.frame(f);
        let (page, lsn) = (frame.page(), frame.lsn());
        // A leaf is changed under its exclusive latch, record and bytes together. The
        // next image of an inner node is logged before it takes this one's place: its
        // record may be in the log already, but not before this image's last one ends.
        // During redo the changes to come are old ones: none is before redo's place.
        let redo_at = match ferrite_sync::mutant!("buffer.redone_page_dirty_too_late") {
            true => Lsn::MAX,
            false => Lsn(self.writer.redo_at.load(Ordering::SeqCst)),
        };
        let next_rec = match frame.kind() {
            Kind::Inner => lsn,
            _ => self.log.current_lsn().min(redo_at),
        };
        // SAFETY: the shared latch is held; a published inner node is immutable anyway.
        let bytes = unsafe { self.arena().page(f) };
        // Reading would refuse it.
        let (index, own) = (frame.index(), crate::page_prefix::index(bytes));
        assert!(index == own, "{page} of index {index} names index {own}");
        let rec = frame.rec_lsn();
        assert!(rec.is_some_and(|rec| rec < lsn), "{page}: {rec:?}, {lsn:?}");
        let mut copied = Copied {
            page,
            ticket,
            lsn,
            next_rec,
            is_delta: false,
            whole_bytes: 0,
            whole: None,
        };
        debug_assert!(
            frame.kind() == Kind::Leaf || !frame.knows_changes(),
            "{page}: changes of an inner node"
        );
        // With hardly any room left a delta would keep its base beside it.
        let wanted = frame.knows_changes() && !self.is_tight() && !self.store.is_disk_full();
        let known = wanted.then(|| {
            let live_bytes = crate::page_prefix::live_bytes(bytes);
            self.copy_changes(f, live_bytes, &mut batch.changes)
        });
        let part = match known.flatten() {
            Some(base) => Part::Delta(base),
            None => {
                let image = self.image(bytes, &mut batch.tidied);
                copied.whole_bytes = image.head.len() + image.tail.len();
                Part::Whole(batch.blobs.stage(image))
            }
        };
        (part, IndexId(index), copied)
    }

    /// The changes that were copied become a delta of the batch, which has room for it.
    fn delta_into(&self, base: StoredBlob, index: IndexId, copied: Copied, batch: &mut WriteBatch) {
        let (page, lsn) = (copied.page, copied.lsn);
        let changes = &batch.changes;
        debug_assert!(!changes.is_empty() && base.lsn < lsn, "{page}: {base:?}");
        let fits = (batch.blobs).push_delta((page, index), lsn, base, changes);
        assert!(fits, "{page} does not fit a batch that is not full");
        batch.copied.push(Copied {
            is_delta: true,
            ..copied
        });
    }

    /// The page that was staged becomes a blob of the batch, which has room for it.
    fn pack_into(&self, staged: Staged, index: IndexId, copied: Copied, batch: &mut WriteBatch) {
        let of = self.packings.of(index);
        let packing = self.packing_with(of.next());
        let (page, lsn) = (copied.page, copied.lsn);
        let pushed = batch.blobs.push_staged(page, index, lsn, staged, packing);
        let Some(pushed) = pushed else {
            panic!("{page} does not fit a batch that is not full");
        };
        self.stats.pages_packed.add(u64::from(pushed.packed));
        let vain = of.note(packing, pushed.packed);
        self.stats.packed_in_vain.add(u64::from(vain));
        batch.copied.push(copied);
    }
}
