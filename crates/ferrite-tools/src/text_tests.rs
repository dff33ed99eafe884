//! Values against what the server shows for the same bytes.

use super::*;
use crate::describe::Description;
use ferrite_sync::random::Rng;

fn column(server_type: u8, decimals: u8, sql_type: &str) -> Column {
    let mut bytes = vec![0; 24];
    bytes.extend_from_slice(b"FRc1\x01\x00");
    bytes.extend_from_slice(&[
        0,
        1,
        server_type,
        decimals,
        0xff,
        0xff,
        8,
        0,
        0,
        0,
        10,
        0,
        0,
        0,
    ]);
    for text in ["c", sql_type, "binary", "binary"] {
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(&[1, 0, 1, 0, 0]);
    Description::decode(&bytes).unwrap().columns.remove(0)
}

fn shows(column: &Column, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    render(column, bytes, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn numbers() {
    let c = |t| column(t, 0, "");
    assert_eq!(shows(&c(TINY), &[0xff]), "-1");
    assert_eq!(shows(&c(INT24), &[0, 0, 0x80]), "-8388608");
    assert_eq!(shows(&c(LONGLONG), &[0xff; 8]), "-1");
    assert_eq!(shows(&c(FLOAT), &0.1f32.to_le_bytes()), "1e-1");
    assert_eq!(shows(&c(DOUBLE), &1e300f64.to_le_bytes()), "1e300");
    assert_eq!(shows(&c(YEAR), &[0]), "0000");
    assert_eq!(shows(&c(YEAR), &[124]), "2024");
    assert_eq!(shows(&c(BIT), &[1, 2]), "258");
    // DECIMAL(10,4) 1234.5678 and its negative: the manual's example of the format, cut.
    let d = column(NEWDECIMAL, 4, "decimal(10,4)");
    assert_eq!(shows(&d, &[0x80, 0x04, 0xd2, 0x16, 0x2e]), "1234.5678");
    assert_eq!(shows(&d, &[0x7f, 0xfb, 0x2d, 0xe9, 0xd1]), "-1234.5678");
}

#[test]
fn times() {
    let c = |t, d| column(t, d, "");
    assert_eq!(shows(&c(NEWDATE, 0), &[0x5c, 0xd0, 0x0f]), "2024-02-28");
    assert_eq!(
        shows(&c(TIMESTAMP2, 0), &[0, 0, 0, 0]),
        "0000-00-00 00:00:00"
    );
    let at = 1_709_164_799u32.to_be_bytes();
    assert_eq!(shows(&c(TIMESTAMP2, 0), &at), "2024-02-28 23:59:59");
    assert_eq!(
        shows(&c(TIMESTAMP2, 1), &[at[0], at[1], at[2], at[3], 50]),
        "2024-02-28 23:59:59.5"
    );
    // -00:00:00.01 is 7fffff.ff, -00:00:01.01 is 7ffffe.ff (the server's own table).
    assert_eq!(
        shows(&c(TIME2, 2), &[0x7f, 0xff, 0xff, 0xff]),
        "-00:00:00.01"
    );
    assert_eq!(
        shows(&c(TIME2, 2), &[0x7f, 0xff, 0xfe, 0xff]),
        "-00:00:01.01"
    );
    assert_eq!(shows(&c(TIME2, 0), &[0x80, 0, 1]), "00:00:01");
    let n: u64 = 0x80_0000_0000 | (((2024 * 13 + 2) << 5 | 28) << 17 | 23 << 12 | 59 << 6 | 58);
    assert_eq!(
        shows(&c(DATETIME2, 0), &n.to_be_bytes()[3..]),
        "2024-02-28 23:59:58"
    );
}

#[test]
fn plugin_types() {
    let six = column(254, 0, "inet6");
    let mut bytes = [0; 16];
    bytes[15] = 1;
    assert_eq!(shows(&six, &bytes), "::1");
    // 123e4567-e89b-12d3-a456-426655440000 as the record has it.
    let record = [
        0x42, 0x66, 0x55, 0x44, 0, 0, 0xa4, 0x56, 0x12, 0xd3, 0xe8, 0x9b, 0x12, 0x3e, 0x45, 0x67,
    ];
    let u = column(254, 0, "uuid");
    assert_eq!(shows(&u, &record), "123e4567-e89b-12d3-a456-426655440000");
}

#[test]
fn escapes() {
    let mut out = Vec::new();
    escape(b"a\tb\nc\\d\0e\rf'\"N", &mut out);
    assert_eq!(out, b"a\\tb\\nc\\\\d\\0e\\rf'\"N");
}

/// Any type with any bytes: a text or none, never a panic.
#[test]
fn random_bytes_never_panic() {
    let mut rng = Rng::new(5);
    for _ in 0..100_000 {
        let types = ["uuid", "inet6", "inet4", "binary(16)"];
        let sql_type = types[rng.below(4) as usize];
        let c = column(rng.below(256) as u8, rng.below(256) as u8, sql_type);
        let mut bytes = vec![0; rng.below(18) as usize];
        rng.fill(&mut bytes);
        let _ = render(&c, &bytes, &mut Vec::new());
        let _ = unpack(&bytes);
    }
}
