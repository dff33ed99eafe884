//! A full disk beside pages that lack changes: deletions are let in, and the pages get their changes.

use super::*;
use crate::collected::{CollectedRedo, RedoOf};
use crate::frame::Kind;
use crate::read_ahead::tests::new_leaf_of;
use crate::recover::BlobState;
use crate::write_tests::{build, fill_up, new_inner, pool_on, INDEX};
use crate::Shares;
use ferrite_io::sim::{Fault, IoOp, SimStorage};
use ferrite_redo::Appended;
use ferrite_store::{Location, PinOwner};
use ferrite_sync::random::Rng;
use ferrite_sync::thread::{self, JoinHandle};
use ferrite_sync::Arc;
use ferrite_types::format::record_kind;
use ferrite_types::{Lsn, PageId, PAGE_BYTES};
use std::cell::Cell;

/// Pages that lack something. The pool has 256 frames.
const PAGES: usize = 300;

/// A record whose operation is that text.
struct One(Lsn, [u8; 1]);

impl CollectedRedo for One {
    fn record(&self, _: usize) -> (Lsn, &[u8]) {
        (self.0, &self.1)
    }

    fn memory_bytes(&self) -> usize {
        1
    }
}

fn start_writer(pool: &Arc<Pool>) -> JoinHandle<()> {
    let pool = pool.clone();
    thread::spawn("writer", move || pool.run_writer())
}

fn wait_until(pool: &Pool, what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        pool.wake_writer();
        if done() {
            return;
        }
        thread::sleep_ms(5);
    }
    panic!("{what} does not come");
}

/// Merges until nothing is left. The log has no threads of its own here.
fn merge_all(pool: &Pool) {
    let mut merging = pool.merging();
    wait_until(pool, "the end of merging", || {
        let (_, failed) = pool.merge_round(&mut merging);
        assert_eq!(failed, None);
        pool.log().flush_to(pool.log().current_lsn());
        pool.change_buffer().pages() == 0
    });
}

/// A pool, and pages of it that are on disk and not in memory.
fn pool_of_pages(disk: &SimStorage, new: impl Fn(&Pool) -> PageId) -> (Arc<Pool>, Vec<PageId>) {
    let pool = pool_on(disk);
    pool.set_apply_kept(Box::new(|page, op, came_to| {
        page[40] = op[0];
        // More than a delta has: the page is written as a whole.
        came_to.resize(PAGE_BYTES, op[0]);
        Ok(())
    }));
    pool.set_apply_redo(Box::new(|page, ops| {
        build(page, ops[0]);
        Ok(())
    }));
    pool.set_change_buffer(25);
    let mut pages = Vec::new();
    while pages.len() < PAGES {
        pages.extend((0..PAGES / 4).map(|_| new(&pool)));
        pool.make_cold().unwrap();
        for f in 0..pool.frame_count() as u32 {
            if pool.frame(f).kind() == Kind::Inner {
                pool.evict_clean(f, Kind::Inner);
            }
        }
        pool.reclaim_retired();
    }
    assert!(pages.iter().all(|page| pool.is_away(*page)));
    disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
    (pool, pages)
}

/// The files are full, but for places for about so many long pages, and get no longer: by what they are filled with.
fn leave_free(pool: &Pool, disk: &SimStorage, places: usize) -> Vec<Location> {
    let mut full = fill_up(pool, disk, 16_300);
    full.drain(..places)
        .for_each(|at| pool.store().free_now(at));
    let grown = pool.store().grow_ahead();
    assert!(matches!(grown, Err(Error::DiskFull(_))), "{grown:?}");
    full
}

/// No place is lost, or anybody's twice.
fn check_space(pool: &Pool, filled_with: &[Location]) {
    filled_with.iter().for_each(|at| pool.store().free_now(*at));
    assert_eq!(pool.check_space(), Ok(()));
}

fn text_of(pool: &Pool, page: PageId) -> u8 {
    pool.read_in(page).unwrap();
    let f = pool.store().directory().get(page).as_frame().unwrap();
    // SAFETY: nobody changes the page; the writer may read it.
    unsafe { pool.arena().page(f)[40] }
}

/// Each of them leaves its place to the next one: that there is none for all of them at a time is no reason to refuse
/// deletions, or to leave the pages as they are.
#[test]
fn pages_with_changes_that_are_kept_do_not_keep_deletions_out() {
    let disk = SimStorage::new(31);
    let (pool, pages) = pool_of_pages(&disk, |pool| new_leaf_of(pool, INDEX, 1));
    for page in &pages {
        let away = pool.away_page(*page, INDEX, 20).expect("it is in memory");
        away.append(record_kind::MINI_TXN, b"", &[7]);
    }
    assert_eq!(pool.change_buffer().pages(), PAGES);
    let filled_with = leave_free(&pool, &disk, 200);
    let writer = start_writer(&pool);
    wait_until(&pool, "a refusal", || pool.refusal(false).is_some());
    assert_eq!(pool.refusal(true), None, "deletions are refused");
    merge_all(&pool);
    assert_eq!(pool.dirty_pages(), 0, "they are left to the writers");
    assert_eq!(pool.refusal(true), None, "room is lost");
    assert!(pages.iter().all(|page| text_of(&pool, *page) == 7));
    pool.stop_writer();
    writer.join().unwrap();
    check_space(&pool, &filled_with);
}

fn redo_of(at: &Appended, text: u8, creates: bool) -> RedoOf {
    RedoOf {
        all: Arc::new(One(at.end, [text])),
        nths: 0..1,
        span: (at.start, at.end),
        creates,
    }
}

/// The pages, and 20 that are nowhere on disk, lack redo.
fn put_off(pool: &Pool, pages: &mut Vec<PageId>) {
    let at = pool.log().append(record_kind::MINI_TXN, &[b"redo"]);
    let on_disk = pages.len();
    pages.extend((0..20).map(|_| pool.alloc_page(INDEX)));
    for (n, page) in pages.iter().enumerate() {
        let redo = redo_of(&at, 9, n >= on_disk);
        assert!(pool.put_off_redo((*page, INDEX), BlobState::Old, redo, Shares::All));
    }
    assert_eq!(pool.change_buffer().pages_from_log(), 20);
    pool.sweep_in_order(pages.clone(), Arc::new(One(at.end, [9])));
}

/// Behind a start on a full disk there are not enough places even for deletions: all pages are redone nevertheless, and then
/// there are. Nothing has failed to be written meanwhile.
#[test]
fn redo_behind_a_start_goes_on_while_there_are_few_places() {
    let disk = SimStorage::new(32);
    let (pool, mut pages) = pool_of_pages(&disk, new_inner);
    put_off(&pool, &mut pages);
    let filled_with = leave_free(&pool, &disk, 52);
    let writer = start_writer(&pool);
    wait_until(&pool, "a refusal", || pool.refusal(true).is_some());
    assert_eq!(pool.why_pages_wait(), None, "no page is dirty");
    let mut beside = pool.merging();
    assert_eq!(pool.sweep_round(&mut beside), Some(0), "it is one too many");
    merge_all(&pool);
    assert_eq!(pool.sweep_round(&mut beside), None);
    assert_eq!(pool.change_buffer().pages_from_log(), 0);
    assert_eq!(pool.why_pages_wait(), None, "all was written");
    wait_until(&pool, "room", || pool.refusal(true).is_none());
    assert!(pages.iter().all(|page| text_of(&pool, *page) == 9));
    pool.stop_writer();
    writer.join().unwrap();
    check_space(&pool, &filled_with);
}

/// No page can be written at all: no more are made dirty than the first few, until they can be.
#[test]
fn pages_that_cannot_be_written_keep_others_from_being_merged() {
    let disk = SimStorage::new(33);
    let (pool, mut pages) = pool_of_pages(&disk, new_inner);
    put_off(&pool, &mut pages);
    disk.inject_lasting(Fault::Full, "store.");
    new_inner(&pool);
    pool.flush_below(Lsn::MAX);
    let writer = start_writer(&pool);
    wait_until(&pool, "a failure", || pool.why_pages_wait().is_some());
    let mut merging = pool.merging();
    let first = pool.merge_round(&mut merging).0;
    assert!((1..=TRIAL_PAGES).contains(&first), "{first} pages at first");
    for _ in 0..50 {
        assert_eq!(pool.merge_round(&mut merging), (0, None));
    }
    assert!(pool.dirty_pages() <= 1 + TRIAL_PAGES);
    wait_until(&pool, "a failure again", || pool.why_pages_wait().is_some());
    disk.clear_faults();
    merge_all(&pool);
    wait_until(&pool, "room", || pool.why_pages_wait().is_none());
    assert!(pages.iter().all(|page| text_of(&pool, *page) == 9));
    pool.stop_writer();
    writer.join().unwrap();
}

/// Who merges all of them begins nothing that finds no place: no page is dirty then, and nothing has failed. With places for
/// some all are merged, one after the other.
#[test]
fn merging_all_begins_nothing_for_which_there_is_no_room() {
    let disk = SimStorage::new(35);
    let (pool, pages) = pool_of_pages(&disk, |pool| new_leaf_of(pool, INDEX, 1));
    for page in &pages {
        let away = pool.away_page(*page, INDEX, 20).expect("it is in memory");
        away.append(record_kind::MINI_TXN, b"", &[7]);
    }
    // Deletions need 56, merging 184.
    let mut filled_with = leave_free(&pool, &disk, 80);
    let writer = start_writer(&pool);
    wait_until(&pool, "a refusal", || pool.refusal(false).is_some());
    let merged = pool.flush_all_below(Lsn::MAX);
    assert!(matches!(merged, Err(Error::DiskFull(_))), "{merged:?}");
    assert_eq!(
        (pool.change_buffer().pages(), pool.dirty_pages()),
        (PAGES, 0)
    );
    assert_eq!(pool.why_pages_wait(), None);
    assert_eq!(pool.refusal(true), None, "deletions are refused");
    let more = filled_with.drain(..150);
    more.for_each(|at| pool.store().free_now(at));
    pool.flush_all_below(Lsn::MAX).unwrap();
    assert_eq!((pool.change_buffer().pages(), pool.dirty_pages()), (0, 0));
    assert!(pages.iter().all(|page| text_of(&pool, *page) == 7));
    pool.stop_writer();
    writer.join().unwrap();
    check_space(&pool, &filled_with);
}

/// Many pages may lack changes: who has them all merged hears that it is not wanted any more.
#[test]
fn merging_all_ends_when_it_is_enough() {
    let disk = SimStorage::new(40);
    let (pool, pages) = pool_of_pages(&disk, |pool| new_leaf_of(pool, INDEX, 1));
    for page in &pages {
        let away = pool.away_page(*page, INDEX, 20).expect("it is in memory");
        away.append(record_kind::MINI_TXN, b"", &[7]);
    }
    let asked = Cell::new(0);
    let enough = || {
        asked.set(asked.get() + 1);
        asked.get() > 2
    };
    let flushed = pool.flush_all_below_unless(Lsn::MAX, &enough);
    assert_eq!(flushed, Err(Error::Interrupted));
    let left = pool.change_buffer().pages();
    assert!(0 < left && left < PAGES, "{left} pages are left");
    assert_eq!(
        pool.dirty_pages(),
        0,
        "those that were read are not written"
    );
    pool.flush_all_below(Lsn::MAX).unwrap();
    assert!(pages.iter().all(|page| text_of(&pool, *page) == 7));
}

/// A leaf that packing makes no shorter, in whole blocks.
fn new_random_leaf(pool: &Pool, rng: &mut Rng) -> PageId {
    let page = pool.alloc_page(INDEX);
    let mut frame = pool.reserve(1).unwrap().pop().unwrap();
    let bytes = frame.bytes_mut();
    bytes[..10].fill(0);
    bytes[0..4].copy_from_slice(&INDEX.0.to_le_bytes());
    bytes[5] = crate::page_prefix::KIND_NODE;
    bytes[6..8].copy_from_slice(&8000u16.to_le_bytes());
    bytes[8..10].copy_from_slice(&(PAGE_BYTES as u16).to_le_bytes());
    bytes[10..8000].fill_with(|| rng.below(256) as u8);
    // No free bytes among the records.
    bytes[12..14].fill(0);
    pool.append(record_kind::MINI_TXN, &[b"leaf"], &[frame.frame_no()]);
    pool.publish_new(page, frame);
    page
}

/// 64 dirty pages, and places for about eight of them. Gives also what the files are filled with.
fn with_few_places(pool: &Pool, disk: &SimStorage) -> (Vec<PageId>, Vec<Location>) {
    let mut rng = Rng::new(1);
    let pages: Vec<PageId> = (0..64).map(|_| new_random_leaf(pool, &mut rng)).collect();
    pool.flush_all_below(Lsn::MAX).unwrap();
    for page in &pages {
        let mut guard = pool.exclusive(*page).unwrap().unwrap();
        pool.append(record_kind::MINI_TXN, &[b"change"], &[guard.frame_no()]);
        guard.bytes_mut()[40] = 7;
    }
    disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
    let filled_with = leave_free(pool, disk, 4);
    (pages, filled_with)
}

/// 64 pages do not fit, and eight do: those leave places for the next.
#[test]
fn what_is_written_now_finds_the_places_that_others_leave() {
    let disk = SimStorage::new(36);
    let pool = pool_on(&disk);
    let (pages, filled_with) = with_few_places(&pool, &disk);
    let written = pool.flush_all_below(Lsn::MAX);
    assert_eq!(written, Ok(pages.len()));
    assert_eq!(pool.dirty_pages(), 0);
    assert!(pages.iter().all(|page| text_of(&pool, *page) == 7));
    pool.log().flush_to(pool.log().current_lsn());
    pool.store().reclaim(pool.log().durable_lsn());
    check_space(&pool, &filled_with);
}

/// A large pool, and places for a few pages at a time: it goes on where it was. It begins once more for what others had in
/// their hands.
#[test]
fn frames_are_gone_over_twice_however_few_places_there_are() {
    /// Frames without a dirty page, in front of them.
    const CLEAN: usize = 100_000;
    let disk = SimStorage::new(37);
    let pool = pool_on(&disk);
    let (pages, filled_with) = with_few_places(&pool, &disk);
    let looks = Cell::new(0);
    let frame = |nth: usize| {
        looks.set(looks.get() + 1);
        let page = pages[nth.checked_sub(CLEAN)?];
        pool.store().directory().get(page).as_frame()
    };
    let mut batch = pool.new_write_batch();
    let written = pool.write_as_places_come(CLEAN + pages.len(), frame, &mut batch);
    pool.end_batch(batch);
    assert_eq!(written, Ok(pages.len()));
    assert_eq!(pool.dirty_pages(), 0);
    let again = looks.get() - 2 * CLEAN;
    assert!(again < 20 * pages.len(), "{again} looks beyond two each");
    check_space(&pool, &filled_with);
}

/// A snapshot keeps the places that pages leave: all are merged if there are places for all of them, and else none.
#[test]
fn pages_whose_places_are_kept_are_merged_where_there_is_room_for_all() {
    let disk = SimStorage::new(39);
    let (pool, pages) = pool_of_pages(&disk, |pool| new_leaf_of(pool, INDEX, 1));
    let keep = |pages: &[PageId]| {
        for page in pages {
            let away = pool.away_page(*page, INDEX, 20).expect("it is in memory");
            away.append(record_kind::MINI_TXN, b"", &[7]);
        }
    };
    let (some, many) = pages.split_at(50);
    keep(some);
    // Deletions need 56, merging 50 pages 156, and as many as all 650.
    let filled_with = leave_free(&pool, &disk, 200);
    pool.store()
        .pin(PinOwner::Snapshot, pool.log().current_lsn());
    pool.flush_all_below(Lsn::MAX).unwrap();
    assert_eq!((pool.change_buffer().pages(), pool.dirty_pages()), (0, 0));
    assert!(some.iter().all(|page| text_of(&pool, *page) == 7));
    keep(many);
    let merged = pool.flush_all_below(Lsn::MAX);
    assert!(matches!(merged, Err(Error::DiskFull(_))), "{merged:?}");
    let left = (pool.change_buffer().pages(), pool.dirty_pages());
    assert_eq!(left, (many.len(), 0));
    assert_eq!(pool.refusal(true), None, "deletions are refused");
    pool.store().unpin(PinOwner::Snapshot);
    pool.log().flush_to(pool.log().current_lsn());
    pool.store().reclaim(pool.log().durable_lsn());
    check_space(&pool, &filled_with);
}

/// Pages cannot be written, which is no lack of room, and one of two writers has nothing to write: that says nothing of what the
/// other one has. As soon as they can be written it is found out, though nothing is to be written.
#[test]
fn a_writer_without_work_ends_no_failure() {
    let disk = SimStorage::new(38);
    let pool = pool_on(&disk);
    disk.set_hook(Some(Arc::new(|io| {
        if io.op != IoOp::Write || !io.name.starts_with("store.") {
            return Ok(());
        }
        thread::sleep_ms(20);
        Err(Error::Io("broken".into()))
    })));
    new_inner(&pool);
    pool.flush_below(Lsn::MAX);
    let writers = [start_writer(&pool), start_writer(&pool)];
    wait_until(&pool, "a failure", || pool.write_failure().is_some());
    for _ in 0..400 {
        assert!(pool.refusal(true).is_some(), "no page was written");
        pool.wake_writer();
        thread::sleep_ms(1);
    }
    let ask = pool.look_soon();
    wait_until(&pool, "an answer", || pool.has_looked(ask));
    pool.flush_below(Lsn::ZERO);
    disk.set_hook(None);
    wait_until(&pool, "the end", || pool.refusal(true).is_none());
    assert_eq!(pool.dirty_pages(), 0, "none was tried");
    pool.stop_writer();
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
}

/// A look goes over all frames: with several writers one is at it, and not all the time.
#[test]
fn one_writer_looks_at_a_time() {
    let disk = SimStorage::new(34);
    let pool = pool_on(&disk);
    disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
    leave_free(&pool, &disk, 1);
    let grown = pool.store().grow_ahead();
    let looking = pool.writer.next_look_us.lock();
    pool.note_room(&grown, pool.asks(), 0);
    assert_eq!(pool.refusal(true), None, "it has looked beside the other");
    drop(looking);
    let soon_us = time::now_us() + 60_000_000;
    *pool.writer.next_look_us.lock() = soon_us;
    pool.note_room(&grown, pool.asks(), 0);
    assert_eq!(pool.refusal(true), None, "it has looked too soon");
    *pool.writer.next_look_us.lock() = 0;
    pool.note_room(&grown, pool.asks(), 0);
    assert!(pool.refusal(true).is_some(), "there is no room");
    // What was found holds.
    *pool.writer.next_look_us.lock() = soon_us;
    pool.note_room(&grown, pool.asks(), 0);
    assert!(pool.refusal(true).is_some(), "it is forgotten");
    // Who may have made room asks for a look at once. What was found out before says nothing of it.
    let before = pool.asks();
    let ask = pool.look_soon();
    pool.note_room(&grown, before, 0);
    assert!(!pool.has_looked(ask), "that was before");
    disk.set_capacity(None);
    let grown = pool.store().grow_ahead();
    pool.note_room(&grown, pool.asks(), 0);
    assert_eq!(pool.refusal(true), None, "there is room");
    assert!(pool.has_looked(ask), "nobody has");
    assert!(!pool.has_looked(pool.look_soon()), "that was before");
}

/// The files get no longer, for another reason than a full disk (no file can be opened, an error of the device): that all pages
/// are written ends nothing, for there is no room.
#[test]
fn files_that_cannot_grow_refuse_changes_until_they_can() {
    let disk = SimStorage::new(39);
    let pool = pool_on(&disk);
    disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
    leave_free(&pool, &disk, 1);
    pool.flush_below(Lsn::MAX);
    let failed = Err(Error::Io("it cannot be made longer".into()));
    for _ in 0..4 {
        *pool.writer.next_look_us.lock() = 0;
        pool.note_room(&failed, pool.asks(), 0);
        assert!(matches!(pool.refusal(true), Some(Error::Io(_))));
    }
    disk.set_capacity(None);
    *pool.writer.next_look_us.lock() = 0;
    pool.note_room(&pool.store().grow_ahead(), pool.asks(), 0);
    assert_eq!(pool.refusal(true), None, "there is room");
}

#[test]
fn the_longer_a_look_takes_the_later_is_the_next_one() {
    assert_eq!(next_look_us(1000, 1000), 1000);
    assert_eq!(next_look_us(1000, 1020), 1220);
    let slow = next_look_us(0, 50_000);
    assert_eq!(slow, 550_000);
    // The process was stopped for an hour meanwhile.
    let hour_us = 3_600_000_000;
    assert_eq!(next_look_us(0, hour_us), hour_us + LOOK_MOST_US);
}
