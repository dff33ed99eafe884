//! One target for each format.

use crate::Target;
use ferrite_engine::{overflow_references, IndexSpec, TableSpec};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_redo::{Log, LogConfig};
use ferrite_store::{ScanResult, Store, StoreConfig};
use ferrite_sync::Arc;
use ferrite_tools::describe::Description;
use ferrite_tools::{row, text};
use ferrite_tree::op::{self, Ops};
use ferrite_tree::record::{self, Header};
use ferrite_tree::{apply, node};
use ferrite_types::format::record_kind;
use ferrite_types::{ByteReader, IndexId, Lsn, PageId, TableId, TxnId, VersionAddr, PAGE_BYTES};

fn target(name: &'static str, corpus: Vec<Vec<u8>>, run: impl FnMut(&[u8]) + 'static) -> Target {
    Target {
        name,
        corpus,
        run: Box::new(run),
    }
}

/// All targets.
pub fn all() -> Vec<Target> {
    use ferrite_engine::fuzz as engine;
    use ferrite_store::fuzz as store;
    let blobs = (0..3).map(store::blob_sample).collect();
    let chunks = [1u8, 2, 3].map(map_chunk).to_vec();
    let state = vec![engine::state_sample(), Vec::new()];
    vec![
        target(
            "superblock",
            vec![vec![0; 100], vec![1; 4096]],
            store::superblock,
        ),
        target(
            "checkpoint",
            vec![store::checkpoint_sample()],
            store::checkpoint_file,
        ),
        target("state", state, engine::state),
        target("map", chunks, store::map_chunk),
        target("blob", blobs, store::blob),
        log(),
        records(),
        target("undo", engine::undo_samples(), engine::undo),
        pages(),
        page_operations(),
        target("record", vec![a_record(), Vec::new()], one_record),
        target("dictionary", dictionary(), |b| {
            drop(TableSpec::decode(TableId(9), b))
        }),
        target(
            "foreign-keys",
            vec![engine::foreign_keys_sample()],
            engine::foreign_keys,
        ),
        target("references", vec![vec![2; 40], vec![0]], |b| {
            drop(overflow_references(b).collect::<Vec<_>>());
        }),
        target("description", vec![described()], |b| {
            drop(Description::decode(b))
        }),
        rows(),
        target("reader", vec![vec![1; 40], vec![0; 40]], reader),
    ]
}

fn map_chunk(kind: u8) -> Vec<u8> {
    let width = [0, 4, 8, 0][usize::from(kind)];
    let mut b = vec![0; 64 + 100 * width];
    b[8] = 1;
    b[9] = kind;
    b[36] = if width == 0 { 0 } else { 100 };
    for (i, byte) in b[64..].iter_mut().enumerate() {
        *byte = [3, 0, 0, 0, 0, 4, 0, 0][i % 8];
    }
    b
}

/// Sectors of a log, their checksums right.
fn log() -> Target {
    let disk = SimStorage::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let cfg = LogConfig {
        ring_bytes: 1 << 16,
        segment_bytes: 1 << 16,
        direct: false,
    };
    let whole = match Log::create(storage.clone(), Lsn::ZERO, cfg) {
        Ok(log) => {
            for n in 0..40 {
                log.append(1 + n % 9, &[&vec![n; usize::from(n) * 30]]);
            }
            log.flush_to(log.current_lsn());
            disk.contents("redo.00000000").unwrap_or_default()
        }
        Err(_) => Vec::new(),
    };
    for name in disk.list().unwrap_or_default() {
        if name != "redo.00000000" {
            let _ = disk.remove(&name);
        }
    }
    let corpus = vec![whole[..20 * 512].to_vec(), whole[..3 * 512].to_vec()];
    target("log", corpus, move |bytes| {
        let mut sectors = bytes.to_vec();
        sectors.resize(40 * 512, 0);
        for seal in [false, true] {
            if seal {
                ferrite_redo::reseal_for_fuzz(&mut sectors);
            }
            let _ = disk.overwrite("redo.00000000", 0, &sectors);
            let mut bytes = 0;
            let _ = Log::read(storage.clone(), Lsn::ZERO, &mut |rec| {
                bytes += rec.body.len();
                Ok(())
            });
        }
    })
}

/// Bodies of log records, as recovery's first pass takes them: the first byte is the kind.
fn records() -> Target {
    use ferrite_engine::fuzz as engine;
    let disk: Arc<dyn Storage> = Arc::new(SimStorage::new(1));
    let _ = Store::create(disk.clone(), StoreConfig::default());
    let with_kind = |kind: u8, body: &[u8]| [&[kind], body].concat();
    let mut corpus: Vec<Vec<u8>> = engine::undo_samples()
        .iter()
        .map(|body| {
            with_kind(
                record_kind::MINI_TXN,
                &[body.as_slice(), &operations()].concat(),
            )
        })
        .collect();
    let mut delta = Vec::new();
    let at = ferrite_store::Location::new(5, 1, ferrite_types::format::Codec::None);
    Store::encode_map_delta(&[(PageId(70), at), (PageId(71), at)], &mut delta);
    corpus.push(with_kind(record_kind::MAP_DELTA, &delta));
    let mut lsns = Vec::new();
    Store::encode_page_lsns(&[(PageId(70), Lsn(1)), (PageId(71), Lsn(8))], &mut lsns);
    corpus.push(with_kind(record_kind::PAGE_LSNS, &lsns));
    let commit = [&[1, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[7; 20][..]].concat();
    corpus.push(with_kind(record_kind::COMMIT, &commit));
    corpus.push(with_kind(record_kind::GARBAGE, &commit));
    corpus.push(with_kind(record_kind::PREPARE, &engine::prepare_sample()));
    corpus.push(with_kind(
        record_kind::EXTENT,
        &[1, 1, 17, 0, 0, 0, 1, 0, 0, 0],
    ));
    corpus.push(with_kind(record_kind::INDEX_DROP, &[17, 0, 0, 0]));
    corpus.push(with_kind(record_kind::AUTO_INCREMENT, &[1; 17]));
    let mut store = None;
    target("log_record", corpus, move |bytes| {
        // Owners of far page ids take memory, and time at every drop: a new store then.
        let far = |s: &Store| s.directory().end() > 1 << 20;
        if store.as_ref().is_none_or(far) {
            store = Store::open_by_scan(disk.clone(), &ScanResult::default()).ok();
        }
        if let (Some(store), Some((kind, body))) = (&store, bytes.split_first()) {
            ferrite_store::fuzz::log_bodies(body);
            engine::log_record(store, *kind, body);
        }
    })
}

// ---- pages ---------------------------------------------------------------------------------

const INDEX: IndexId = IndexId(3);
const PAGE: PageId = PageId(4);

fn a_record() -> Vec<u8> {
    let mut rec = Vec::new();
    let header = Header {
        deleted: true,
        txn: TxnId(77),
        version: VersionAddr(1234),
    };
    record::encode(&header, b"key", b"value", &mut rec);
    rec
}

fn leaf() -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    node::init(&mut page, INDEX, 0, b"key 010", Some(b"key 900"), PageId(9));
    let prefix = node::prefix(&page).len();
    for n in 0..60u32 {
        let (mut rec, key) = (Vec::new(), format!("key {:03}", 10 + n));
        let header = Header {
            txn: TxnId(u64::from(n % 3)),
            ..Header::default()
        };
        record::encode(&header, &key.as_bytes()[prefix..], &[7; 50], &mut rec);
        node::insert(&mut page, n as usize, &rec);
    }
    node::remove(&mut page, 20);
    page
}

fn inner() -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    node::init(&mut page, INDEX, 1, b"", None, PageId::NONE);
    for n in 0..50u32 {
        let (mut rec, key) = (
            Vec::new(),
            if n == 0 {
                String::new()
            } else {
                format!("k{n:03}")
            },
        );
        record::encode(
            &Header::default(),
            key.as_bytes(),
            &n.to_le_bytes(),
            &mut rec,
        );
        node::insert(&mut page, n as usize, &rec);
    }
    page
}

/// The used parts of a page: few mutations would hit them in its empty middle.
fn packed(page: &[u8]) -> Vec<u8> {
    let head = usize::from(u16::from_le_bytes([page[6], page[7]]));
    let tail = usize::from(u16::from_le_bytes([page[8], page[9]]));
    [&page[..head], &page[tail..]].concat()
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    let bytes = &bytes[..bytes.len().min(PAGE_BYTES)];
    let Some(field) = bytes.get(6..8) else {
        return page;
    };
    let head = usize::from(u16::from_le_bytes([field[0], field[1]])).min(bytes.len());
    page[..head].copy_from_slice(&bytes[..head]);
    let tail = PAGE_BYTES - (bytes.len() - head);
    page[tail..].copy_from_slice(&bytes[head..]);
    page
}

fn pages() -> Target {
    target("page", vec![packed(&leaf()), packed(&inner())], |bytes| {
        let page = unpacked(bytes);
        if node::validate(&page, PAGE).is_ok() {
            use_page(&page);
        }
    })
}

/// What the tree does with a page that was found good.
fn use_page(page: &[u8]) {
    let n = node::count(page);
    let mut key = Vec::new();
    for slot in 0..n {
        key.clear();
        node::key_into(page, slot, &mut key);
        assert_eq!(
            node::find(page, &key),
            Ok(slot),
            "a good page finds its keys"
        );
        let _ = node::record(page, slot);
        if node::level(page) > 0 {
            let _ = node::child(page, slot);
        }
    }
    let _ = (node::find(page, b"key 5"), node::child_slot(page, b"key 5"));
    let _ = (
        node::covers(page, b"x"),
        node::free_bytes(page),
        node::used_bytes(page),
    );
    let mut copy = page.to_vec();
    node::compact(&mut copy);
    while node::count(&copy) > 0 {
        node::remove(&mut copy, 0);
    }
    let mut half = vec![0; PAGE_BYTES];
    if node::part_fits(page, 0, n / 2, node::low(page), node::high(page)) {
        node::copy_part(
            page,
            0,
            n / 2,
            node::low(page),
            node::high(page),
            PAGE,
            &mut half,
        );
    }
}

/// Operations of every kind on the sample leaf.
fn operations() -> Vec<u8> {
    let page = leaf();
    let mut new = Vec::new();
    let suffix = node::suffix(&page, 5).to_vec();
    record::encode(&Header::default(), &suffix, b"another value", &mut new);
    let mut ops = Vec::new();
    op::replace(PAGE, INDEX, 5, &new, (suffix.len(), 0), &mut ops);
    op::insert(PAGE, INDEX, 3, &a_record(), &mut ops);
    op::remove(PAGE, INDEX, 0, &mut ops);
    op::gc(
        PAGE,
        INDEX,
        &[(1, op::GC_FREEZE), (3, op::GC_REMOVE)],
        &mut ops,
    );
    op::set_right(PAGE, INDEX, PageId(8), &mut ops);
    op::truncate(PAGE, INDEX, 10, PageId(8), b"key 020", &mut ops);
    op::free(PAGE, INDEX, &mut ops);
    ops
}

fn page_operations() -> Target {
    let mut with_image = operations();
    op::image(PAGE, &leaf(), &mut with_image);
    with_image.extend_from_slice(&operations());
    let (page, corpus) = (leaf(), vec![operations(), with_image, Vec::new()]);
    target("operations", corpus, move |bytes| {
        let mut page = page.clone();
        for op in Ops::new(bytes).flatten() {
            if apply::apply(&op, &mut page).is_err() {
                break;
            }
        }
    })
}

fn one_record(bytes: &[u8]) {
    if let Some(len) = record::length(bytes) {
        let rec = record::decode(bytes);
        let _ = (record::suffix_of(bytes), rec.header.len());
        assert!(len <= bytes.len());
    }
}

// ---- dictionary and rows -------------------------------------------------------------------

fn dictionary() -> Vec<Vec<u8>> {
    let index = |n: u32| IndexSpec {
        name: format!("index {n}"),
        unique: n == 1,
        key_parts: n,
        id: IndexId(20 + n),
        root: PageId(70 + n),
    };
    let spec = |length: usize| TableSpec {
        id: TableId(9),
        hidden_row_id: true,
        packing: ferrite_types::format::Packing::of(ferrite_types::format::Codec::Lz4),
        created_unix_s: 77,
        definition: vec![5; length],
        ..TableSpec::new("db/table", (1..4).map(index).collect())
    };
    [20, 3000].map(|length| spec(length).encode()).to_vec()
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Kind, flags, server's type, decimals, primary key part, bytes, precision, SQL type.
type Sample = (u8, u8, u8, u8, u16, u32, u32, &'static str);

/// A definition with one column of every kind of type and a primary key of two parts.
fn described() -> Vec<u8> {
    let columns: [Sample; 15] = [
        (0, 0, 3, 0, 0, 4, 0, "int(11)"),
        (2, 0, 15, 0, 1, 40, 0, "varbinary(40)"),
        (0, 3, 1, 0, 0xffff, 1, 0, "tinyint(4)"),
        (0, 3, 8, 0, 0xffff, 8, 0, "bigint(20)"),
        (0, 3, 5, 31, 0xffff, 8, 0, "double"),
        (0, 3, 246, 4, 0xffff, 5, 10, "decimal(10,4)"),
        (0, 3, 19, 2, 0xffff, 4, 0, "time(2)"),
        (0, 3, 18, 6, 0xffff, 8, 0, "datetime(6)"),
        (0, 3, 17, 3, 0xffff, 6, 0, "timestamp(3)"),
        (0, 3, 14, 0, 0xffff, 3, 0, "date"),
        (0, 3, 254, 0, 0xffff, 16, 0, "uuid"),
        (0, 67, 141, 0, 0xffff, 30, 0, "varchar(28) compressed"),
        (1, 3, 254, 0, 0xffff, 10, 0, "char(10)"),
        (2, 1, 15, 0, 0xffff, 300, 0, "varchar(300)"),
        (3, 67, 252, 0, 0xffff, u32::MAX, 0, "blob compressed"),
    ];
    let mut out = vec![0; 24];
    out.extend_from_slice(b"FRc1");
    out.extend_from_slice(&(columns.len() as u16).to_le_bytes());
    for (kind, flags, server_type, decimals, pk, bytes, precision, sql) in columns {
        out.extend_from_slice(&[kind, flags, server_type, decimals]);
        out.extend_from_slice(&pk.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(&precision.to_le_bytes());
        for text in ["column", sql, "latin1", "latin1_bin"] {
            put_text(&mut out, text);
        }
    }
    out.extend_from_slice(&[1, 0, 0, 2, 0]);
    out.extend_from_slice(&[0, 0, 1, 12, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&[1, 0, 5, 14, 0, 0, 0, 0, 40, 0, 0, 0, 0]);
    out
}

/// A row: length of the key, key, payload.
fn rows() -> Target {
    let key = [&[0x80, 0, 0, 5], &[0xfe; 8][..], &[0xfc]].concat();
    let fixed: usize = 1 + 8 + 8 + 5 + 4 + 8 + 6 + 3 + 16 + 30;
    let mut payload = vec![1];
    payload.extend_from_slice(&[9; 16]);
    payload.extend_from_slice(&[1, 0, 0]);
    payload.extend_from_slice(&vec![0x81; fixed]);
    payload.extend_from_slice(&[3, 0, 8, 0, 9, 0x80]);
    payload.extend_from_slice(b"abcdefgh\0");
    let sample = [&[key.len() as u8], key.as_slice(), &payload].concat();
    let table = Description::decode(&described());
    target("row", vec![sample, vec![0; 200]], move |bytes| {
        let mut r = ByteReader::new(bytes);
        let length = usize::from(r.u8().unwrap_or(0));
        let (Some(key), Some(table)) = (r.take(length), &table) else {
            return;
        };
        let Ok(values) = row::decode(table, key, r.rest()) else {
            return;
        };
        let mut out = Vec::new();
        for (column, value) in table.columns.iter().zip(values) {
            if let row::Value::Bytes(bytes) = value {
                let _ = text::render(column, &bytes, &mut out);
            }
        }
    })
}

fn reader(bytes: &[u8]) {
    let mut r = ByteReader::new(bytes);
    for &b in bytes {
        let before = r.rest().len();
        let read = match b % 8 {
            0 => r.u8().is_some(),
            1 => r.u16().is_some(),
            2 => r.u32().is_some(),
            3 => r.u48().is_some(),
            4 => r.u64().is_some(),
            5 => r.bytes16().is_some(),
            6 => r.bytes32().is_some(),
            _ => r.bytes64().is_some(),
        };
        assert!(read || r.rest().len() == before, "a failed read moved");
    }
}
