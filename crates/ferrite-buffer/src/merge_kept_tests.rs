//! Which pages are merged: for room, for the log, and past those that cannot be read.

use super::*;
use crate::read_ahead::tests::new_leaf_of;
use crate::write_tests::{pool_on, INDEX};
use ferrite_io::sim::SimStorage;
use ferrite_io::{OpenMode, Storage};
use ferrite_sync::{thread, Arc};
use ferrite_types::format::record_kind;
use ferrite_types::PAGE_BYTES;

/// A pool whose change buffer takes so many per cent of it.
fn pool_of(percent: usize, disk: &SimStorage) -> Arc<Pool> {
    let pool = pool_on(disk);
    pool.set_apply_kept(Box::new(|page, op, came_to| {
        page[40] = op[0];
        // More than a delta has: the page is written as a whole.
        came_to.resize(PAGE_BYTES, op[0]);
        Ok(())
    }));
    pool.set_change_buffer(percent);
    pool
}

fn keep(pool: &Pool, page: PageId, op: &[u8]) {
    let away = pool.away_page(page, INDEX, 20).expect("it is in memory");
    away.append(record_kind::MINI_TXN, b"", op);
    assert!(pool.change_buffer().has(page), "{page} lost its change");
}

/// New changes keep it full all the time, and the page that holds the log back has the least.
#[test]
fn the_log_is_served_while_the_change_buffer_is_full() {
    let pool = pool_of(1, &SimStorage::new(5));
    let old = new_leaf_of(&pool, INDEX, 1);
    let full = loop {
        let page = new_leaf_of(&pool, INDEX, 1);
        pool.make_cold().unwrap();
        if page.0 % 256 == old.0 % 256 {
            break page;
        }
    };
    keep(&pool, old, &[1]);
    pool.flush_below(pool.log().current_lsn());
    let mut merging = pool.merging();
    let enough = pool.change_buffer_limit_bytes() / 4 * 3;
    for _ in 0..256 {
        while pool.change_buffer().bytes() <= enough {
            keep(&pool, full, &[2; 8 << 10]);
        }
        let (merged, failed) = pool.merge_round(&mut merging);
        assert!(merged > 0 && failed.is_none(), "{merged}: {failed:?}");
        pool.make_cold().unwrap();
        if !pool.change_buffer().has(old) {
            return;
        }
    }
    panic!("the log is held back for ever");
}

/// It is among those that are merged first; the others follow, and only its own changes stay.
#[test]
fn a_page_that_cannot_be_read_keeps_no_other_from_being_merged() {
    let disk = SimStorage::new(6);
    let pool = pool_of(25, &disk);
    let mut pages = Vec::new();
    while pages.len() < ROUND_PAGES + 100 {
        pages.extend((0..100).map(|_| new_leaf_of(&pool, INDEX, 1)));
        pool.make_cold().unwrap();
    }
    pages.iter().for_each(|page| keep(&pool, *page, &[7]));
    let first = *pages.iter().min_by_key(|page| page.0 % 256).unwrap();
    let at = pool.store().directory().get(first).as_location().unwrap();
    let file = disk.boot().open("store.0000", OpenMode::ReadWrite, false);
    file.unwrap()
        .write_at(&[0xee; 1024], at.granule() * 1024)
        .unwrap();
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    let flushed = pool.flush_all_below(Lsn::MAX);
    let named = format!("page {first} cannot be merged");
    assert!(
        matches!(&flushed, Err(Error::Corrupt(text)) if text.contains(&named)),
        "{flushed:?}"
    );
    assert_eq!(pool.change_buffer().pages(), 1);
    assert!(pool.change_buffer().has(first));
    pool.stop_writer();
    writer.join().unwrap();
}
