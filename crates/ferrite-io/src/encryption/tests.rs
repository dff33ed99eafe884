//! Encrypted files against a model, and a directory of them.

use super::*;
use crate::sim::SimStorage;
use crate::{AlignedBuf, ReadPart, ReadQueue, RealStorage, BLOCK_BYTES};
use ferrite_sync::random::Rng;

struct Key(u8, u32);

impl KeySource for Key {
    fn newest(&self, id: u32) -> Result<KeyRef> {
        let version = self.1;
        Ok(KeyRef { id, version })
    }
    fn key(&self, key: KeyRef) -> Result<zeroize::Zeroizing<Vec<u8>>> {
        Ok(vec![self.0 + key.version as u8; 32].into())
    }
}

fn create(storage: &dyn Storage) -> Encryption {
    let encryption = Encryption::new(&Key(1, 1), 1).unwrap();
    encryption.share_with(storage).unwrap();
    encryption
}

fn encrypted(disk: &SimStorage) -> Encrypted {
    let encryption = create(disk);
    encryption.view(Arc::new(disk.clone()))
}

fn any_length(rng: &mut Rng) -> u64 {
    let sectors = rng.below(6) * 512;
    match rng.below(3) {
        0 => sectors,
        1 => sectors + rng.below(40),
        _ => rng.below(3000),
    }
}

/// Reads, writes and changes of length, whole sectors or not, do what they do with a plain file.
#[test]
fn any_bytes_are_read_and_written() {
    for seed in 0..60 {
        let disk = SimStorage::new(seed);
        let above = encrypted(&disk);
        let name = ["store.0003", "other"][seed as usize % 2];
        let mut file = above.open(name, OpenMode::CreateNew, false).unwrap();
        let (mut model, mut rng): (Vec<u8>, Rng) = (Vec::new(), Rng::new(seed));
        for round in 0..300 {
            let (at, len) = (any_length(&mut rng), any_length(&mut rng));
            let end = (at + len) as usize;
            match rng.below(8) {
                0 => {
                    file.truncate(at).unwrap();
                    model.resize(at as usize, 0);
                }
                1 if len > 0 => {
                    file.allocate(at, len).unwrap();
                    model.resize(model.len().max(end), 0);
                }
                2 => {
                    drop(file);
                    file = above.open(name, OpenMode::ReadWrite, false).unwrap();
                }
                3..=5 => {
                    let mut bytes = vec![round as u8; len as usize];
                    rng.fill(&mut bytes);
                    file.write_at(&bytes, at).unwrap();
                    if len > 0 {
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].copy_from_slice(&bytes);
                    }
                }
                _ if end <= model.len() => {
                    let mut buf = vec![0; len as usize];
                    file.read_at(&mut buf, at).unwrap();
                    assert_eq!(buf, model[at as usize..end], "seed {seed} round {round}");
                }
                _ => assert!(len == 0 || file.read_at(&mut vec![0; len as usize], at).is_err()),
            }
            assert_eq!(
                file.len().unwrap(),
                model.len() as u64,
                "seed {seed} round {round}"
            );
            let mut all = vec![0; model.len()];
            file.read_at(&mut all, 0).unwrap();
            assert!(all == model, "seed {seed} round {round}");
        }
    }
}

#[test]
fn nothing_written_can_be_read_beneath() {
    let disk = SimStorage::new(1);
    let above = encrypted(&disk);
    let text = b"a row that nobody may read: ".repeat(100);
    for name in ["redo.00000001", "store.0001", "anything"] {
        let file = above.open(name, OpenMode::CreateNew, false).unwrap();
        file.write_at(&text, 0).unwrap();
        let beneath = disk.contents(name).unwrap();
        assert_eq!(beneath.len(), text.len());
        for word in text.windows(16) {
            assert!(beneath.windows(16).all(|w| w != word), "{name}");
        }
    }
    let plain = above
        .open("superblock", OpenMode::CreateNew, false)
        .unwrap();
    plain.write_at(&text, 0).unwrap();
    assert_eq!(disk.contents("superblock").unwrap(), text);
    assert!(above.rename("superblock", "other").is_err());
    assert!(above.rename("store.0001", "store.0002").is_err());
    above.rename("anything", "else").unwrap();
    above.rename("redo.00000001", "redo.tmp").unwrap();
    above.rename("redo.tmp", "rewind.redo.00000007").unwrap();
}

#[test]
fn many_reads_in_flight_arrive_decrypted() {
    let dir = std::env::temp_dir().join(format!("ferrite-encrypted-{}", std::process::id()));
    let real: Arc<dyn Storage> = Arc::new(RealStorage::new(&dir).unwrap());
    let encryption = create(&*real);
    let above = encryption.view(real);
    let file = above.open("store.0000", OpenMode::CreateNew, true).unwrap();
    let mut bytes = AlignedBuf::zeroed(100 * BLOCK_BYTES);
    let blocks = bytes.chunks_mut(BLOCK_BYTES).enumerate();
    blocks.for_each(|(n, block)| block.fill(n as u8));
    file.write_at(&bytes, 0).unwrap();
    let mut buf = AlignedBuf::zeroed(100 * BLOCK_BYTES);
    let parts = buf.chunks_mut(BLOCK_BYTES).enumerate();
    let mut parts: Vec<ReadPart<'_>> = parts
        .map(|(n, buf)| ReadPart {
            file: file.clone(),
            offset: (n * BLOCK_BYTES) as u64,
            buf,
        })
        .collect();
    let mut came = 0;
    ReadQueue::new().read_all(&mut parts, &mut |n, bytes| {
        assert!(bytes.unwrap().iter().all(|b| *b == n as u8), "block {n}");
        came += 1;
    });
    assert_eq!(came, 100);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_data_key_outlives_keys_of_the_server() {
    let disk = SimStorage::new(1);
    assert!(Encryption::of(&disk, &Key(1, 1)).unwrap().is_none());
    let first = create(&disk);
    let view = |e: &Encryption| e.view(Arc::new(disk.clone()));
    let file = view(&first).open("f", OpenMode::CreateNew, false).unwrap();
    file.write_at(b"what was written before", 0).unwrap();
    assert!(!first.rotate(&disk, &Key(1, 1), 1).unwrap());
    assert!(!first.rotate(&disk, &Key(1, 0), 1).unwrap(), "an older one");
    assert!(first.rotate(&disk, &Key(1, 2), 1).unwrap());
    assert!(first.rotate(&disk, &Key(1, 2), 8).unwrap());
    let again = Encryption::of(&disk, &Key(1, 9)).unwrap().unwrap();
    assert_eq!(again.wrapped_by(), KeyRef { id: 8, version: 2 });
    let mut buf = [0; 23];
    let file = view(&again).open("f", OpenMode::ReadOnly, false).unwrap();
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"what was written before");
    assert!(Encryption::of(&disk, &Key(7, 2)).is_err(), "another key");
    assert!(decrypted(Arc::new(disk.clone()), &NoKeys).is_err());

    let other = SimStorage::new(2);
    again.share_with(&other).unwrap();
    assert!(again.share_with(&other).is_err());
    let same = Encryption::of(&other, &Key(1, 1)).unwrap().unwrap();
    assert!(same.key.0 == again.key.0);
    let check = |e: &Encryption| view(e).key_check();
    assert_eq!(check(&same), check(&first));
    let another = Encryption::new(&Key(1, 1), 1).unwrap();
    assert_ne!(check(&another), check(&first));
}
