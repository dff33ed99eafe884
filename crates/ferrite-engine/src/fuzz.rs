//! The decoders of what lies on disk, for fuzz targets: bytes in, nothing out but a panic.

use crate::catalog::foreign::{self, Action, ForeignKey};
use crate::log_records::undo::{self, Opening, Prior, Undo};
use crate::log_records::xid::{encode_xid, Xid};
use crate::maintenance::checkpoint::{ActiveTxn, EngineState};
use crate::startup::recovery::Analysis;
use crate::state::undo_area::{Chunk, UndoArea};
use crate::state::undo_list::UndoList;
use ferrite_io::sim::SimStorage;
use ferrite_redo::LogRecord;
use ferrite_store::{MapBase, Store};
use ferrite_sync::Arc;
use ferrite_types::{Csn, IndexId, Lsn, OverflowRef, PageId, TxnId, UndoPosition};

/// An undo entry, a mini-transaction's opening, a list of entries.
pub fn undo(bytes: &[u8]) {
    let _ = undo::decode(bytes);
    let area = UndoArea::read_only(Arc::new(SimStorage::new(1)));
    let list = UndoList::from_parts(Vec::new(), bytes.to_vec());
    let mut entries = list.backwards();
    while let Ok(Some(entry)) = entries.prev(&area) {
        let _ = undo::decode(&entry);
    }
    if let Ok((Opening::Change { entry, .. }, _)) = undo::open_body(bytes) {
        if let Ok(Undo::Update { prior, .. }) = undo::decode(entry) {
            let mut value = Vec::new();
            let _ = prior.value(bytes, &mut value);
        }
    }
}

/// Foreign keys of a table.
pub fn foreign_keys(bytes: &[u8]) {
    let _ = foreign::decode(bytes);
}

/// Two foreign keys, one with two columns.
pub fn foreign_keys_sample() -> Vec<u8> {
    let pair = |name: &str| (name.to_string(), name.to_string());
    let key = |columns: Vec<(String, String)>| ForeignKey {
        name: "t_ibfk_1".into(),
        parent: "db/parent".into(),
        columns,
        on_delete: Action::Cascade,
        on_update: Action::SetNull,
        stamp: 7,
    };
    let keys = [key(vec![pair("a")]), key(vec![pair("b"), pair("c")])];
    foreign::encode(&keys).unwrap_or_default()
}

/// Mini-transactions as they are written.
pub fn undo_samples() -> Vec<Vec<u8>> {
    let key = b"a key of the index";
    let prior = Prior {
        deleted: false,
        txn: TxnId(77),
        keep_head: 3,
        keep_tail: 2,
        mid: b"what was between",
    };
    let (index, page) = (IndexId(17), PageId(99));
    let all = [
        Undo::Insert { index, key },
        Undo::Update { index, key, prior },
        Undo::Overflow { index, page },
        Undo::Put { index, key },
        Undo::Mark { index, key },
    ];
    let mut samples = vec![undo::NO_UNDO.to_vec()];
    for entry in &all {
        let (mut bytes, mut body) = (Vec::new(), Vec::new());
        undo::encode(entry, &mut bytes);
        undo::encode_undo_header(TxnId(5), &bytes, &mut body);
        let mut list = UndoList::default();
        list.push(&bytes);
        samples.extend([bytes, body, list.parts().1.to_vec()]);
    }
    let mut body = Vec::new();
    undo::encode_undone_header(TxnId(5), UndoPosition(100), &mut body);
    samples.push(body);
    samples
}

/// The engine's part of a checkpoint.
pub fn state(bytes: &[u8]) {
    let _ = EngineState::decode(bytes);
}

fn xid() -> Xid {
    Xid {
        format_id: 1,
        gtrid_len: 4,
        data: b"gtridbqual".to_vec(),
    }
}

/// A state as it is written.
pub fn state_sample() -> Vec<u8> {
    let active = |n: u64| ActiveTxn {
        txn: TxnId(n),
        exact_at: Lsn(n * 8),
        xid: (n == 2).then(xid),
        garbage: vec![(IndexId(3), OverflowRef::from_bytes([7; 16]))],
        chunks: vec![Chunk { slot: 3, crc: 4 }],
        tail: undo_samples().concat(),
    };
    let mut state = EngineState {
        next_txn: TxnId(9),
        next_csn: Csn(8),
        active: (1..4).map(active).collect(),
        overflow: vec![(IndexId(17), OverflowRef::from_bytes([5; 16]))],
        ..EngineState::default()
    };
    let carried = crate::catalog::dictionary::Carried {
        auto_increment: 7,
        rows: 8,
    };
    state.carried.insert(ferrite_types::TableId(3), carried);
    state.next_ids.table = 4;
    state.encode()
}

/// The body of a PREPARE record.
pub fn prepare_sample() -> Vec<u8> {
    let mut body = vec![9, 0, 0, 0, 0, 0];
    encode_xid(&xid(), &mut body);
    crate::log_records::values::encode_values(
        &[(IndexId(3), OverflowRef::from_bytes([7; 16]))],
        &mut body,
    );
    body
}

/// A record of the log as recovery's first pass takes it; `store` has no map yet.
pub fn log_record(store: &Store, kind: u8, body: &[u8]) {
    let map = MapBase {
        slot: 0,
        lsn: Lsn::ZERO,
        sequence: 0,
        bytes: 0,
        crc: 0,
    };
    let mut analysis = Analysis::new(map, EngineState::default());
    let record = LogRecord {
        start: Lsn(8),
        end: Lsn(16),
        kind,
        body,
    };
    let area = UndoArea::read_only(Arc::new(SimStorage::new(1)));
    let _ = analysis.visit(store, &area, &record);
    let _ = analysis.pending_overflow();
}
