//! Compiles `proto/` with a compiler written in Rust: a build needs no `protoc`.
use std::error::Error;

const PROTOS: &[&str] = &["dra_v1.proto", "dra_health_v1.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
