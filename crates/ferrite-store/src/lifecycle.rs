//! A store's life: made, opened, recovered, checkpointed.
//!
//! The order of a start: [`Store::open`] loads the newest checkpoint's map; the engine
//! replays from the log what concerns the map ([`Store::set_location`],
//! [`Store::apply_extent`], [`Store::release_index`]); [`Store::free_space_known`] marks
//! what the directory names, and blobs may be written; pages are redone (which may make
//! more ids used); [`Store::finish_recovery`] collects the unused page ids.
//!
//! Locking: `slots` is held over the I/O of a dump or a checkpoint: one at a time.

use std::collections::BTreeMap;

use ferrite_sync::{random, time};
use ferrite_types::format::FEATURES_OF_NEW;
use ferrite_types::{Error, Faults, IndexId, Lsn, PageId, Result};

use crate::checkpoint::{self, Checkpoint, Found};
use crate::creation;
use crate::damaged;
use crate::deps::{kill_point, Arc, OpenMode, Ordering, Storage};
use crate::directory::{Directory, EXTENT_PAGES};
use crate::extents::{Replay, DICTIONARY};
use crate::files::{Files, Geometry};
use crate::map::{self, MapBase, Mark};
use crate::scan::ScanResult;
use crate::slots::{PassedOver, Slots};
use crate::store::{Store, StoreConfig, OPEN, WRITABLE};
use crate::superblock::{self, Superblock};
use crate::word::{Location, Word};

/// The newest checkpoint whose map can be loaded, that map, and the checkpoint that was passed
/// over for it.
///
/// A start that could not read the newest checkpoint (a read error that did not last) begins at
/// the one before, and dumps its own map over the newest one's. If it dies before its own
/// checkpoint is written, the newest checkpoint is whole again and names a map that is gone,
/// while the one before has all it needs: its map, and the log from there on, or the log says
/// what is missing.
fn first_with_map(
    storage: &dyn Storage,
    found: Vec<Found>,
    uuid: [u8; 16],
) -> Result<(Found, Directory, Option<PassedOver>)> {
    let mut passed_over: Option<PassedOver> = None;
    for candidate in found {
        let directory = Directory::new();
        match map::load(storage, &directory, &candidate.checkpoint.map, uuid) {
            Ok(()) => return Ok((candidate, directory, passed_over)),
            Err(Error::Corrupt(what)) => {
                let why = format!("{}: {what}", checkpoint::name(candidate.slot));
                let before = passed_over.take().map(|p| p.why + "; ");
                passed_over = Some(PassedOver {
                    checkpoint: candidate.checkpoint,
                    why: before.unwrap_or_default() + &why,
                });
            }
            Err(e) => return Err(e),
        }
    }
    let why = passed_over.map(|p| p.why).unwrap_or_default();
    Err(Error::Corrupt(format!(
        "no checkpoint with a whole map ({why})"
    )))
}

/// What [`Store::survey`] found.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The database's identity.
    pub uuid: [u8; 16],
    /// When it was made, in microseconds since 1970.
    pub created_us: u64,
    /// The newest valid checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Why there is none.
    pub no_checkpoint: Option<Error>,
    /// Copies of superblock and checkpoint that are damaged while another one serves.
    pub damage: Vec<String>,
}

impl Store {
    /// Makes an empty store with one step of a segment, an empty map and a first checkpoint at
    /// position 0, ready for use. What an interrupted earlier attempt left is removed.
    ///
    /// # Errors
    /// `Exists` when there is a database. `Corrupt` when there are signs of one that has lost
    /// its superblock. `BadConfig`, `DiskFull`, `Io`.
    pub fn create(storage: Arc<dyn Storage>, cfg: StoreConfig) -> Result<Store> {
        let store = Store::begin_creation(storage, cfg)?;
        let map = store.dump_map(Lsn::ZERO, &|_, _| None)?;
        store.write_checkpoint(&Checkpoint {
            redo_start: Lsn::ZERO,
            map,
            state: Vec::new(),
        })?;
        store.end_creation()?;
        Ok(store)
    }

    /// The first half of [`Store::create`]: ready for use, but not there for the next program
    /// that looks before [`Store::end_creation`]. In between the caller writes its own first
    /// checkpoint, and no pages.
    ///
    /// # Errors
    /// Those of [`Store::create`].
    pub fn begin_creation(storage: Arc<dyn Storage>, cfg: StoreConfig) -> Result<Store> {
        let Some(geometry) = Geometry::checked(cfg.segment_bytes, cfg.file_bytes) else {
            return Err(Error::BadConfig(format!(
                "store: segments of {} bytes in files of {} bytes",
                cfg.segment_bytes, cfg.file_bytes
            )));
        };
        creation::begin(&*storage)?;
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&random::next_u64().to_le_bytes());
        uuid[8..].copy_from_slice(&random::next_u64().to_le_bytes());
        let superblock = Superblock {
            uuid,
            geometry,
            created_us: time::unix_us(),
            features: FEATURES_OF_NEW,
            key_check: 0,
        }
        .in_storage(&*storage);
        let (files, left) = Files::open(&storage, geometry, cfg.direct, OpenMode::ReadWrite)?;
        assert!(left == 0, "{left} granules of an earlier creation are left");
        let end = geometry.step_granules();
        files.grow(0, end)?;
        let slots = Slots {
            storage: storage.clone(),
            sequence: 0,
            slot: 1,
            map_slot: 1,
            map_named: 0,
            redo_start: Lsn::ZERO,
            map_lsn: Lsn::ZERO,
            map_crc: 0,
            map_sequence: 0,
            map_bytes: 0,
            checkpoint_bytes: [None; 2],
        };
        let store = Store::assemble(superblock, files, end, slots);
        store.directory.set_extent_owner(0, DICTIONARY);
        store.finish_recovery()?;
        Ok(store)
    }

    /// The superblock is written: from here on there is a database.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: the next attempt removes what is there.
    pub fn end_creation(&self) -> Result<()> {
        let (storage, checkpoints) = {
            let slots = self.slots.lock();
            (slots.storage.clone(), slots.sequence)
        };
        assert!(checkpoints > 0, "a database without a checkpoint");
        self.superblock.write(&*storage)?;
        kill_point!("store.superblock_written");
        self.creation_is_over()
    }

    /// The mark of a creation goes. After this a directory without a superblock is a database
    /// that lost it: called before anything is acknowledged, at each start.
    ///
    /// # Errors
    /// `Io`.
    pub fn creation_is_over(&self) -> Result<()> {
        let storage = self.slots.lock().storage.clone();
        creation::end(&*storage)
    }

    /// What is wrong with the two checkpoint files, each named; empty when both are whole.
    pub fn checkpoint_damage(storage: &dyn Storage) -> Vec<String> {
        match Superblock::read(storage) {
            Ok(superblock) => checkpoint::useless_slots(storage, &superblock.uuid),
            Err(_) => Vec::new(),
        }
    }

    /// Opens the store as of its newest checkpoint, or as of the one before when the newest
    /// one's map is not whole ([`Store::passed_over`]). Nothing is written.
    ///
    /// # Errors
    /// `NotFound` when there is no database; `Format` when this program cannot read it;
    /// `Corrupt` naming the file, also when the superblock is missing and other files are there.
    pub fn open(storage: Arc<dyn Storage>, cfg: StoreConfig) -> Result<(Store, Checkpoint)> {
        let mode = OpenMode::ReadWrite;
        let files = |storage: &_, geometry| Files::open(storage, geometry, cfg.direct, mode);
        Store::open_over(storage, files)
    }

    /// As [`Store::open`], for tools that only read: files of pages may be missing or too short. Also which are.
    ///
    /// # Errors
    /// Those of [`Store::open`] about all else.
    pub fn open_damaged(storage: Arc<dyn Storage>) -> Result<(Store, Checkpoint, Faults)> {
        let mut damage = Faults::default();
        let files = |storage: &_, geometry| damaged::open(storage, geometry, &mut damage);
        let (store, checkpoint) = Store::open_over(storage, files)?;
        Ok((store, checkpoint, damage))
    }

    /// `open_files` opens the files of pages, and says how many granules they have.
    fn open_over(
        storage: Arc<dyn Storage>,
        open_files: impl FnOnce(&Arc<dyn Storage>, Geometry) -> Result<(Files, u64)>,
    ) -> Result<(Store, Checkpoint)> {
        let superblock = creation::superblock_of(&*storage)?;
        let found = checkpoint::valid(&*storage, &superblock.uuid)?;
        let (found, directory, passed_over) = first_with_map(&*storage, found, superblock.uuid)?;
        let (files, end) = open_files(&storage, superblock.geometry)?;
        let slots = Slots {
            storage: storage.clone(),
            sequence: found.sequence,
            slot: found.slot,
            map_slot: found.checkpoint.map.slot,
            map_named: found.checkpoint.map.sequence,
            redo_start: found.checkpoint.redo_start,
            map_lsn: found.checkpoint.map.lsn,
            map_crc: found.checkpoint.map.crc,
            map_sequence: found.checkpoint.map.sequence,
            map_bytes: found.checkpoint.map.bytes,
            checkpoint_bytes: [None; 2],
        };
        let mut store = Store::assemble(superblock, files, end, slots);
        store.directory = directory;
        store.passed_over = passed_over;
        Ok((store, found.checkpoint))
    }

    /// The newest checkpoint, if the store was opened from the one before it.
    pub fn passed_over(&self) -> Option<&PassedOver> {
        self.passed_over.as_ref()
    }

    /// What there is to read of a database that nobody has open, for tools: the superblock
    /// and what the checkpoint files say. Nothing is written.
    ///
    /// # Errors
    /// Those of [`Store::open`] about the superblock.
    pub fn survey(storage: &dyn Storage) -> Result<Survey> {
        let superblock = creation::superblock_of(storage)?;
        let mut damage = superblock::damaged_copies(storage);
        damage.extend(checkpoint::damaged_slots(storage, &superblock.uuid));
        let (checkpoint, why) = match checkpoint::valid(storage, &superblock.uuid) {
            Ok(found) => (found.into_iter().next().map(|f| f.checkpoint), None),
            Err(e) => (None, Some(e)),
        };
        Ok(Survey {
            uuid: superblock.uuid,
            created_us: superblock.created_us,
            checkpoint,
            no_checkpoint: why,
            damage,
        })
    }

    /// The store as its blobs tell ([`crate::rebuild_by_scan`]), without map and checkpoint:
    /// for tools that only read. Pages of an extent belong to the index of its newest page. What is wrong with the files
    /// the scan has told.
    ///
    /// # Errors
    /// Those of [`Store::open`] about the superblock, and of the directory.
    pub fn open_by_scan(storage: Arc<dyn Storage>, scan: &ScanResult) -> Result<Store> {
        let superblock = Superblock::read(&*storage)?;
        let (files, end) = damaged::open(&storage, superblock.geometry, &mut Faults::default())?;
        let slots = Slots {
            storage,
            sequence: 0,
            slot: 0,
            map_slot: 0,
            map_named: 0,
            redo_start: Lsn::ZERO,
            map_lsn: Lsn::ZERO,
            map_crc: 0,
            map_sequence: 0,
            map_bytes: 0,
            checkpoint_bytes: [None; 2],
        };
        let store = Store::assemble(superblock, files, end, slots);
        let mut newest: BTreeMap<u32, (Lsn, IndexId)> = BTreeMap::new();
        for (page, found) in &scan.pages {
            store.directory.set_location(*page, found.location);
            if !found.delta.is_none() {
                store.directory.set_location(*page, found.delta);
            }
            let owner = newest.entry(page.0 / EXTENT_PAGES);
            let owner = owner.or_insert((found.lsn, found.index));
            if owner.0 <= found.lsn {
                *owner = (found.lsn, found.index);
            }
        }
        for (extent, (_, index)) in newest {
            store.directory.set_extent_owner(extent, index);
        }
        Ok(store)
    }

    /// Recovery: the page lives there, without a delta, or has that delta; [`Location::NONE`]: it is
    /// no more.
    pub fn set_location(&self, page: PageId, at: Location) {
        self.directory.set_location(page, at);
        // It was written in a life that had no second tier.
        if let Some(tier) = self.tier.get() {
            tier.forget(page);
        }
    }

    /// Recovery: makes the page's directory word exist.
    pub fn reach(&self, page: PageId) {
        self.directory.make_word(page);
    }

    /// Recovery: the page, if it is nowhere, exists from here on: it gets its whole content from the log, later.
    pub fn await_log(&self, page: PageId) {
        let word = self.directory.make_word(page);
        let (free, later) = (Word::FREE.0, Word::on_disk(Location::FROM_LOG).0);
        // Otherwise it is on disk, and its blob is of no use, or in memory.
        let _ = word.compare_exchange(free, later, Ordering::AcqRel, Ordering::Acquire);
        debug_assert!(!self.directory.get(page).is_free(), "{page} is unused");
    }

    /// Recovery is complete: collects unused page ids from words that are 0 (and does
    /// [`Store::free_space_known`] if that was not done). From here on ids may be handed out.
    ///
    /// # Errors
    /// Those of [`Store::free_space_known`].
    pub fn finish_recovery(&self) -> Result<()> {
        self.free_space_known()?;
        self.page_ids_known();
        Ok(())
    }

    /// As [`Store::finish_recovery`], for tools that only read: what is wrong with the map, which costs the pages that it
    /// is wrong for, and no others.
    pub fn finish_damaged(&self) -> Faults {
        let faults = self.mark_all();
        self.page_ids_known();
        debug_assert_eq!(self.phase.load(Ordering::Acquire), OPEN);
        faults
    }

    fn page_ids_known(&self) {
        if self.phase.load(Ordering::Acquire) == OPEN {
            return;
        }
        *self.extents_replay.lock() = Replay::default();
        self.extents.rebuild(&self.directory);
        let before = self.phase.swap(OPEN, Ordering::AcqRel);
        assert!(before == WRITABLE, "recovery is finished from {before}");
    }

    /// Writes where every page lives to the alternate map file, synced. `home_of` answers
    /// for resident pages: where the page in that frame is on disk ([`Location::NONE`]:
    /// nowhere yet); None when the frame holds another page by now (the word is read again).
    ///
    /// The dump is fuzzy. The caller vouches that every change of the map logged before
    /// `base_lsn` is in the words and homes by now, and that nothing shows in them before it
    /// is logged. Before the base goes into a checkpoint, the log must be durable up to its
    /// position at the end of this call: the dump may show everything logged until then.
    ///
    /// # Errors
    /// `DiskFull` or `Io`: the map of the last checkpoint is untouched.
    pub fn dump_map(
        &self,
        base_lsn: Lsn,
        home_of: &dyn Fn(PageId, u32) -> Option<Location>,
    ) -> Result<MapBase> {
        let mut slots = self.slots.lock();
        assert!(
            slots.map_sequence >= slots.map_named,
            "{}",
            slots.map_sequence
        );
        slots.map_sequence += 1;
        let mark = Mark {
            slot: 1 - slots.map_slot,
            sequence: slots.map_sequence,
            lsn: base_lsn,
            uuid: self.superblock.uuid,
        };
        assert!(
            mark.slot < 2,
            "map.{}: and map.{} counts",
            mark.slot,
            slots.map_slot
        );
        let base = map::dump(&*slots.storage, &self.directory, mark, home_of)?;
        slots.map_bytes = base.bytes;
        Ok(base)
    }

    /// Writes a checkpoint to the alternate slot, durable when this returns. `c.map` is the
    /// newest dump or the last checkpoint's.
    ///
    /// # Errors
    /// `DiskFull` or `Io`: the last checkpoint still counts. `Bug` when the map base cannot
    /// be on disk any more.
    pub fn write_checkpoint(&self, c: &Checkpoint) -> Result<()> {
        let mut slots = self.slots.lock();
        let on_disk = if c.map.slot == slots.map_slot {
            slots.map_named
        } else {
            slots.map_sequence
        };
        if c.map.sequence != on_disk {
            return Err(Error::Bug(format!(
                "checkpoint names map dump {}, map.{} holds {on_disk}",
                c.map.sequence, c.map.slot
            )));
        }
        let (slot, sequence) = (1 - slots.slot, slots.sequence + 1);
        assert!(
            slot < 2,
            "checkpoint.{slot}: and checkpoint.{} counts",
            slots.slot
        );
        assert!(
            c.redo_start >= slots.redo_start && c.map.lsn >= slots.map_lsn,
            "a checkpoint at {:?}, map at {:?}, after {:?} and {:?}",
            c.redo_start,
            c.map.lsn,
            slots.redo_start,
            slots.map_lsn
        );
        let bytes = checkpoint::encode(c, sequence, &self.superblock.uuid);
        // After a failure nobody knows what the slot holds.
        let before = slots.checkpoint_bytes[usize::from(slot)].take();
        checkpoint::write(&*slots.storage, slot, &bytes, before)?;
        slots.checkpoint_bytes[usize::from(slot)] = Some(bytes.len() as u64);
        slots.slot = slot;
        slots.sequence = sequence;
        slots.map_slot = c.map.slot;
        slots.map_named = c.map.sequence;
        slots.redo_start = c.redo_start;
        slots.map_lsn = c.map.lsn;
        slots.map_crc = c.map.crc;
        slots.keep_space();
        Ok(())
    }
}
