//! What the tests share: pages with known contents, and a small engine over a store whose
//! log is a vector, so that a crash can be compared with what the log says.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_store::{
    Batch, Checkpoint, Location, PageImage, Placed, Store, StoreConfig, Word, GRANULE_BYTES,
};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::random::Rng;
use ferrite_types::format::{Codec, Packing};
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, PAGE_BYTES};

/// Small segments and files, so that little data fills many of them.
pub fn small() -> StoreConfig {
    StoreConfig {
        direct: true,
        file_bytes: 1 << 20,
        segment_bytes: 256 << 10,
    }
}

pub fn disk(sim: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(sim.boot())
}

/// The page's bytes in that version, and where its gap begins and ends.
pub fn page_bytes(page: PageId, version: u64) -> (Vec<u8>, usize, usize) {
    let mut rng = Rng::new(u64::from(page.0) << 32 | version);
    let head = rng.below(PAGE_BYTES as u64 + 1) as usize;
    let tail = rng.between(head as u64, PAGE_BYTES as u64) as usize;
    let mut bytes = vec![0; PAGE_BYTES];
    let noise = rng.below(3);
    for part in [0..head, tail..PAGE_BYTES] {
        for b in &mut bytes[part] {
            *b = match noise {
                0 => rng.below(256) as u8,
                1 => rng.below(5) as u8,
                _ => 7,
            };
        }
    }
    (bytes, head, tail)
}

/// A record of the test's log.
#[derive(Clone, Debug)]
pub enum Record {
    Delta(Vec<u8>, Vec<(PageId, u64)>),
    Extent(Vec<u8>),
    Drop(IndexId),
}

/// What should be in the store: page to index and version.
pub type Model = BTreeMap<PageId, (IndexId, u64)>;

pub struct Engine {
    pub store: Store,
    /// Records and their ends; never cut, so that the whole history can be replayed.
    pub log: Vec<(Lsn, Record)>,
    pub durable: Lsn,
    pub version: u64,
    batch: Batch,
}

impl Engine {
    pub fn create(sim: &SimStorage, cfg: StoreConfig) -> Result<Engine> {
        Ok(Engine::over(Store::create(disk(sim), cfg)?))
    }

    pub fn over(store: Store) -> Engine {
        Engine {
            batch: store.new_batch(),
            store,
            log: Vec::new(),
            durable: Lsn::ZERO,
            version: 0,
        }
    }

    pub fn end(&self) -> Lsn {
        self.log.last().map_or(Lsn::ZERO, |(end, _)| *end)
    }

    pub fn append(&mut self, r: Record) -> Lsn {
        let end = Lsn(self.end().0 + 10);
        self.log.push((end, r));
        end
    }

    pub fn flush(&mut self) {
        self.durable = self.end();
        self.store.reclaim(self.durable);
    }

    pub fn alloc(&mut self, index: IndexId) -> PageId {
        let mut extent = None;
        let page = self
            .store
            .alloc_page(index, &mut |body| extent = Some(body.to_vec()));
        if let Some(body) = extent {
            self.append(Record::Extent(body));
        }
        page
    }

    /// Writes new versions of the pages, as one or more batches.
    pub fn write(&mut self, pages: &[PageId]) -> Result<()> {
        let mut versions = Vec::new();
        for &page in pages {
            self.version += 1;
            let (bytes, head, tail) = page_bytes(page, self.version);
            let image = PageImage::with_gap(&bytes, head, tail);
            let codec = [Codec::None, Codec::Lz4, Codec::Zstd][self.version as usize % 3];
            let packing = Packing::of(codec);
            let index = self.store.index_of(page);
            let lsn = Lsn(self.version);
            if self.batch.push(page, index, lsn, image, packing).is_none() {
                self.write_batch(std::mem::take(&mut versions))?;
                let pushed = self.batch.push(page, index, lsn, image, packing);
                assert!(pushed.is_some());
            }
            versions.push((page, self.version));
        }
        self.write_batch(versions)
    }

    fn write_batch(&mut self, versions: Vec<(PageId, u64)>) -> Result<()> {
        let mut placed: Vec<Placed> = Vec::new();
        let result = self.store.write_batch(&mut self.batch, &mut placed);
        self.batch.clear();
        result?;
        let moved: Vec<_> = placed.iter().map(|p| (p.page, p.location)).collect();
        self.relocate(moved, versions);
        Ok(())
    }

    /// Logs the new places, then makes them known, then retires the old ones.
    fn relocate(&mut self, moved: Vec<(PageId, Location)>, versions: Vec<(PageId, u64)>) {
        let mut body = Vec::new();
        Store::encode_map_delta(&moved, &mut body);
        let end = self.append(Record::Delta(body, versions));
        for (page, at) in moved {
            let word = self.store.directory().word(page);
            let old = Word(word.swap(Word::on_disk(at).0, Ordering::SeqCst));
            if let Some(old) = old.as_location() {
                self.store.retire(old, end);
            }
        }
    }

    pub fn free(&mut self, page: PageId) {
        self.relocate(vec![(page, Location::NONE)], Vec::new());
        self.store.page_unused(page);
    }

    pub fn drop_index(&mut self, index: IndexId) {
        let pages = self.store.pages_of(index);
        let end = self.append(Record::Drop(index));
        for page in pages {
            let word = self.store.directory().word(page);
            let old = Word(word.swap(0, Ordering::SeqCst));
            self.store.retire(old.as_location().unwrap(), end);
        }
        self.store.release_index(index);
    }

    pub fn checkpoint(&mut self) -> Result<()> {
        let base = self.end();
        let map = self.store.dump_map(base, &|_, _| None)?;
        self.flush();
        self.store.write_checkpoint(&Checkpoint {
            redo_start: base,
            map,
            state: vec![9; self.version as usize % 7000],
        })
    }

    /// One random thing an engine does.
    pub fn step(&mut self, rng: &mut Rng) -> Result<()> {
        match rng.below(20) {
            0 => self.checkpoint()?,
            1..=3 => self.flush(),
            4 => self.store.grow_ahead().map(|_| ())?,
            5 => self.store.shrink().map(|_| ())?,
            6 => {
                let index = IndexId(2 + rng.below(3) as u32);
                self.drop_index(index);
            }
            7..=9 => {
                if let Some(page) = self.some_page(rng) {
                    self.free(page);
                }
            }
            _ => {
                let mut pages = Vec::new();
                for _ in 0..=rng.below(12) {
                    match self.some_page(rng) {
                        Some(page) if rng.chance(2, 3) => pages.push(page),
                        _ => pages.push(self.alloc(IndexId(1 + rng.below(4) as u32))),
                    }
                }
                pages.sort_unstable();
                pages.dedup();
                let result = self.write(&pages);
                for page in pages {
                    if self.store.directory().get(page).is_free() {
                        self.store.page_unused(page);
                    }
                }
                return result;
            }
        }
        Ok(())
    }

    fn some_page(&self, rng: &mut Rng) -> Option<PageId> {
        let index = IndexId(1 + rng.below(4) as u32);
        let pages = self.store.pages_of(index);
        pages.get(rng.below(pages.len() as u64) as usize).copied()
    }

    /// The first `n` records of the log, from the beginning of time.
    pub fn model(&self, n: usize) -> Model {
        let mut model = Model::new();
        let mut owner = BTreeMap::new();
        for (_, record) in &self.log[..n] {
            match record {
                Record::Extent(body) => {
                    let index = u32::from_le_bytes(body[2..6].try_into().unwrap());
                    let extent = u32::from_le_bytes(body[6..10].try_into().unwrap());
                    owner.insert(extent, IndexId(index));
                }
                Record::Drop(index) => model.retain(|_, (i, _)| i != index),
                Record::Delta(body, versions) => {
                    let mut versions = versions.iter();
                    Store::decode_map_delta(body, &mut |page, at| {
                        if at.is_none() {
                            model.remove(&page);
                            return;
                        }
                        let (p, version) = versions.next().unwrap();
                        assert_eq!(*p, page);
                        let index = owner.get(&(page.0 / 64)).copied().unwrap_or(IndexId(1));
                        model.insert(page, (index, *version));
                    })
                    .unwrap();
                }
            }
        }
        model
    }

    /// Opens what the disk holds and replays the first `n` records.
    pub fn recover(sim: &SimStorage, log: &[(Lsn, Record)], version: u64) -> Result<Engine> {
        Engine::recover_with(sim, log, version, |_| {})
    }

    /// `begin` is called before the first record.
    pub fn recover_with(
        sim: &SimStorage,
        log: &[(Lsn, Record)],
        version: u64,
        begin: impl FnOnce(&Store),
    ) -> Result<Engine> {
        let (store, checkpoint) = Store::open(disk(sim), small())?;
        begin(&store);
        for (end, record) in log {
            if *end <= checkpoint.map.lsn {
                continue;
            }
            match record {
                Record::Extent(body) => store.apply_extent(body)?,
                Record::Drop(index) => store.release_index(*index),
                Record::Delta(body, _) => {
                    Store::decode_map_delta(body, &mut |page, at| store.set_location(page, at))?;
                }
            }
        }
        store.finish_recovery()?;
        let mut engine = Engine::over(store);
        engine.log = log.to_vec();
        engine.durable = engine.end();
        engine.version = version;
        Ok(engine)
    }

    /// The store holds exactly the model.
    pub fn check(&self, model: &Model) {
        let mut granules = 0;
        for (&page, &(index, version)) in model {
            let at = self.store.directory().get(page).as_location();
            let at = at.unwrap_or_else(|| panic!("page {page} is lost"));
            granules += u64::from(at.granules());
            check_page(&self.store, page, at, version);
            assert_eq!(self.store.index_of(page), index);
        }
        let mut known = 0;
        for index in self.store.indexes() {
            let pages = self.store.pages_of(index);
            assert_eq!(pages.len() as u64, self.store.page_count(index));
            assert!(pages.iter().all(|p| model[p].0 == index));
            known += pages.len();
        }
        assert_eq!(known, model.len());
        let live = granules * GRANULE_BYTES as u64 + self.store.retired_bytes();
        assert_eq!(self.store.used_bytes(), live);
        assert_eq!(self.store.free_bytes() + live, self.store.file_bytes());
    }
}

pub fn check_page(store: &Store, page: PageId, at: Location, version: u64) {
    let mut out = vec![0xaa; PAGE_BYTES];
    let header = store.read_page(page, at, &mut out).unwrap();
    assert_eq!((header.page, header.lsn), (page, Lsn(version)));
    assert!(
        out == page_bytes(page, version).0,
        "page {page} has other bytes"
    );
}

/// The text of a `Corrupt` error.
pub fn corrupt<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Corrupt(text)) => text,
        Err(e) => panic!("not Corrupt: {e}"),
        Ok(_) => panic!("no error"),
    }
}

/// Places of pages written in one batch, with so many bytes each.
pub fn write_many(store: &Store, pages: std::ops::Range<u32>, bytes: usize) -> Vec<Location> {
    let body = vec![7; bytes];
    let image = PageImage::with_gap(&body, bytes, bytes);
    let mut batch = store.new_batch();
    for page in pages {
        let pushed = batch.push(PageId(page), IndexId(3), Lsn(4), image, Packing::NONE);
        assert!(pushed.is_some());
    }
    let mut placed = Vec::new();
    store.write_batch(&mut batch, &mut placed).unwrap();
    placed.iter().map(|p| p.location).collect()
}
