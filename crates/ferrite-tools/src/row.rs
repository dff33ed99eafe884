//! A row's columns from its key and its payload (`plugin/row_format.h`, `plugin/key_format.h`).
//!
//! Invariant: bytes that do not fit the description give an error, never a panic and never a
//! value made up. Locking: none.

use crate::describe::{Column, Description, Index, Kind, Part, PartKind};
use ferrite_engine::{OverflowRef, OVERFLOW_REF_BYTES};
use ferrite_types::ByteReader;
use std::borrow::Cow;

const ROW_VERSION: u8 = 1;
const OUT_OF_LINE: u16 = 0x8000;

/// A column's value: the bytes the server's record has, without padding and length bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'r> {
    /// NULL.
    Null,
    /// The bytes.
    Bytes(Cow<'r, [u8]>),
    /// Out of line: the reference.
    Far(OverflowRef),
}

/// The values of the columns that are there ([`Column::is_there`]), in their order.
///
/// # Errors
/// What does not fit, in words.
pub fn decode<'r>(
    table: &Description,
    key: &[u8],
    payload: &'r [u8],
) -> Result<Vec<Value<'r>>, &'static str> {
    let from_key = decode_key(&table.indexes[0], table, key).ok_or("the key does not fit")?;
    let mut row = Payload::parse(&table.columns, payload).ok_or("the row does not fit")?;
    let mut values = Vec::new();
    for (number, column) in table.columns.iter().enumerate() {
        if column.stored() {
            values.push(row.value(column).ok_or("a column does not fit")?);
        } else if column.pk_part.is_some() {
            let value = from_key.iter().find(|(n, _)| usize::from(*n) == number);
            let (_, bytes) = value.ok_or("the key lacks a column")?;
            values.push(Value::Bytes(Cow::Owned(bytes.clone())));
        }
    }
    Ok(values)
}

// ---- payload -------------------------------------------------------------------------------

/// A payload taken apart, and how far its columns were read.
struct Payload<'r> {
    references: &'r [u8],
    nulls: &'r [u8],
    fixed: ByteReader<'r>,
    ends: ByteReader<'r>,
    variable: &'r [u8],
    null_bit: usize,
    start: usize,
}

impl<'r> Payload<'r> {
    fn parse(columns: &[Column], payload: &'r [u8]) -> Option<Payload<'r>> {
        let stored = || columns.iter().filter(|c| c.stored());
        let null_bits = stored().filter(|c| c.nullable()).count();
        let fixed = stored().filter(|c| c.kind == Kind::Fixed);
        let fixed: u64 = fixed.map(|c| u64::from(c.length)).sum();
        let variable = stored().filter(|c| c.kind != Kind::Fixed).count();
        let mut r = ByteReader::new(payload);
        let (count, at) = ferrite_engine::overflow_head(payload);
        r.take(at)?;
        let references = r.take(count * OVERFLOW_REF_BYTES)?;
        if r.u8()? != ROW_VERSION {
            return None;
        }
        Some(Payload {
            references,
            nulls: r.take(null_bits.div_ceil(8))?,
            fixed: ByteReader::new(r.take(usize::try_from(fixed).ok()?)?),
            ends: ByteReader::new(r.take(2 * variable)?),
            variable: r.rest(),
            null_bit: 0,
            start: 0,
        })
    }

    /// The next stored column's value.
    fn value(&mut self, column: &Column) -> Option<Value<'r>> {
        let null = column.nullable() && {
            let bit = self.null_bit;
            self.null_bit += 1;
            self.nulls.get(bit / 8)? >> (bit % 8) & 1 == 1
        };
        if column.kind == Kind::Fixed {
            let bytes = self.fixed.take(column.length as usize)?;
            return Some(if null {
                Value::Null
            } else {
                Value::Bytes(bytes.into())
            });
        }
        let end = self.ends.u16()?;
        let to = usize::from(end & !OUT_OF_LINE);
        let bytes = self.variable.get(self.start..to)?;
        self.start = to;
        if null {
            return Some(Value::Null);
        }
        if end & OUT_OF_LINE == 0 {
            let fits = column.kind == Kind::Blob || bytes.len() <= column.length as usize;
            return fits.then(|| Value::Bytes(bytes.into()));
        }
        let number = match *bytes {
            [low] => low.into(),
            [low, high] => u16::from_le_bytes([low, high]),
            _ => return None,
        };
        let mut references = self.references.chunks_exact(OVERFLOW_REF_BYTES);
        let reference = references.nth(usize::from(number))?;
        Some(Value::Far(OverflowRef::from_bytes(
            reference.try_into().ok()?,
        )))
    }
}

// ---- key -----------------------------------------------------------------------------------

/// The columns that a clustered key gives back, by their numbers.
fn decode_key(index: &Index, table: &Description, key: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
    let mut values = Vec::new();
    if index.hidden {
        return (key.len() == 8).then_some(values);
    }
    let mut r = ByteReader::new(key);
    for (number, part) in index.parts.iter().enumerate() {
        let bytes = take_part(&mut r, part)?;
        let column = &table.columns[usize::from(part.column)];
        if column.pk_part.map(usize::from) == Some(number) {
            values.push((part.column, bytes?));
        }
    }
    r.is_empty().then_some(values)
}

/// Reads a part; the inner None: it is NULL or has only weights.
fn take_part(r: &mut ByteReader<'_>, part: &Part) -> Option<Option<Vec<u8>>> {
    let flip = if part.descending { 0xff } else { 0 };
    if part.nullable && r.u8()? ^ flip == 0 {
        return Some(None);
    }
    let plain = |bytes: &[u8]| bytes.iter().map(|b| b ^ flip).collect::<Vec<u8>>();
    match part.kind {
        PartKind::Bytes => Some(Some(plain(r.take(part.width as usize)?))),
        PartKind::Unsigned | PartKind::Signed => {
            let mut bytes = plain(r.take(part.width as usize)?);
            if part.kind == PartKind::Signed {
                *bytes.first_mut()? ^= 0x80;
            }
            bytes.reverse();
            Some(Some(bytes))
        }
        PartKind::Real => r.take(part.width as usize).map(|_| None),
        PartKind::Binary => take_groups(r, 8, false, flip).map(Some),
        PartKind::Text => {
            for &(group, padded) in &part.levels {
                take_groups(r, usize::from(group), padded, flip)?;
            }
            Some(None)
        }
    }
}

/// Bytes in groups with a marker each; what they hold counts only where they are not padded.
fn take_groups(r: &mut ByteReader<'_>, group: usize, padded: bool, flip: u8) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let bytes = r.take(group)?;
        let marker = usize::from(r.u8()? ^ flip);
        let used = marker.min(group);
        out.extend(bytes[..used].iter().map(|b| b ^ flip));
        let last = if padded { marker == 2 } else { marker <= group };
        if last {
            return Some(out);
        }
    }
}
