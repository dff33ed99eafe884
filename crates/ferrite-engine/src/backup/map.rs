//! The map at a backup's point in time: the checkpoint's dump, and what the log says after it.
//!
//! Invariant: the same as what recovery makes of the same checkpoint and log
//! (`startup/recovery.rs`); `tests/backup.rs` compares the two. Locking: none.

use crate::log_records::undo;
use ferrite_io::Storage;
use ferrite_store::{Checkpoint, Location, Store, StoreConfig};
use ferrite_sync::Arc;
use ferrite_tree::op::Ops;
use ferrite_types::format::record_kind;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result};

/// See the head of the file.
pub(crate) struct MapAt {
    store: Store,
    pub checkpoint: Checkpoint,
}

impl MapAt {
    /// The map of the checkpoint whose files are in `from`, a directory without store files.
    ///
    /// # Errors
    /// `Corrupt`, `Format`, `Io`.
    pub(crate) fn of_checkpoint(from: Arc<dyn Storage>) -> Result<MapAt> {
        let (store, checkpoint) = Store::open(from, StoreConfig::default())?;
        assert!(store.file_bytes() == 0, "store files beside a backup's map");
        Ok(MapAt { store, checkpoint })
    }

    /// The database's identity.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.store.uuid()
    }

    /// Takes one record in, in the order of the log.
    ///
    /// # Errors
    /// `Corrupt`: not a record of this log.
    pub(crate) fn visit(&self, start: Lsn, kind: u8, body: &[u8]) -> Result<()> {
        if start < self.checkpoint.map.lsn {
            return Ok(());
        }
        let store = &self.store;
        match kind {
            record_kind::MINI_TXN => {
                let (_, ops) = undo::open_body(body)?;
                for op in Ops::new(ops) {
                    let op = op?;
                    if op.frees() {
                        store.set_location(op.page, Location::NONE);
                    }
                }
                Ok(())
            }
            record_kind::MAP_DELTA => {
                Store::decode_map_delta(body, &mut |page, at| store.set_location(page, at))
            }
            record_kind::EXTENT => store.apply_extent(body),
            record_kind::INDEX_DROP => {
                let index: [u8; 4] = body
                    .try_into()
                    .map_err(|_| Error::Corrupt("log: an index drop of another length".into()))?;
                let index = IndexId(u32::from_le_bytes(index));
                debug_assert!(body.len() == 4, "{} bytes", body.len());
                store.release_index(index);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Every blob there is, and where; by page id, and a page's delta behind its blob.
    ///
    /// # Errors
    /// `Corrupt`: the map contradicts itself.
    pub(crate) fn pages(&self) -> Result<Vec<(PageId, Location)>> {
        let mut pages = Vec::new();
        self.store.each_stored(&mut |page, at| {
            pages.push((page, at));
            Ok(())
        })?;
        let key = |(page, at): &(PageId, Location)| (*page, at.is_delta());
        debug_assert!(
            pages.windows(2).all(|p| key(&p[0]) < key(&p[1])),
            "by page id"
        );
        Ok(pages)
    }
}
