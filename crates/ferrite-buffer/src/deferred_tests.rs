//! Pages whose redo was put off: those that get their whole content from it, and what may follow it.

use super::*;
use crate::frame::Kind;
use crate::read_ahead::tests::{new_leaf_of, put_away};
use crate::write_tests::{build, new_inner, pool_on, INDEX};
use crate::RedoStep;
use ferrite_io::sim::SimStorage;
use ferrite_redo::Appended;
use ferrite_types::format::record_kind;

/// One record, whose operation makes the page one with that text.
struct One(Lsn, [u8; 1]);

impl CollectedRedo for One {
    fn record(&self, nth: usize) -> (Lsn, &[u8]) {
        assert_eq!(nth, 0, "there is one record");
        (self.0, &self.1)
    }

    fn memory_bytes(&self) -> usize {
        1
    }
}

fn redo_of(at: &Appended, text: u8, creates: bool) -> RedoOf {
    RedoOf {
        all: Arc::new(One(at.end, [text])),
        nths: 0..1,
        span: (at.start, at.end),
        creates,
    }
}

/// A pool, and a record of a page.
fn pool_in_recovery() -> (Arc<Pool>, Appended) {
    let pool = pool_on(&SimStorage::new(3));
    pool.set_apply_redo(Box::new(|page, ops| {
        build(page, ops[0]);
        Ok(())
    }));
    let at = pool.log().append(record_kind::MINI_TXN, &[b"whole"]);
    (pool, at)
}

/// A page that is on disk, and not in memory.
fn page_on_disk(pool: &Pool) -> PageId {
    let page = new_inner(pool);
    pool.flush_all_below(Lsn::MAX).unwrap();
    let f = pool.store().directory().get(page).as_frame().unwrap();
    pool.evict_clean(f, Kind::Inner);
    assert!(pool.is_away(page), "{page} stays in memory");
    page
}

fn text_of(pool: &Pool, page: PageId) -> u8 {
    pool.read_in(page).unwrap();
    let f = pool.store().directory().get(page).as_frame().unwrap();
    assert!(pool.frame(f).is_dirty(), "{page} is not to be written");
    // SAFETY: nobody else uses the pool.
    unsafe { pool.arena().page(f)[40] }
}

/// All pages are written, and each place is free or in use, once.
fn ends_well(pool: &Pool) {
    assert_eq!(pool.change_buffer().pages(), 0);
    pool.flush_all_below(Lsn::MAX).unwrap();
    assert_eq!(pool.check_space(), Ok(()));
}

/// Its blob is not read, and its place is free once.
#[test]
fn a_page_on_disk_is_made_of_the_log() {
    let (pool, _) = pool_in_recovery();
    let page = page_on_disk(&pool);
    let at = pool.log().append(record_kind::MINI_TXN, &[b"whole"]);
    let old = BlobState::Old;
    assert!(pool.put_off_redo((page, INDEX), old, redo_of(&at, 9, true), Shares::All));
    let reads = pool.stats.reads.get();
    assert_eq!(text_of(&pool, page), 9);
    assert_eq!(pool.stats.reads.get(), reads);
    ends_well(&pool);
}

/// It exists, and is nowhere: for its index's end, too.
#[test]
fn a_page_that_is_nowhere_is_made_of_the_log_or_dropped() {
    let (pool, at) = pool_in_recovery();
    let [made, dropped] = [INDEX, IndexId(8)].map(|index| {
        let page = pool.alloc_page(index);
        let redo = redo_of(&at, 5, true);
        assert!(pool.put_off_redo((page, index), BlobState::Old, redo, Shares::All));
        page
    });
    assert_eq!(pool.change_buffer().pages_to_redo(), 2);
    assert_eq!(pool.drop_index(IndexId(8)), 1);
    assert!(pool.store().directory().get(dropped).is_free());
    assert_eq!(text_of(&pool, made), 5);
    assert_eq!(pool.change_buffer().pages_to_redo(), 0);
    ends_well(&pool);
}

/// A batch before could not read it; one that follows makes it, so that what is kept would be kept for ever.
#[test]
fn what_could_not_be_read_goes_with_the_page_that_is_made() {
    let (pool, first) = pool_in_recovery();
    let page = page_on_disk(&pool);
    let at = pool.log().append(record_kind::MINI_TXN, &[b"whole"]);
    let kept = redo_of(&first, 2, false);
    assert!(pool.put_off_redo((page, INDEX), BlobState::Old, kept, Shares::Nothing));
    assert_eq!(pool.change_buffer().pages(), 1);
    pool.redo_from(at.start);
    let step = RedoStep {
        start: at.start,
        end: at.end,
        creates: true,
    };
    let make = &mut |_, bytes: &mut [u8]| {
        build(bytes, 7);
        Ok(())
    };
    assert_eq!(pool.redo(page, BlobState::Old, &[step], make), Ok(1));
    assert_eq!(pool.change_buffer().pages(), 0);
    assert_eq!(text_of(&pool, page), 7);
    ends_well(&pool);
}

/// A batch redid the leaf, which left memory; its redo of the last one is put off. What a client changes now may not
/// follow that: the room is another, and redo makes no versions.
#[test]
fn nothing_is_kept_behind_redo_of_a_leaf_that_was_in_memory() {
    let pool = pool_on(&SimStorage::new(3));
    pool.set_apply_redo(Box::new(|page, ops| {
        page[40] = ops[0];
        Ok(())
    }));
    pool.set_apply_kept(Box::new(|_, _, _| Ok(())));
    pool.set_change_buffer(25);
    for shares in [Shares::All, Shares::Nothing] {
        let page = new_leaf_of(&pool, INDEX, 1);
        put_away(&pool, page);
        assert!(pool.away_page(page, INDEX, 20).is_some());
        let at = pool.log().append(record_kind::MINI_TXN, &[b"later"]);
        let redo = redo_of(&at, 9, false);
        assert!(pool.put_off_redo((page, INDEX), BlobState::Old, redo, shares));
        assert!(pool.away_page(page, INDEX, 20).is_none());
        assert_eq!(pool.change_buffer().rooms.get(page), 0);
        let taken_back = pool.kept_page(page, INDEX).expect("redo is kept");
        assert!(taken_back.lacks_redo());
        drop(taken_back);
        assert_eq!(text_of(&pool, page), 9);
        put_away(&pool, page);
        assert!(pool.away_page(page, INDEX, 20).is_some());
    }
    ends_well(&pool);
}

/// Records of so many bytes.
struct Many(Lsn, Vec<u8>);

impl CollectedRedo for Many {
    fn record(&self, nth: usize) -> (Lsn, &[u8]) {
        // A record each.
        (Lsn(self.0 .0 + nth as u64), &self.1)
    }

    fn memory_bytes(&self) -> usize {
        self.1.len()
    }
}

/// Whoever puts off what there are no frames for counts what its copies take.
#[test]
fn copies_take_as_much_as_is_said() {
    let (pool, at) = pool_in_recovery();
    let pages: Vec<PageId> = (0..3).map(|_| page_on_disk(&pool)).collect();
    let mut expected = 0;
    for (page, (records, bytes)) in pages.into_iter().zip([(1, 1), (3, 20), (100, 30)]) {
        let redo = RedoOf {
            all: Arc::new(Many(at.end, vec![7; bytes])),
            nths: 0..records,
            span: (at.start, Lsn(at.end.0 + records as u64 - 1)),
            creates: false,
        };
        assert!(pool.put_off_redo((page, INDEX), BlobState::Old, redo, Shares::Nothing));
        expected += crate::bytes_of_copies(records, records * bytes);
        assert_eq!(pool.change_buffer().bytes(), expected);
    }
}
