//! Write-back against changes that come between its steps.

use crate::frame::Kind;
use crate::{page_prefix, BlobState, Node, Pool, PoolConfig, RedoStep};
use ferrite_io::sim::{Fault, IoEvent, IoOp, SimStorage};
use ferrite_io::Storage;
use ferrite_redo::{Appended, Log, LogConfig};
use ferrite_store::{Location, PageImage, Store, StoreConfig, Word};
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::{thread, time, Arc};
use ferrite_types::format::{record_kind, Codec, Packing};
use ferrite_types::{Error, IndexId, Lsn, PageId, PAGE_BYTES};
use std::rc::Rc;

pub(crate) const INDEX: IndexId = IndexId(7);

fn pool() -> Arc<Pool> {
    pool_on(&SimStorage::new(1))
}

pub(crate) fn pool_on(disk: &SimStorage) -> Arc<Pool> {
    pool_of(4 << 20, disk)
}

pub(crate) fn pool_of(size_bytes: u64, disk: &SimStorage) -> Arc<Pool> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let config = StoreConfig {
        direct: false,
        ..StoreConfig::default()
    };
    let store = Arc::new(Store::create(storage.clone(), config).unwrap());
    let log_config = LogConfig {
        ring_bytes: 1 << 20,
        segment_bytes: 1 << 20,
        direct: false,
    };
    let log = Log::create(storage, Lsn::ZERO, log_config).unwrap();
    let config = PoolConfig {
        size_bytes,
        max_bytes: 64 << 20,
        codec: Codec::None,
        delta_share: 1,
    };
    Arc::new(Pool::new(&config, store, log).unwrap())
}

/// An inner node without records.
pub(crate) fn build(bytes: &mut [u8], text: u8) {
    bytes[..40].fill(0);
    bytes[0..4].copy_from_slice(&INDEX.0.to_le_bytes());
    bytes[4] = 1;
    bytes[6..8].copy_from_slice(&41u16.to_le_bytes());
    bytes[8..10].copy_from_slice(&(PAGE_BYTES as u16).to_le_bytes());
    bytes[40] = text;
}

pub(crate) fn new_inner(pool: &Pool) -> PageId {
    let page = pool.alloc_page(INDEX);
    let mut frame = pool.reserve(1).unwrap().pop().unwrap();
    build(frame.bytes_mut(), 1);
    assert_eq!(page_prefix::level(&frame), 1);
    pool.append(record_kind::MINI_TXN, &[b"first"], &[frame.frame_no()]);
    pool.publish_new(page, frame);
    page
}

/// The next image of an inner node is logged before it takes the old one's place. If the old
/// one is copied for write-back between the two, redo must still begin before that record.
#[test]
fn an_image_logged_before_the_copy_stays_dirty_from_its_record() {
    let pool = pool();
    let page = new_inner(&pool);
    let old = pool.store().directory().get(page).as_frame().unwrap();
    let mut image = pool.reserve(1).unwrap().pop().unwrap();
    build(image.bytes_mut(), 2);
    let at = pool.append(record_kind::MINI_TXN, &[b"second"], &[image.frame_no()]);
    pool.log().append(record_kind::MINI_TXN, &[b"of others"]);
    let mut batch = pool.new_write_batch();
    assert!(pool.copy_into(old, &mut batch));
    pool.publish_image(page, image, None);
    assert_eq!(pool.write_out(&mut batch).unwrap(), 1);
    let frame = pool.store().directory().get(page).as_frame().unwrap();
    let rec = pool.frame(frame).rec_lsn().expect("it is dirty");
    assert!(
        rec <= at.start,
        "redo would begin at {rec:?}, after the change at {at:?}"
    );
    // The next write-back has it all.
    pool.flush_all_below(Lsn::MAX).unwrap();
    let frame = pool.store().directory().get(page).as_frame().unwrap();
    assert!(!pool.frame(frame).is_dirty());
}

/// Between reading a node on the way down and publishing its next image others need frames.
#[test]
fn an_image_replaces_a_node_that_was_evicted_meanwhile() {
    let pool = pool();
    let page = new_inner(&pool);
    pool.flush_all_below(Lsn::MAX).unwrap();
    let mut image = pool.reserve(1).unwrap().pop().unwrap();
    build(image.bytes_mut(), 2);
    pool.append(record_kind::MINI_TXN, &[b"second"], &[image.frame_no()]);
    let old = pool.store().directory().get(page).as_frame().unwrap();
    pool.evict_clean(old, Kind::Inner);
    let word = pool.store().directory().get(page);
    assert!(word.as_location().is_some(), "it is in memory");
    pool.publish_image(page, image, None);
    let pin = pool.pin();
    let Node::Inner(now) = pool.node(page, &pin) else {
        panic!("no inner node");
    };
    assert_eq!(now[40], 2);
    let frame = pool.store().directory().get(page).as_frame().unwrap();
    assert!(pool.frame(frame).is_dirty());
    assert_eq!(Some(pool.frame(frame).home()), word.as_location());
    pool.flush_all_below(Lsn::MAX).unwrap();
    assert!(!pool.frame(frame).is_dirty());
}

/// One record's change, as recovery redoes it.
fn redo(
    pool: &Pool,
    page: PageId,
    at: &Appended,
    creates: bool,
    change: &mut dyn FnMut(&mut [u8]),
) {
    pool.redo_from(at.start);
    let step = RedoStep {
        start: at.start,
        end: at.end,
        creates,
    };
    let done = pool.redo(page, BlobState::Unknown, &[step], &mut |_, bytes| {
        change(bytes);
        Ok(())
    });
    assert_eq!(done, Ok(1), "{page}");
}

/// A leaf is copied for write-back during recovery, and redo goes on with it before the copy is
/// written: a crash after the next checkpoint must find the log from that change on.
#[test]
fn a_page_redone_while_it_is_written_stays_dirty_from_that_change() {
    let pool = pool();
    let page = pool.alloc_page(INDEX);
    let [first, second, _] = [b"first", b"other", b"third"]
        .map(|body| pool.log().append(record_kind::MINI_TXN, &[&body[..]]));
    let mut leaf = |bytes: &mut [u8]| {
        build(bytes, 1);
        bytes[4] = 0;
    };
    redo(&pool, page, &first, true, &mut leaf);
    let mut batch = pool.new_write_batch();
    let frame = pool.store().directory().get(page).as_frame().unwrap();
    assert!(pool.copy_into(frame, &mut batch));
    redo(&pool, page, &second, false, &mut |b| b[40] = 2);
    assert_eq!(pool.write_out(&mut batch).unwrap(), 1);
    let rec = pool.frame(frame).rec_lsn().expect("it is dirty");
    assert!(
        rec <= second.start,
        "redo would begin at {rec:?}, after the change at {second:?}"
    );
    assert_eq!(pool.oldest_rec_lsn(), rec);
}

/// A reader may hold a leaf while it waits for a frame, which the writer has to make free: the
/// writer does not wait for latches.
#[test]
fn the_writer_waits_for_no_latch() {
    let pool = pool();
    let page = new_inner(&pool);
    let f = pool.store().directory().get(page).as_frame().unwrap();
    let mut batch = pool.new_write_batch();
    assert!(pool.copy_into(f, &mut batch));
    pool.frame(f).latch.exclusive();
    assert_eq!(pool.write_out(&mut batch).unwrap(), 1);
    assert!(pool.frame(f).is_dirty(), "it cannot tell yet");
    assert_eq!(pool.write_out(&mut batch).unwrap(), 0);
    pool.frame(f).latch.unlock_exclusive();
    assert_eq!(pool.write_out(&mut batch).unwrap(), 0);
    assert!(!pool.frame(f).is_dirty());
    assert_eq!(pool.frame(f).ticket.load(Ordering::SeqCst), 0);
}

/// Redo finds a page's frame, and the writer of pages makes that frame free before redo has its
/// latch: the change belongs to the page, not to the frame.
#[test]
fn a_page_evicted_before_redo_has_its_latch_is_read_again() {
    let pool = pool();
    let page = pool.alloc_page(INDEX);
    let spans =
        [b"first", b"other"].map(|body| pool.log().append(record_kind::MINI_TXN, &[&body[..]]));
    let mut leaf = |bytes: &mut [u8]| {
        build(bytes, 1);
        bytes[4] = 0;
    };
    redo(&pool, page, &spans[0], true, &mut leaf);
    pool.flush_all_below(Lsn::MAX).unwrap();
    let f = pool.store().directory().get(page).as_frame().unwrap();
    let frame = pool.frame(f);
    frame.latch.exclusive();
    let (other, waits) = (pool.clone(), pool.stats.latch_waits.get());
    let second = thread::spawn("redo", move || {
        redo(&other, page, &spans[1], false, &mut |bytes| bytes[40] = 2);
    });
    while pool.stats.latch_waits.get() == waits {
        thread::yield_now();
    }
    // As `evict_clean` does it.
    let word = pool.store().directory().word(page);
    word.store(Word::on_disk(frame.home()).0, Ordering::SeqCst);
    frame.clear();
    frame.latch.unlock_exclusive();
    second.join().unwrap();
    assert_eq!(pool.shared(page).unwrap().unwrap()[40], 2);
    let frame = pool.store().directory().get(page).as_frame().unwrap();
    assert!(pool.frame(frame).is_dirty());
}

/// All frames are dirty and the disk is full: who needs one gets an error with the reason; who must
/// not fail waits for space, or for the end of the pool.
#[test]
fn nobody_waits_for_a_frame_that_cannot_come() {
    let disk = SimStorage::new(1);
    let pool = pool_on(&disk);
    for nth in 1..5000 {
        disk.inject_in(Fault::Full, nth, "store.");
    }
    let pages: Vec<PageId> = (0..pool.frame_count()).map(|_| new_inner(&pool)).collect();
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    let error = pool.reserve(1).map(|_| ()).unwrap_err();
    assert!(matches!(&error, Error::DiskFull(text) if text.contains("no page")));
    let patient = || {
        let pool = pool.clone();
        thread::spawn("patient", move || {
            crate::patiently(|| pool.reserve(1).map(|_| ()))
        })
    };
    let enough = Arc::new(AtomicBool::new(false));
    let killable = {
        let (pool, enough) = (pool.clone(), enough.clone());
        thread::spawn("killable", move || {
            let enough = Rc::new(move || enough.load(Ordering::SeqCst));
            let result = crate::patiently_unless(enough, || pool.reserve(1).map(|_| ()));
            // It was about that alone.
            (result, crate::patiently(|| pool.reserve(1).map(|_| ())))
        })
    };
    let waits = patient();
    thread::sleep_ms(2500);
    assert!(
        !waits.is_finished() && !killable.is_finished(),
        "it gave up"
    );
    enough.store(true, Ordering::SeqCst);
    thread::sleep_ms(500);
    assert!(!killable.is_finished(), "it is patient again");
    disk.clear_faults();
    assert_eq!(killable.join().unwrap(), (Err(Error::Interrupted), Ok(())));
    waits.join().unwrap().unwrap();
    assert!(pages.iter().all(|page| pool.read_in(*page).is_ok()));
    pool.stop_writer();
    writer.join().unwrap();
    // Frames that are nobody's page are never free.
    let mut held = Vec::new();
    let end = loop {
        match crate::patiently(|| pool.reserve(1)) {
            Ok(frame) => held.push(frame),
            Err(e) => break e,
        }
    };
    assert_eq!(end, Error::Interrupted);
}

/// The writer, woken again and again, brings that about.
fn comes_with(pool: &Pool, is_there: impl Fn() -> bool) -> bool {
    (0..12_000).any(|_| {
        pool.wake_writer();
        thread::sleep_ms(5);
        is_there()
    })
}

/// That no page could be written for long counts from the last one on that was.
#[test]
fn who_waits_for_a_frame_goes_on_while_pages_are_written() {
    let disk = SimStorage::new(1);
    let pool = pool_on(&disk);
    disk.inject_lasting(Fault::Full, "store.");
    let _pages: Vec<PageId> = (0..pool.frame_count()).map(|_| new_inner(&pool)).collect();
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    while pool.write_failure().is_none() {
        thread::sleep_ms(1);
    }
    let waits = {
        let pool = pool.clone();
        thread::spawn("waits", move || pool.reserve(1).map(|_| ()))
    };
    thread::sleep_ms(1500);
    // One that somebody else has got the frame of.
    pool.stats.pages_written.inc();
    thread::sleep_ms(1000);
    assert!(!waits.is_finished(), "it gave up");
    let result = waits.join().unwrap();
    assert!(matches!(&result, Err(Error::DiskFull(text)) if text.contains("no page")));
    pool.stop_writer();
    writer.join().unwrap();
}

/// Blobs of that many bytes fill the store to the end of the disk: where they are.
pub(crate) fn fill_up(pool: &Pool, disk: &SimStorage, bytes: usize) -> Vec<Location> {
    let page = vec![1; bytes];
    let mut placed = Vec::new();
    for pages in [32, 1] {
        loop {
            let mut batch = pool.store().new_batch();
            for n in 1..=pages {
                let image = PageImage::whole(&page);
                let pushed = batch.push(PageId(n), INDEX, Lsn(4), image, Packing::NONE);
                assert!(pushed.is_some(), "{n} pages are no batch");
            }
            if pool.store().write_batch(&mut batch, &mut placed).is_err() {
                break;
            }
        }
    }
    disk.set_capacity(Some(disk.used_bytes()));
    placed.iter().map(|placed| placed.location).collect()
}

/// On a full disk, what is free for pages is less than it should be: changes are refused, deletions, which make
/// room, only when hardly anything is free, and none longer than that.
#[test]
fn files_that_get_no_longer_refuse_no_deletion_while_there_is_room() {
    let disk = SimStorage::new(9);
    let pool = pool_on(&disk);
    disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
    let full = fill_up(&pool, &disk, 16_300);
    let free = |from: usize, to: usize| {
        let blobs = full[from..to].iter();
        blobs.for_each(|at| pool.store().free_now(*at));
    };
    free(0, 200);
    let grown = pool.store().grow_ahead();
    assert!(matches!(grown, Err(Error::DiskFull(_))), "{grown:?}");
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    let becomes = |refused: bool| comes_with(&pool, || pool.refusal(false).is_some() == refused);
    assert!(becomes(true), "less is free than should be");
    assert_eq!(pool.refusal(true), None, "of 170 free places");
    let page = new_inner(&pool);
    pool.flush_all_below(Lsn::MAX).unwrap();
    assert!(pool.read_in(page).is_ok());
    // All of it but a few places is used.
    let rest = fill_up(&pool, &disk, 16_300);
    let refuses_deletions = || pool.refusal(true).is_some() && pool.refusal(false).is_some();
    assert!(
        comes_with(&pool, refuses_deletions),
        "nothing is free for deletions"
    );
    rest[1..60].iter().for_each(|at| pool.store().free_now(*at));
    // Deletions make room, and a few places are not enough for anything else.
    let refuses_others = || {
        let why = pool.refusal(false).expect("a few places are enough");
        let is_of_room = matches!(&why, Error::DiskFull(text) if !text.contains("disk full"));
        is_of_room && pool.refusal(true).is_none()
    };
    assert!(
        comes_with(&pool, refuses_others),
        "{:?}, deletions {:?}",
        pool.refusal(false),
        pool.refusal(true)
    );
    free(200, 400);
    disk.set_capacity(None);
    assert!(becomes(false), "it stays refused");
    pool.stop_writer();
    writer.join().unwrap();
}

/// Rolling back makes pages dirty, whatever the disk is like; readers find frames all the same. When the
/// process is to end, nobody waits any more.
#[test]
fn who_waits_for_the_disk_leaves_frames_to_readers() {
    let disk = SimStorage::new(11);
    let pool = pool_of(16 << 20, &disk);
    let frames = pool.frame_count();
    let clean: Vec<PageId> = (0..200).map(|_| new_inner(&pool)).collect();
    pool.flush_all_below(Lsn::MAX).unwrap();
    for _ in 0..frames - 16 {
        new_inner(&pool);
    }
    for nth in 1..5000 {
        disk.inject_in(Fault::Full, nth, "store.");
    }
    pool.flush_below(Lsn::MAX);
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    while pool.write_failure().is_none() {
        thread::sleep_ms(1);
    }
    let patient = {
        let pool = pool.clone();
        thread::spawn("patient", move || {
            crate::patiently(|| pool.reserve(1).map(|_| ()))
        })
    };
    for page in clean.iter().cycle().take(600) {
        pool.read_in(*page).unwrap();
    }
    let waits = pool.stats.free_waits.get();
    thread::sleep_ms(200);
    assert!(!patient.is_finished(), "it took one of the last frames");
    let waits = pool.stats.free_waits.get() - waits;
    assert!(waits < 40, "{waits} waits of 20 ms");
    pool.end_patience();
    assert_eq!(patient.join().unwrap(), Err(Error::Interrupted));
    assert!(pool.read_in(clean[0]).is_ok());
    pool.stop_writer();
    writer.join().unwrap();
}

/// A page of text that finds no place as it is finds one packed.
#[test]
fn pages_are_packed_where_they_do_not_fit_otherwise() {
    let disk = SimStorage::new(12);
    let pool = pool_on(&disk);
    disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
    let full = fill_up(&pool, &disk, 4000);
    let page = new_inner(&pool);
    let mut image = pool.reserve(1).unwrap().pop().unwrap();
    build(image.bytes_mut(), 2);
    image.bytes_mut()[6..8].copy_from_slice(&12_000u16.to_le_bytes());
    image.bytes_mut()[41..12_000].fill(b'x');
    pool.append(record_kind::MINI_TXN, &[b"second"], &[image.frame_no()]);
    pool.publish_image(page, image, None);
    pool.store().free_now(full[5]);
    pool.flush_below(Lsn::MAX);
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    comes_with(&pool, || pool.dirty_pages() == 0);
    pool.stop_writer();
    writer.join().unwrap();
    assert_eq!(pool.dirty_pages(), 0, "one block is enough");
}

/// Nothing is free but a place for fewer pages than are tried at a time: what fits is written, and its
/// old place is the next one's.
#[test]
fn so_many_pages_are_written_as_fit_into_what_is_left() {
    let disk = SimStorage::new(10);
    let pool = pool_on(&disk);
    let in_a_block_of_its_own = |_| {
        let page = new_inner(&pool);
        pool.flush_all_below(Lsn::MAX).unwrap();
        page
    };
    let pages: Vec<PageId> = (0..64).map(in_a_block_of_its_own).collect();
    disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
    // A block each, and one of them is free: it has room for four of the pages.
    let full = fill_up(&pool, &disk, 4000);
    pool.store().free_now(full[0]);
    for page in &pages {
        let mut image = pool.reserve(1).unwrap().pop().unwrap();
        build(image.bytes_mut(), 2);
        pool.append(record_kind::MINI_TXN, &[b"second"], &[image.frame_no()]);
        pool.publish_image(*page, image, None);
    }
    let dirty = pool.dirty_pages();
    assert_eq!(dirty, pages.len());
    pool.flush_below(Lsn::MAX);
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    for _ in 0..1000 {
        pool.wake_writer();
        pool.log().flush_to(pool.log().current_lsn());
        if pool.dirty_pages() == 0 {
            break;
        }
        thread::sleep_ms(5);
    }
    assert_eq!(pool.dirty_pages(), 0, "pages that find no place");
    pool.stop_writer();
    writer.join().unwrap();
}

/// While nothing can be written, the writer goes past dirty pages: readers live on the clean ones.
#[test]
fn readers_find_clean_frames_on_a_full_disk() {
    let disk = SimStorage::new(8);
    let pool = pool_of(32 << 20, &disk);
    let frames = pool.frame_count();
    let clean: Vec<PageId> = (0..frames / 2).map(|_| new_inner(&pool)).collect();
    pool.flush_all_below(Lsn::MAX).unwrap();
    let dirty = frames - frames / 8;
    for _ in 0..dirty {
        new_inner(&pool);
    }
    disk.inject_lasting(Fault::Full, "store.");
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    // It knows that nothing can be written.
    pool.flush_below(Lsn::MAX);
    assert!(comes_with(&pool, || pool.write_failure().is_some()));
    let before = pool.stats.free_waits.get();
    for page in clean.iter().cycle().take(1000) {
        pool.read_in(*page).unwrap();
    }
    let waits = pool.stats.free_waits.get() - before;
    assert!(disk.faults_happened() > 0, "the disk was not full");
    assert!(waits < 20, "{waits} waits of 20 ms");
    disk.clear_faults();
    pool.stop_writer();
    writer.join().unwrap();
}

/// A page that redo creates is not read, and one that the log says is newer than it is, is refused.
#[test]
fn redo_reads_no_page_that_it_creates_and_believes_no_old_one() {
    let pool = pool();
    let page = new_inner(&pool);
    pool.flush_all_below(Lsn::MAX).unwrap();
    let lsn = {
        let f = pool.store().directory().get(page).as_frame().unwrap();
        let lsn = pool.frame(f).lsn();
        pool.evict_clean(f, Kind::Inner);
        lsn
    };
    let at = pool.log().append(record_kind::MINI_TXN, &[b"third"]);
    let step = |creates| RedoStep {
        start: at.start,
        end: at.end,
        creates,
    };
    pool.redo_from(at.start);
    let newer = BlobState::Has(at.start);
    let refused = pool.redo(page, newer, &[step(false)], &mut |_, _| Ok(()));
    assert!(matches!(refused, Err(Error::Corrupt(text)) if text.contains("older state")));
    let f = pool.store().directory().get(page).as_frame().unwrap();
    pool.evict_clean(f, Kind::Inner);
    let reads = pool.stats.reads.get();
    let mut make = |_, bytes: &mut [u8]| {
        build(bytes, 3);
        Ok(())
    };
    let done = pool.redo(page, BlobState::Has(lsn), &[step(true)], &mut make);
    assert_eq!((done, pool.stats.reads.get()), (Ok(1), reads));
    let again = pool.redo(page, BlobState::Has(lsn), &[step(true)], &mut make);
    assert_eq!(again, Ok(0), "it is redone twice");
    pool.flush_all_below(Lsn::MAX).unwrap();
    assert_eq!(pool.check_space(), Ok(()));
}

/// So many writer threads of the pool.
fn writers(pool: &Arc<Pool>, count: usize) -> Vec<thread::JoinHandle<()>> {
    let run = |_| {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    (0..count).map(run).collect()
}

fn end(pool: &Pool, writers: Vec<thread::JoinHandle<()>>) {
    pool.stop_writer();
    writers.into_iter().for_each(|w| w.join().unwrap());
}

/// How long the page stays dirty from now on, us.
fn us_until_clean(pool: &Pool, page: PageId) -> u64 {
    let f = pool.store().directory().get(page).as_frame();
    let begun_us = time::now_us();
    while f.is_some_and(|f| pool.frame(f).page() == page && pool.frame(f).is_dirty()) {
        assert!(time::now_us() < begun_us + 60_000_000, "{page} stays dirty");
        thread::yield_now();
    }
    time::now_us() - begun_us
}

/// After an idle time, when all sleep long, another writer takes what comes while the first one is at the disk.
#[test]
fn a_writer_at_the_disk_keeps_no_other_asleep() {
    const ROUNDS: usize = 8;
    /// Each would sleep for 100 ms on average, up to 200.
    const PROMPT_US: u64 = 40_000;
    let disk = SimStorage::new(13);
    let pool = pool_on(&disk);
    // At the disk somebody is held up, and the way is free for him.
    let (is_there, is_free) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(true)),
    );
    let (there, free) = (is_there.clone(), is_free.clone());
    disk.set_hook(Some(Arc::new(move |event: &IoEvent<'_>| {
        let writes = event.op == IoOp::Write && event.name.starts_with("store.");
        if writes && !there.swap(true, Ordering::SeqCst) {
            while !free.load(Ordering::SeqCst) {
                thread::sleep_ms(1);
            }
        }
        Ok(())
    })));
    let both = writers(&pool, 2);
    let mut waited_us = Vec::new();
    for _ in 0..ROUNDS {
        let first = new_inner(&pool);
        let between = pool.log().current_lsn();
        let second = new_inner(&pool);
        // Long enough for the long pauses, and amid one of them.
        thread::sleep_ms(620);
        is_free.store(false, Ordering::SeqCst);
        is_there.store(false, Ordering::SeqCst);
        pool.flush_below(between);
        while !is_there.load(Ordering::SeqCst) {
            thread::sleep_ms(1);
        }
        pool.flush_below(Lsn::MAX);
        waited_us.push(us_until_clean(&pool, second));
        is_free.store(true, Ordering::SeqCst);
        us_until_clean(&pool, first);
        pool.flush_below(Lsn::ZERO);
    }
    end(&pool, both);
    // On a busy machine the processor may be another's now and then.
    let prompt = waited_us.iter().filter(|us| **us < PROMPT_US).count();
    assert!(prompt >= ROUNDS - 3, "{waited_us:?} us");
}
