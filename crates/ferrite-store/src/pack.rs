//! Compression of page bodies: used only where it earns its CPU.
//!
//! A packed form is kept when it saves at least one granule and at least an eighth; otherwise the
//! body is stored as it is. Both sides own their scratch memory and are used by one thread
//! at a time.

use ferrite_types::format::{Codec, Packing};
use ferrite_types::PAGE_BYTES;

use crate::image::{PageImage, BLOB_HEADER_BYTES};
use crate::word::GRANULE_BYTES;

/// Granules of a blob with a body of that length.
pub(crate) fn granules_for(body: usize) -> usize {
    (BLOB_HEADER_BYTES + body).div_ceil(GRANULE_BYTES)
}

/// Packs bodies.
pub(crate) struct Packer {
    raw: Vec<u8>,
    packed: Vec<u8>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// The level that it was made for.
    zstd_level: i32,
}

impl Packer {
    pub(crate) fn new() -> Packer {
        Packer {
            raw: Vec::new(),
            packed: Vec::new(),
            zstd: None,
            zstd_level: 0,
        }
    }

    /// Copies the bytes to be packed.
    pub(crate) fn stage(&mut self, image: PageImage<'_>) {
        self.raw.clear();
        self.raw.extend_from_slice(image.head);
        self.raw.extend_from_slice(image.tail);
        debug_assert!(self.raw.len() <= PAGE_BYTES, "{} bytes", self.raw.len());
    }

    /// The body of what was staged, and how it is packed: not at all where that is not worth it.
    pub(crate) fn pack(&mut self, packing: Packing) -> (Codec, &[u8]) {
        match self.smaller(packing) {
            Some(n) => (packing.codec, &self.packed[..n]),
            None => (Codec::None, &self.raw),
        }
    }

    /// Bytes of the packed form, when that is worth it.
    fn smaller(&mut self, packing: Packing) -> Option<usize> {
        let raw_granules = granules_for(self.raw.len());
        if packing.codec == Codec::None || raw_granules == 1 {
            return None;
        }
        let limit = self.raw.len() / 8 * 7;
        let limit = limit.min((raw_granules - 1) * GRANULE_BYTES - BLOB_HEADER_BYTES);
        let n = match packing.codec {
            Codec::None => return None,
            Codec::Lz4 => self.lz4()?,
            Codec::Zstd => self.zstd(limit, i32::from(packing.zstd_level()))?,
        };
        debug_assert!(n > limit || granules_for(n) < raw_granules, "{n} bytes");
        (n <= limit).then_some(n)
    }

    fn lz4(&mut self) -> Option<usize> {
        let most = lz4_flex::block::get_maximum_output_size(self.raw.len());
        self.packed.resize(most.max(self.packed.len()), 0);
        lz4_flex::block::compress_into(&self.raw, &mut self.packed).ok()
    }

    /// Gives up as soon as the output passes `limit`.
    fn zstd(&mut self, limit: usize, level: i32) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(level).ok();
        } else if self.zstd_level != level {
            self.zstd.as_mut()?.set_compression_level(level).ok()?;
        }
        self.zstd_level = level;
        self.packed.resize(limit.max(self.packed.len()), 0);
        let out = &mut self.packed[..limit];
        self.zstd.as_mut()?.compress_to_buffer(&self.raw, out).ok()
    }
}

/// Unpacks bodies whose checksum was right.
pub(crate) struct Unpacker {
    raw: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    pub(crate) fn new() -> Unpacker {
        Unpacker {
            raw: Vec::new(),
            zstd: None,
        }
    }

    /// The `len` bytes that were packed into `body`.
    pub(crate) fn unpack<'a>(
        &'a mut self,
        codec: Codec,
        body: &'a [u8],
        len: usize,
    ) -> Result<&'a [u8], &'static str> {
        if len > PAGE_BYTES {
            return Err("page longer than a page");
        }
        if codec == Codec::None {
            let same = body.len() == len;
            return same.then_some(body).ok_or("stored length differs");
        }
        self.raw.resize(len, 0);
        let n = match codec {
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Decompressor::new().ok();
                }
                let zstd = self.zstd.as_mut().ok_or("no memory to decompress")?;
                zstd.decompress_to_buffer(body, &mut self.raw)
                    .map_err(|_| "zstd data does not unpack")?
            }
            _ => lz4_flex::block::decompress_into(body, &mut self.raw)
                .map_err(|_| "LZ4 data does not unpack")?,
        };
        if n != len {
            return Err("unpacked length differs");
        }
        assert!(self.raw.len() == len, "{} of {len}", self.raw.len());
        Ok(&self.raw)
    }
}
