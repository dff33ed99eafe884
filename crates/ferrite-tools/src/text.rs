//! One value as LOAD DATA reads it, with MariaDB's default escapes and character set binary.
//!
//! Text and binary strings are written byte by byte as they are (bytes that mean something to
//! LOAD DATA with a backslash), so that every character set comes back exactly. TIMESTAMP is
//! written in UTC. ENUM, SET and BIT are written as numbers: see [`LoadAs`].
//!
//! Invariant: bytes that the type cannot have give None. Locking: none.

use crate::describe::{Column, Kind};
use std::net::{Ipv4Addr, Ipv6Addr};

mod server {
    //! The server's numbers of types.
    pub const TINY: u8 = 1;
    pub const SHORT: u8 = 2;
    pub const LONG: u8 = 3;
    pub const FLOAT: u8 = 4;
    pub const DOUBLE: u8 = 5;
    pub const TIMESTAMP: u8 = 7;
    pub const LONGLONG: u8 = 8;
    pub const INT24: u8 = 9;
    pub const DATE: u8 = 10;
    pub const TIME: u8 = 11;
    pub const DATETIME: u8 = 12;
    pub const YEAR: u8 = 13;
    pub const NEWDATE: u8 = 14;
    pub const BIT: u8 = 16;
    pub const TIMESTAMP2: u8 = 17;
    pub const DATETIME2: u8 = 18;
    pub const TIME2: u8 = 19;
    pub const VARCHAR_COMPRESSED: u8 = 141;
    pub const NEWDECIMAL: u8 = 246;
    pub const ENUM: u8 = 247;
    pub const SET: u8 = 248;
}
use server::*;

/// NULL in a file for LOAD DATA.
pub const NULL: &[u8] = b"\\N";

/// How the loader must take a field, where its bytes alone would be misunderstood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadAs {
    /// As it is.
    Bytes,
    /// A number: the place of an ENUM's label, the bits of a SET or BIT.
    Number,
    /// A text: types for which bytes without a character set mean something else.
    Text,
}

/// An ENUM or SET whose labels were too many to be described: nothing but the number is known of its values.
pub fn is_number_only(column: &Column) -> bool {
    column.sql_type.is_empty() && matches!(column.server_type, ENUM | SET)
}

/// See [`LoadAs`].
pub fn load_as(column: &Column) -> LoadAs {
    match column.server_type {
        _ if column.kind != Kind::Fixed || is_number_only(column) => LoadAs::Bytes,
        ENUM | SET | BIT => LoadAs::Number,
        _ if matches!(type_name(column).as_str(), "uuid" | "inet6" | "inet4") => LoadAs::Text,
        _ => LoadAs::Bytes,
    }
}

fn type_name(column: &Column) -> String {
    let name = column.sql_type.split([' ', '(']).next();
    name.unwrap_or("").to_ascii_lowercase()
}

/// Appends bytes with the escapes of LOAD DATA.
pub fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &b in bytes {
        match b {
            0 => out.extend_from_slice(b"\\0"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ => out.push(b),
        }
    }
}

/// Appends a value that is not NULL; None when its bytes are none of the column's type.
pub fn render(column: &Column, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if column.compressed() {
        let packed = match (column.kind, column.server_type) {
            (Kind::Fixed, VARCHAR_COMPRESSED) => strip_length(column, bytes)?,
            _ => bytes,
        };
        escape(&unpack(packed)?, out);
        return Some(());
    }
    if column.kind != Kind::Fixed {
        escape(bytes, out);
        return Some(());
    }
    match fixed(column, bytes)? {
        Fixed::Text(text) => out.extend_from_slice(text.as_bytes()),
        Fixed::Raw => escape(bytes, out),
    }
    Some(())
}

enum Fixed {
    Text(String),
    /// BINARY and the like: the bytes themselves.
    Raw,
}

fn fixed(column: &Column, bytes: &[u8]) -> Option<Fixed> {
    let text = match column.server_type {
        TINY | SHORT | INT24 | LONG | LONGLONG => integer(bytes, column.unsigned())?,
        FLOAT => real(f64::from(f32::from_le_bytes(bytes.try_into().ok()?)), true),
        DOUBLE => real(f64::from_le_bytes(bytes.try_into().ok()?), false),
        NEWDECIMAL => decimal(bytes, column.precision, u32::from(column.decimals))?,
        YEAR => match *bytes.first()? {
            0 => "0000".to_owned(),
            year => (1900 + u32::from(year)).to_string(),
        },
        DATE => {
            let n = little(bytes)?;
            format!("{:04}-{:02}-{:02}", n / 10000, n / 100 % 100, n % 100)
        }
        NEWDATE => {
            let n = little(bytes)?;
            format!("{:04}-{:02}-{:02}", n >> 9, n >> 5 & 15, n & 31)
        }
        TIME | TIME2 => time(column, bytes)?,
        DATETIME | DATETIME2 => datetime(column, bytes)?,
        TIMESTAMP | TIMESTAMP2 => timestamp(column, bytes)?,
        ENUM | SET => little(bytes)?.to_string(),
        BIT => big(bytes)?.to_string(),
        _ => return other(column, bytes),
    };
    Some(Fixed::Text(text))
}

/// Types of the server's plugins, known by their names.
fn other(column: &Column, bytes: &[u8]) -> Option<Fixed> {
    let text = match type_name(column).as_str() {
        "inet6" => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string(),
        "inet4" => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string(),
        "uuid" => uuid(bytes.try_into().ok()?, column.sql_type.contains("old")),
        _ => return Some(Fixed::Raw),
    };
    Some(Fixed::Text(text))
}

// ---- numbers -------------------------------------------------------------------------------

fn little(bytes: &[u8]) -> Option<u64> {
    let fits = bytes.len() <= 8;
    fits.then(|| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn big(bytes: &[u8]) -> Option<u64> {
    let fits = bytes.len() <= 8;
    fits.then(|| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn integer(bytes: &[u8], unsigned: bool) -> Option<String> {
    let n = little(bytes)?;
    if unsigned || bytes.is_empty() {
        return Some(n.to_string());
    }
    let unused = 64 - 8 * bytes.len() as u32;
    Some(((n << unused) as i64 >> unused).to_string())
}

/// The shortest text that gives the same number back.
fn real(n: f64, single: bool) -> String {
    if single {
        format!("{:e}", n as f32)
    } else {
        format!("{n:e}")
    }
}

/// The server's packed decimal: groups of nine digits in four bytes, big-endian, the first
/// bit flipped, all bits of a negative number complemented.
fn decimal(bytes: &[u8], precision: u32, scale: u32) -> Option<String> {
    const BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
    let whole = precision.checked_sub(scale)?;
    let negative = bytes.first()? & 0x80 == 0;
    let flip = if negative { 0xff } else { 0 };
    let mut plain: Vec<u8> = bytes.iter().map(|b| b ^ flip).collect();
    plain[0] ^= 0x80;
    let mut at = 0;
    let mut group = |digits: u32| -> Option<String> {
        let n = BYTES[digits as usize];
        let value = big(plain.get(at..at + n)?)?;
        at += n;
        let width = digits as usize;
        let text = format!("{value:0width$}");
        (text.len() == width).then_some(text)
    };
    let mut text = String::new();
    if whole % 9 > 0 {
        text.push_str(&group(whole % 9)?);
    }
    for _ in 0..whole / 9 {
        text.push_str(&group(9)?);
    }
    let digits = text.trim_start_matches('0');
    let mut out = format!(
        "{}{}",
        if negative { "-" } else { "" },
        if digits.is_empty() { "0" } else { digits }
    );
    if scale > 0 {
        out.push('.');
        for _ in 0..scale / 9 {
            out.push_str(&group(9)?);
        }
        if scale % 9 > 0 {
            out.push_str(&group(scale % 9)?);
        }
    }
    Some(out)
}

// ---- times ---------------------------------------------------------------------------------

fn power_of_ten(n: u8) -> u64 {
    10u64.pow(u32::from(n.min(6)))
}

/// ".123" for a fraction in the column's own unit.
fn fraction(value: u64, decimals: u8) -> String {
    let width = usize::from(decimals.min(6));
    if width == 0 {
        return String::new();
    }
    format!(".{value:0width$}")
}

/// Microseconds from the fraction bytes of the newer formats.
fn fraction_us(bytes: &[u8]) -> Option<u64> {
    let unit = match bytes.len() {
        0 | 3 => 1,
        1 => 10_000,
        2 => 100,
        _ => return None,
    };
    Some(big(bytes)? * unit)
}

/// Microseconds as the column shows them.
fn shown(us: u64, decimals: u8) -> String {
    fraction(us / power_of_ten(6 - decimals.min(6)), decimals)
}

fn datetime(column: &Column, bytes: &[u8]) -> Option<String> {
    let decimals = column.decimals;
    if column.server_type == DATETIME2 {
        let (whole, part) = bytes.split_at_checked(5)?;
        let n = big(whole)?.checked_sub(0x80_0000_0000)?;
        let (date, clock) = (n >> 17, n & 0x1_ffff);
        let month = date >> 5;
        return Some(format!(
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}{}",
            month / 13,
            month % 13,
            date & 31,
            clock >> 12,
            clock >> 6 & 63,
            clock & 63,
            shown(fraction_us(part)?, decimals)
        ));
    }
    if decimals == 0 {
        let n = little(bytes)?;
        let (date, clock) = (n / 1_000_000, n % 1_000_000);
        return Some(format!(
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
            date / 10000,
            date / 100 % 100,
            date % 100,
            clock / 10000,
            clock / 100 % 100,
            clock % 100
        ));
    }
    let unit = power_of_ten(decimals);
    let packed = big(bytes)?;
    let (n, part) = (packed / unit, packed % unit);
    let (days, clock) = (n / 86400, n % 86400);
    Some(format!(
        "{:04}-{:02}-{:02} {}{}",
        days / 32 / 13,
        days / 32 % 13,
        days % 32,
        hours(clock),
        fraction(part, decimals)
    ))
}

fn hours(seconds: u64) -> String {
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{h:02}:{m:02}:{s:02}")
}

fn time(column: &Column, bytes: &[u8]) -> Option<String> {
    /// Beyond the largest TIME, in seconds: the older format's zero.
    const ZERO: i64 = 3_020_400;
    let decimals = column.decimals;
    if column.server_type == TIME2 {
        return time2(bytes, decimals);
    }
    if decimals == 0 {
        let n = little(bytes)? as i64;
        let n = if bytes.len() == 3 { (n << 40) >> 40 } else { n };
        let (sign, n) = (if n < 0 { "-" } else { "" }, n.unsigned_abs());
        let (h, m, s) = (n / 10000, n / 100 % 100, n % 100);
        return Some(format!("{sign}{h:02}:{m:02}:{s:02}"));
    }
    let unit = power_of_ten(decimals);
    let n = i64::try_from(big(bytes)?).ok()? - ZERO * unit as i64;
    let (sign, n) = (if n < 0 { "-" } else { "" }, n.unsigned_abs());
    Some(format!(
        "{sign}{}{}",
        hours(n / unit),
        fraction(n % unit, decimals)
    ))
}

/// Three bytes of time and a fraction, or six bytes of both; negative ones as a whole.
fn time2(bytes: &[u8], decimals: u8) -> Option<String> {
    let packed = if bytes.len() == 6 {
        big(bytes)? as i64 - 0x8000_0000_0000
    } else {
        let (whole, part) = bytes.split_at_checked(3)?;
        let whole = big(whole)? as i64 - 0x80_0000;
        let (full, unit) = match part.len() {
            0 => (0, 0),
            1 => (0x100, 10_000),
            2 => (0x1_0000, 100),
            _ => return None,
        };
        let part = big(part)? as i64;
        match whole < 0 && part != 0 {
            true => ((whole + 1) << 24) + (part - full) * unit,
            false => (whole << 24) + part * unit,
        }
    };
    let (sign, n) = (if packed < 0 { "-" } else { "" }, packed.unsigned_abs());
    let (clock, us) = (n >> 24, n & 0xff_ffff);
    Some(format!(
        "{sign}{:02}:{:02}:{:02}{}",
        clock >> 12 & 0x3ff,
        clock >> 6 & 63,
        clock & 63,
        shown(us, decimals)
    ))
}

fn timestamp(column: &Column, bytes: &[u8]) -> Option<String> {
    let decimals = column.decimals;
    let (seconds, part) = if column.server_type == TIMESTAMP2 {
        let (whole, part) = bytes.split_at_checked(4)?;
        (big(whole)?, shown(fraction_us(part)?, decimals))
    } else if decimals == 0 {
        (little(bytes)?, String::new())
    } else {
        let (whole, part) = bytes.split_at_checked(4)?;
        (big(whole)?, fraction(big(part)?, decimals))
    };
    if seconds == 0 {
        return Some(format!("0000-00-00 00:00:00{part}"));
    }
    let (year, month, day) = civil(seconds / 86400);
    let clock = hours(seconds % 86400);
    Some(format!("{year:04}-{month:02}-{day:02} {clock}{part}"))
}

/// Year, month, day of a day since 1970-01-01. Source: H. Hinnant, "chrono-compatible
/// low-level date algorithms", civil_from_days.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    (year, month, doy - (153 * mp + 2) / 5 + 1)
}

// ---- the server's own -----------------------------------------------------------------------

/// A UUID from its bytes in the record, which sort by time: node, clock, time.
fn uuid(r: [u8; 16], old: bool) -> String {
    let swapped = r[6] & r[8].wrapping_neg() & 0x80 != 0;
    let m = if old || swapped {
        let mut m = [0; 16];
        m[..4].copy_from_slice(&r[12..]);
        m[4..6].copy_from_slice(&r[10..12]);
        m[6..8].copy_from_slice(&r[8..10]);
        m[8..10].copy_from_slice(&r[6..8]);
        m[10..].copy_from_slice(&r[..6]);
        m
    } else {
        r
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let parts = [&m[..4], &m[4..6], &m[6..8], &m[8..10], &m[10..]];
    parts.map(hex).join("-")
}

/// A compressed VARCHAR in the record: length, bytes, and what was there before.
fn strip_length<'v>(column: &Column, bytes: &'v [u8]) -> Option<&'v [u8]> {
    // A record of up to 255 bytes and the method has one length byte.
    let width = if column.length <= 1 + 256 { 1 } else { 2 };
    let (length, rest) = bytes.split_at_checked(width)?;
    rest.get(..little(length)? as usize)
}

/// A value that the server packed: method and flags, length, zlib data.
fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let Some((&head, rest)) = bytes.split_first() else {
        return Some(Vec::new());
    };
    match head >> 4 {
        0 => Some(rest.to_vec()),
        8 => {
            let (length, data) = rest.split_at_checked(usize::from(head & 7))?;
            let length = usize::try_from(big(length)?).ok()?;
            let unpacked = match head & 8 {
                0 => miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(data, length),
                _ => miniz_oxide::inflate::decompress_to_vec_with_limit(data, length),
            };
            unpacked.ok().filter(|v| v.len() == length)
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
