//! An open file of a simulated disk.
//!
//! Locking: each call takes the machine's state once and keeps it to its end.

use ferrite_sync::random::Rng;
use ferrite_sync::{may_wait, time, Arc};
use ferrite_types::{Error, Result};

use super::disk::Change;
use super::faults::{Fault, IoEvent, IoOp};
use super::image::SECTOR;
use super::machine::{dead, Due, Machine};
use crate::{StorageFile, BLOCK_BYTES};

pub struct SimFile {
    pub machine: Arc<Machine>,
    pub life: u64,
    pub number: u64,
    pub name: String,
    pub direct: bool,
    pub read_only: bool,
    pub _token: Arc<()>,
}

impl SimFile {
    fn event(&self, op: IoOp, offset: u64, len: u64) -> IoEvent<'_> {
        IoEvent {
            op,
            name: &self.name,
            offset,
            len,
        }
    }

    fn injected(&self, call: &str, offset: u64) -> Error {
        Error::Io(format!(
            "{call} {} at offset {offset}: injected failure",
            self.name
        ))
    }

    fn full(&self, call: &str, offset: u64) -> Error {
        Error::DiskFull(format!(
            "{call} {} at offset {offset}: the simulated disk is full",
            self.name
        ))
    }

    fn check(&self, buf: &[u8], offset: u64) -> Result<()> {
        let wrong =
            self.direct && (buf.as_ptr() as usize | buf.len() | offset as usize) % BLOCK_BYTES != 0;
        if !wrong {
            return Ok(());
        }
        Err(Error::Bug(format!(
            "direct I/O on {} is not aligned: offset {offset}, {} bytes",
            self.name,
            buf.len()
        )))
    }

    fn writable(&self, call: &str) -> Result<()> {
        if self.read_only {
            return Err(Error::Io(format!(
                "{call} {}: opened for reading only",
                self.name
            )));
        }
        Ok(())
    }

    /// Somewhere else in a file of that length, with the same alignment.
    fn elsewhere(&self, offset: u64, len: u64, rng: &mut Rng) -> u64 {
        let unit = BLOCK_BYTES as u64;
        let places = (len / unit).max(1);
        let other = rng.below(places) * unit + offset % unit;
        if other == offset {
            offset + unit
        } else {
            other
        }
    }

    /// Changes the space of the file, under the state lock.
    fn space(&self, call: &str, offset: u64, change: Change, reserve: Option<u64>) -> Result<()> {
        self.writable(call)?;
        let event = self.event(IoOp::Space, offset, reserve.unwrap_or(0));
        let (mut state, due) = self.machine.begin(Some(self.life), &event)?;
        if let Some(len) = reserve {
            if due == Due::Fault(Fault::Full) || !state.disk.fits(self.number, offset, len) {
                return Err(self.full(call, offset));
            }
            state.disk.reserve(self.number, offset, len);
        }
        state.disk.change(self.number, change);
        Ok(())
    }
}

impl StorageFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        may_wait("read of a file");
        self.check(buf, offset)?;
        let event = self.event(IoOp::Read, offset, buf.len() as u64);
        let (mut state, due) = self.machine.begin(Some(self.life), &event)?;
        let state = &mut *state;
        let file = &state.disk.files[&self.number];
        let len = file.live.len();
        if offset + buf.len() as u64 > len {
            return Err(Error::Corrupt(format!(
                "{} ends at offset {len} where {} more bytes were expected",
                self.name,
                offset + buf.len() as u64 - len
            )));
        }
        file.live.read(buf, offset);
        match due {
            Due::Fault(Fault::FailRead) => return Err(self.injected("read", offset)),
            Due::Fault(Fault::FlipBit) if !buf.is_empty() => {
                let bit = state.rng.below(buf.len() as u64 * 8);
                buf[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            Due::Fault(Fault::MisdirectedRead) => {
                file.live
                    .read(buf, self.elsewhere(offset, len, &mut state.rng));
            }
            Due::Fault(Fault::StaleRead) => {
                file.previous
                    .as_ref()
                    .unwrap_or(&file.durable)
                    .read(buf, offset);
            }
            _ => {}
        }
        self.machine.stats.reads.inc();
        self.machine.stats.read_bytes.add(buf.len() as u64);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        may_wait("write of a file");
        self.check(buf, offset)?;
        self.writable("write")?;
        let event = self.event(IoOp::Write, offset, buf.len() as u64);
        let (mut guard, due) = self.machine.begin(Some(self.life), &event)?;
        let state = &mut *guard;
        let full = due == Due::Fault(Fault::Full)
            || !state.disk.fits(self.number, offset, buf.len() as u64);
        if full {
            return Err(self.full("write", offset));
        }
        let mut target = offset;
        match due {
            Due::Fault(Fault::FailWrite) => {
                let sectors = (buf.len() as u64).div_ceil(SECTOR);
                let part = (state.rng.below(sectors + 1) * SECTOR).min(buf.len() as u64);
                if part > 0 {
                    let bytes = buf[..part as usize].into();
                    state
                        .disk
                        .change(self.number, Change::Write { offset, bytes });
                }
                return Err(self.injected("write", offset));
            }
            Due::Fault(Fault::MisdirectedWrite) => {
                let len = state.disk.files[&self.number].live.len();
                target = self.elsewhere(offset, len, &mut state.rng);
            }
            _ => {}
        }
        if due != Due::Fault(Fault::LostWrite) && !buf.is_empty() {
            state.disk.change(
                self.number,
                Change::Write {
                    offset: target,
                    bytes: buf.into(),
                },
            );
        }
        if due == Due::PowerOff {
            self.machine.cut_power(guard);
            return Err(dead());
        }
        self.machine.stats.writes.inc();
        self.machine.stats.write_bytes.add(buf.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        may_wait("sync of a file");
        let began = time::now_us();
        let event = self.event(IoOp::Sync, 0, 0);
        let (mut guard, due) = self.machine.begin(Some(self.life), &event)?;
        let state = &mut *guard;
        if let Due::Fault(fault @ (Fault::FailSync | Fault::FullSync)) = due {
            state.disk.sync_failed(self.number, &mut state.rng);
            return Err(match fault {
                Fault::FullSync => self.full("sync", 0),
                _ => self.injected("sync", 0),
            });
        }
        state.disk.sync(self.number);
        if due == Due::PowerOff {
            self.machine.cut_power(guard);
            return Err(dead());
        }
        self.machine.stats.syncs.inc();
        self.machine.stats.sync_us.record_us(time::now_us() - began);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.machine.live(Some(self.life))?.disk.files[&self.number]
            .live
            .len())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.space("allocate", offset, Change::Extend(offset + len), Some(len))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.space("truncate", len, Change::Length(len), None)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.space("punch hole", offset, Change::Punch { offset, len }, None)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn direct_io_active(&self) -> bool {
        self.direct
    }
}
