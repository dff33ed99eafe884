//! Declares `cfg(loom)`, which turns this crate's primitives into the model checker's.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(loom)");
}
