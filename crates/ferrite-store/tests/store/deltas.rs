//! Pages with deltas: read together with their base, and with no other.

use crate::common::{corrupt, disk, small};
use ferrite_io::sim::SimStorage;
use ferrite_store::{
    rebuild_by_scan, Batch, Checkpoint, Location, PageImage, Placed, Store, StoredBlob, Wanted,
    Word,
};
use ferrite_sync::atomic::Ordering;
use ferrite_types::format::Packing;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, PAGE_BYTES};

const INDEX: IndexId = IndexId(7);

/// Each change is a place (u16) and a byte.
fn apply(_: PageId, changes: &[u8], page: &mut [u8]) -> Result<()> {
    for change in changes.chunks(3) {
        let [a, b, byte] = change else {
            return Err(Error::Corrupt("half a change".into()));
        };
        page[usize::from(u16::from_le_bytes([*a, *b]))] = *byte;
    }
    Ok(())
}

fn write(store: &Store, push: &mut dyn FnMut(&mut Batch)) -> Placed {
    let mut batch = store.new_batch();
    push(&mut batch);
    let mut placed = Vec::new();
    store.write_batch(&mut batch, &mut placed).unwrap();
    placed[0]
}

/// A page filled with `text`, and what it is on disk.
fn whole(store: &Store, page: PageId, lsn: u64, text: u8) -> (Location, StoredBlob) {
    let bytes = vec![text; PAGE_BYTES];
    let placed = write(store, &mut |batch| {
        let image = PageImage::with_gap(&bytes, 9000, 9000);
        let pushed = batch.push(page, INDEX, Lsn(lsn), image, Packing::NONE);
        assert!(pushed.is_some());
    });
    let word = store.directory().word(page);
    word.store(Word::on_disk(placed.location).0, Ordering::SeqCst);
    let (lsn, crc) = (Lsn(lsn), placed.crc);
    (placed.location, StoredBlob { lsn, crc })
}

fn delta(store: &Store, page: PageId, lsn: u64, base: StoredBlob, changes: &[u8]) -> Location {
    let push = &mut |batch: &mut Batch| {
        assert!(batch.push_delta((page, INDEX), Lsn(lsn), base, changes));
    };
    write(store, push).location
}

fn store_with_page(sim: &SimStorage) -> (Store, PageId) {
    let store = Store::create(disk(sim), small()).unwrap();
    store.set_apply(apply);
    let page = store.alloc_page(INDEX, &mut |_| ());
    (store, page)
}

fn read(store: &Store, page: PageId) -> Result<(Lsn, Vec<u8>)> {
    let mut out = vec![0; PAGE_BYTES];
    let at = store.directory().get(page).as_location().unwrap();
    store
        .read_page(page, at, &mut out)
        .map(|header| (header.lsn, out))
}

#[test]
fn a_page_is_read_with_its_delta_and_a_new_delta_takes_its_place() {
    let (store, page) = store_with_page(&SimStorage::new(1));
    let (_, base) = whole(&store, page, 10, 1);
    assert_eq!(read(&store, page).unwrap().1[500], 1);
    let first = delta(&store, page, 20, base, &[244, 1, 5]);
    assert!(store.swap_delta(page, first).is_none());
    let (lsn, bytes) = read(&store, page).unwrap();
    assert_eq!((lsn, bytes[500], bytes[501]), (Lsn(20), 5, 1));
    let second = delta(&store, page, 30, base, &[244, 1, 5, 245, 1, 6]);
    assert_eq!(store.swap_delta(page, second), first);
    store.free_now(first);
    let (lsn, bytes) = read(&store, page).unwrap();
    assert_eq!((lsn, bytes[500], bytes[501]), (Lsn(30), 5, 6));
    assert_eq!(
        (store.stats().deltas_written, store.stats().deltas_live),
        (2, 1)
    );
    store.check_space(&|_| Location::NONE).unwrap();
}

#[test]
fn a_delta_of_another_base_is_refused() {
    let (store, page) = store_with_page(&SimStorage::new(2));
    let (_, old) = whole(&store, page, 10, 1);
    let of_old = delta(&store, page, 20, old, &[244, 1, 5]);
    let (_, new) = whole(&store, page, 15, 2);
    store.swap_delta(page, of_old);
    let text = corrupt(read(&store, page));
    assert!(text.contains("another state"), "{text}");
    let other = StoredBlob {
        crc: new.crc ^ 1,
        ..new
    };
    store.swap_delta(page, delta(&store, page, 30, other, &[244, 1, 5]));
    corrupt(read(&store, page));
    store.swap_delta(page, delta(&store, page, 30, new, &[244, 1]));
    let text = corrupt(read(&store, page));
    assert!(text.contains("half a change"), "{text}");
    store.swap_delta(page, delta(&store, page, 31, new, &[244, 1, 9]));
    assert_eq!(read(&store, page).unwrap().1[500], 9);
}

#[test]
fn pages_with_and_without_deltas_are_read_together() {
    let (store, first) = store_with_page(&SimStorage::new(3));
    let mut wanted = Vec::new();
    for n in 0..40u8 {
        let page = match n {
            0 => first,
            _ => store.alloc_page(INDEX, &mut |_| ()),
        };
        let (at, base) = whole(&store, page, 10, n);
        let delta = match n % 3 {
            0 => Location::NONE,
            _ => delta(&store, page, 20, base, &[244, 1, 100 + n]),
        };
        wanted.push(Wanted { page, at, delta });
    }
    let (mut reader, mut told) = (store.together_reader(), vec![0; wanted.len()]);
    let mut out = vec![0; PAGE_BYTES];
    store.read_together(&mut reader, &wanted, &mut |n, arrived| {
        told[n] += 1;
        let read = arrived.unwrap().restore(&mut out).unwrap();
        let expected = if n % 3 == 0 { n } else { 100 + n };
        assert_eq!((usize::from(out[500]), out[501]), (expected, n as u8));
        assert_eq!(read.changes.is_empty(), n % 3 == 0);
        assert_eq!(read.base.lsn, Lsn(10));
    });
    assert!(told.iter().all(|n| *n == 1), "{told:?}");
    // A place where there is nothing.
    let mut bad = wanted[1];
    bad.delta = wanted[2].delta;
    store.read_together(&mut reader, &[bad], &mut |_, arrived| {
        corrupt(arrived.unwrap().restore(&mut out));
    });
}

#[test]
fn map_and_replay_keep_deltas_as_they_are() {
    let sim = SimStorage::new(4);
    let (store, page) = store_with_page(&sim);
    let mut extent = Vec::new();
    let other = store.alloc_page(IndexId(9), &mut |body| extent = body.to_vec());
    let (at, base) = whole(&store, page, 10, 1);
    store.swap_delta(page, delta(&store, page, 20, base, &[244, 1, 5]));
    let (_, gone) = whole(&store, other, 11, 2);
    store.swap_delta(other, delta(&store, other, 21, gone, &[244, 1, 6]));
    let map = store.dump_map(Lsn(50), &|_, _| None).unwrap();
    store
        .write_checkpoint(&Checkpoint {
            redo_start: Lsn(50),
            map,
            state: Vec::new(),
        })
        .unwrap();
    let reopen = || {
        let store = Store::open(disk(&sim), small()).unwrap().0;
        store.set_apply(apply);
        store
    };
    let again = reopen();
    // The log frees a page with its delta.
    again.set_location(other, Location::NONE);
    again.finish_recovery().unwrap();
    assert!(again.delta_of(other).is_none());
    assert_eq!(read(&again, page).unwrap().1[500], 5);
    again.check_space(&|_| Location::NONE).unwrap();
    assert_eq!(again.stats().deltas_live, 1);
    drop(again);
    // The log moves a page: its delta was one of the old blob.
    let again = reopen();
    again.set_location(page, at);
    again.finish_recovery().unwrap();
    assert!(again.delta_of(page).is_none());
    assert_eq!(read(&again, page).unwrap().1[500], 1);
    assert_eq!(read(&again, other).unwrap().1[500], 6);
    again.check_space(&|_| Location::NONE).unwrap();
}

#[test]
fn a_scan_finds_the_newest_delta_of_the_newest_blob() {
    let sim = SimStorage::new(5);
    let (store, page) = store_with_page(&sim);
    let (_, old) = whole(&store, page, 10, 1);
    delta(&store, page, 14, old, &[244, 1, 3]);
    let (at, base) = whole(&store, page, 15, 2);
    delta(&store, page, 20, base, &[244, 1, 5]);
    let newest = delta(&store, page, 30, base, &[244, 1, 6]);
    let found = rebuild_by_scan(&disk(&sim), Lsn::MAX).unwrap();
    let one = found.pages[&page];
    assert_eq!((one.location, one.delta, one.lsn), (at, newest, Lsn(30)));
    assert!(found.claims.is_empty(), "{:?}", found.claims);
    let salvaged = Store::open_by_scan(disk(&sim), &found).unwrap();
    salvaged.set_apply(apply);
    assert_eq!(read(&salvaged, page).unwrap().1[500], 6);
    // What is beyond the log's end does not count.
    let found = rebuild_by_scan(&disk(&sim), Lsn(25)).unwrap();
    assert_eq!(found.pages[&page].lsn, Lsn(20));
    // A newer delta whose blob is nowhere: the page is not what is left of it.
    let lost = StoredBlob {
        lsn: Lsn(35),
        crc: 1,
    };
    delta(&store, page, 40, lost, &[244, 1, 7]);
    let found = rebuild_by_scan(&disk(&sim), Lsn::MAX).unwrap();
    assert_eq!(found.claims[&page], Lsn(40));
}

#[test]
fn of_two_blobs_with_one_position_the_scan_takes_the_one_with_the_newest_delta() {
    for first_has_it in [true, false] {
        let sim = SimStorage::new(6);
        let (store, page) = store_with_page(&sim);
        let (one, first) = whole(&store, page, 15, 1);
        let (other, second) = whole(&store, page, 15, 2);
        let (at, base) = match first_has_it {
            true => (one, first),
            false => (other, second),
        };
        let newest = delta(&store, page, 20, base, &[244, 1, 5]);
        let found = rebuild_by_scan(&disk(&sim), Lsn::MAX).unwrap();
        let page = found.pages[&page];
        assert_eq!((page.location, page.delta), (at, newest));
        assert!(found.claims.is_empty(), "{:?}", found.claims);
    }
}
