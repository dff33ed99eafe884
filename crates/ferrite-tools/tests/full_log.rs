//! What the programs say goes to a disk that is full: they end as they would, and do not abort. Their answers on standard
//! output: `programs/rewind.rs`.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

#[test]
fn nothing_depends_on_what_is_said() {
    let no_such = "/no/such/directory";
    for (program, words) in [
        (env!("CARGO_BIN_EXE_ferrite-rewind"), vec![no_such, "a"]),
        (env!("CARGO_BIN_EXE_ferrite-check"), vec![no_such]),
        (
            env!("CARGO_BIN_EXE_ferrite-backup"),
            vec!["verify", no_such],
        ),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(program);
        let code = command
            .args(words)
            .stderr(Stdio::from(full))
            .status()
            .unwrap();
        assert_eq!(code.code(), Some(2), "{program}");
    }
}
