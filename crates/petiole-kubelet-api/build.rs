//! Compiles `proto/` with a compiler written in Rust: a build needs no `protoc`.
use std::{env, error::Error, fs, path::PathBuf};

const PROTOS: &[&str] = &[
    "deviceplugin_v1beta1.proto",
    "podresources_v1.proto",
    "pluginregistration_v1.proto",
    "csi_v1.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    // Served by gRPC reflection, so that grpcurl needs no proto files.
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(
        out.join("descriptors.bin"),
        protox::prost::Message::encode_to_vec(&descriptors),
    )?;
    tonic_prost_build::configure()
        .btree_map(".")
        .codec_path("crate::codec::SmallMessages")
        .compile_fds(descriptors)?;
    Ok(())
}
