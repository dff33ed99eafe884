//! Space kept for the next checkpoint, so that a full disk never keeps one from being written: it
//! is the checkpoint that makes log files free.
//!
//! The files of map and checkpoint are written in place and are longer than what is in them: by as
//! much as the last one took, up to a limit, and a margin. What lies behind the end of a dump or a
//! checkpoint means nothing; both say how long they are.
//!
//! A reserve that is there cannot be lost to another process, as one that is deleted when need be
//! can. It helps where a file system writes in place what was allocated; one that copies on write
//! (btrfs, ZFS) may want space all the same.
//!
//! Invariant: no file gets shorter here than what was written to it last.
//! Locking: under the checkpoint state's mutex.

use ferrite_types::Result;

use crate::deps::{kill_point, OpenMode, Storage, StorageFile};

/// Lengths are multiples of this, in bytes.
const UNIT_BYTES: u64 = 256 << 10;
/// No more than this is kept beside the margin, in bytes.
const MOST_BYTES: u64 = 64 << 20;
/// For a map: 64 Ki pages more.
pub(crate) const MAP_MARGIN_BYTES: u64 = 512 << 10;
/// For a checkpoint: what a large transaction has in memory of its undo.
pub(crate) const CHECKPOINT_MARGIN_BYTES: u64 = 4 << 20;
/// Bytes of zeroes written at once.
const ZERO_BYTES: usize = 256 << 10;

/// How long the file is to be when the last content took `used` bytes.
pub(crate) fn length_for(used: u64, margin: u64) -> u64 {
    (used + used.min(MOST_BYTES) + margin).next_multiple_of(UNIT_BYTES)
}

/// Makes the file, if it is there, as long as it should be. There may be no space left for that:
/// then the next checkpoint tries its luck, and this is tried again after it.
pub(crate) fn keep(storage: &dyn Storage, name: &str, used: u64, margin: u64) {
    let Ok(file) = storage.open(name, OpenMode::ReadWrite, false) else {
        return;
    };
    let want = length_for(used, margin);
    if file.len().is_ok_and(|len| len < want) && file.allocate(0, want).is_ok() {
        kill_point!("store.space_kept");
    }
}

/// Before `used` bytes are written to a file that once held far more: the space of that goes back.
pub(crate) fn cut_surplus(file: &dyn StorageFile, used: u64, margin: u64) -> Result<()> {
    let want = length_for(used, margin);
    assert!(want >= used, "{used} bytes cut to {want}");
    if file.len()? > 2 * want + MOST_BYTES {
        file.truncate(want)?;
    }
    Ok(())
}

/// Overwrites what an earlier content of `before` bytes left behind `used`.
pub(crate) fn clear_rest(file: &dyn StorageFile, used: u64, before: u64) -> Result<()> {
    let end = before.min(file.len()?);
    // Not on the stack: a connection that makes room on a full disk has little of it.
    let zeroes = vec![0; end.saturating_sub(used).min(ZERO_BYTES as u64) as usize];
    let mut at = used;
    while at < end {
        let n = (end - at).min(ZERO_BYTES as u64);
        file.write_at(&zeroes[..n as usize], at)?;
        at += n;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_leave_room_for_twice_the_last_one() {
        for used in [0, 1, 4096, 3 << 20, 60 << 20] {
            let length = length_for(used, CHECKPOINT_MARGIN_BYTES);
            assert!(length >= 2 * used + CHECKPOINT_MARGIN_BYTES);
            assert!(length < 2 * used + CHECKPOINT_MARGIN_BYTES + UNIT_BYTES);
        }
        assert_eq!(length_for(1 << 30, 0), (1 << 30) + MOST_BYTES);
    }
}
