//! The decoders of what lies on disk, for fuzz targets: bytes in, nothing out but a panic.
//!
//! Where a checksum guards a structure it is made right first, so that what is behind it is
//! reached; whether checksums are looked at is the business of other tests.

use crate::blob;
use crate::checkpoint;
use crate::delta;
use crate::directory::Directory;
use crate::image::BLOB_HEADER_BYTES;
use crate::map::{self, MapBase};
use crate::pack::Unpacker;
use crate::store::Store;
use crate::superblock::Superblock;
use crate::wire::{get_u32, put_u32, put_u64};
use ferrite_types::format::{BLOB_MAGIC, MAP_CHUNK_MAGIC, SUPERBLOCK_MAGIC};
use ferrite_types::{Lsn, PAGE_BYTES};

/// One copy of a superblock.
pub fn superblock(bytes: &[u8]) {
    let mut b = bytes.to_vec();
    b.resize(4096, 0);
    put_u64(&mut b, 0, SUPERBLOCK_MAGIC);
    let crc = crc32c::crc32c(&b[12..]);
    put_u32(&mut b, 8, crc);
    let _ = Superblock::decode(&b);
    let _ = Superblock::decode(bytes);
}

/// A checkpoint file.
pub fn checkpoint_file(bytes: &[u8]) {
    let uuid = [3; 16];
    let _ = checkpoint::decode(bytes, &uuid);
    let _ = checkpoint::decode(&checkpoint::resealed(bytes, &uuid), &uuid);
}

/// A checkpoint file that is one.
pub fn checkpoint_sample() -> Vec<u8> {
    let map = MapBase {
        slot: 1,
        lsn: Lsn(60),
        sequence: 5,
        bytes: 8192,
        crc: 9,
    };
    let checkpoint = crate::Checkpoint {
        redo_start: Lsn(77),
        map,
        state: vec![7; 40],
    };
    checkpoint::encode(&checkpoint, 9, &[3; 16])
}

/// A blob.
pub fn blob(bytes: &[u8]) {
    let mut out = vec![0; PAGE_BYTES];
    let _ = blob::parse(bytes, 1);
    let _ = blob::claim(bytes, 1);
    if bytes.len() < BLOB_HEADER_BYTES {
        return;
    }
    let mut b = bytes.to_vec();
    put_u32(&mut b, 0, BLOB_MAGIC);
    put_u32(&mut b, 32, 1);
    b[4] = 1;
    b[6..8].fill(0);
    let stored = get_u32(&b, 28).unwrap_or(0) as usize;
    if let Some(body) = b
        .get(BLOB_HEADER_BYTES..)
        .and_then(|body| body.get(..stored))
    {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&b[..36]), body);
        put_u32(&mut b, 36, crc);
    }
    if let Ok((_, body)) = blob::parse(&b, 1) {
        let _ = crate::page_delta::parse_body(body);
    }
    if let Ok((header, body)) = blob::parse(&b, 1) {
        let _ = blob::restore(&header, body, &mut out, &mut Unpacker::new());
    }
}

/// A blob that is one, packed with the codec of that number.
pub fn blob_sample(codec: u8) -> Vec<u8> {
    use crate::batch::Batch;
    use crate::image::PageImage;
    use ferrite_types::format::{Codec, Packing};
    use ferrite_types::{IndexId, PageId};
    let page: Vec<u8> = (0..PAGE_BYTES).map(|i| (i / 100) as u8).collect();
    let mut batch = Batch::new(1, crate::deps::Arc::default());
    let codec = Codec::from_u8(codec).unwrap_or(Codec::None);
    let image = PageImage::with_gap(&page, 4000, 9000);
    batch.push(PageId(7), IndexId(2), Lsn(99), image, Packing::of(codec));
    batch.bytes().to_vec()
}

/// A chunk of a map.
pub fn map_chunk(bytes: &[u8]) {
    let mut b = bytes.to_vec();
    if b.len() >= 64 {
        put_u32(&mut b, 0, MAP_CHUNK_MAGIC);
        let width = [0, 4, 8, 0, 8, 0, 0, 0][usize::from(b[9] & 7)];
        let len = 64 + get_u32(&b, 36).unwrap_or(0) as usize * width;
        if let Some(body) = b.get(8..len) {
            let crc = crc32c::crc32c(body);
            put_u32(&mut b, 4, crc);
        }
    }
    map::decode_chunk(&b, &Directory::new());
}

/// Bodies of the log records of this module.
pub fn log_bodies(bytes: &[u8]) {
    let _ = delta::decode_map_delta(bytes, &mut |page, _| assert_ne!(page.0, 0));
    let _ = delta::decode_extent(bytes);
    let _ = Store::decode_page_lsns(bytes, &mut |page, lsn| assert!(page.0 != 0 && lsn.0 != 0));
}
