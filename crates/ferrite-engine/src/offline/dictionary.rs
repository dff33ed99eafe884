//! The dictionary, as far as it can be read.
//!
//! Invariant: a page or a definition that cannot be read costs its tables, and no others; a
//! definition that names impossible indexes is a fault, never followed.

use super::Offline;
use crate::catalog::dictionary::DICTIONARY;
use crate::catalog::foreign::{split_chunk_key, ForeignKey};
use crate::catalog::spec::{split_key, TableSpec};
use ferrite_tree::node;
use ferrite_types::{PageId, TableId, PAGE_BYTES};
use std::collections::BTreeMap;

/// A table found in the dictionary.
#[derive(Clone, Debug)]
pub struct StoredTable {
    /// Its definition; of the plugin's bytes only the beginning if the rest could not be put together, which
    /// is a fault.
    pub spec: TableSpec,
    /// Its foreign keys, as far as they can be read.
    pub foreign_keys: Vec<ForeignKey>,
}

impl Offline {
    /// All tables that can be read, by id; faults go to `fault`. Temporary tables are left
    /// out: they do not outlive the server.
    pub fn tables(&self, fault: &mut dyn FnMut(String)) -> Vec<StoredTable> {
        let mut specs: BTreeMap<TableId, TableSpec> = BTreeMap::new();
        let mut parts: BTreeMap<(TableId, u8), Vec<u8>> = BTreeMap::new();
        let mut chunks: BTreeMap<(TableId, u8, u16), Vec<u8>> = BTreeMap::new();
        let mut page = vec![0; PAGE_BYTES];
        for id in self.dictionary_leaves(fault) {
            if let Err(e) = self.node(DICTIONARY, id, &mut page) {
                fault(format!("dictionary: {e}"));
                continue;
            }
            for slot in 0..node::count(&page) {
                let mut key = Vec::new();
                node::key_into(&page, slot, &mut key);
                let rec = node::record(&page, slot);
                if let Some(place) = split_chunk_key(&key) {
                    chunks.insert(place, rec.value.to_vec());
                    continue;
                }
                let Some((table, part)) = split_key(&key) else {
                    fault("dictionary: a key has the wrong length".into());
                    continue;
                };
                if part != 0 {
                    parts.insert((table, part), rec.value.to_vec());
                    continue;
                }
                match TableSpec::decode(table, rec.value) {
                    Ok(spec) => drop(specs.insert(table, spec)),
                    Err(e) => fault(e.to_string()),
                }
            }
        }
        let whole = |mut spec: TableSpec| {
            let id = spec.id;
            if !spec.complete(|part| parts.get(&(id, part)).cloned()) {
                fault(format!(
                    "dictionary: parts of the definition of table {} are missing or damaged",
                    spec.name
                ));
            }
            let chunk = |generation, n| chunks.get(&(id, generation, n)).cloned();
            let foreign_keys = spec
                .foreign
                .map_or(Some(Vec::new()), |place| place.read(chunk));
            if foreign_keys.is_none() {
                fault(format!(
                    "foreign keys of table {} are unreadable",
                    spec.name
                ));
            }
            StoredTable {
                foreign_keys: foreign_keys.unwrap_or_default(),
                spec,
            }
        };
        let kept = specs.into_values().filter(|s| !s.temporary);
        kept.map(whole).collect()
    }

    /// Leaves of the dictionary: by its tree, and where that is damaged all that are there.
    fn dictionary_leaves(&self, fault: &mut dyn FnMut(String)) -> Vec<PageId> {
        let mut leaves = Vec::new();
        let faults = self.walk(DICTIONARY, PageId(1), &mut |page, _| leaves.push(page));
        if faults.is_empty() {
            return leaves;
        }
        for text in faults.texts() {
            fault(format!("dictionary: {text}"));
        }
        if faults.unnamed() > 0 {
            fault(format!("dictionary: {} more faults", faults.unnamed()));
        }
        let mut page = vec![0; PAGE_BYTES];
        let leaf =
            |id: &PageId| self.node(DICTIONARY, *id, &mut page).is_ok() && node::level(&page) == 0;
        self.pages_of(DICTIONARY).into_iter().filter(leaf).collect()
    }
}
