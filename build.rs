//! Compiles `proto/` with a compiler written in Rust: a build needs no `protoc`.
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    tonic_prost_build::configure()
        .btree_map(".")
        // The values of properties may be secret: `proto::discovery` implements it without them.
        .skip_debug([".v0.ByteData"])
        // Handlers are foreign programs: their lists are bounded while they are decoded.
        .extern_path(
            ".v0.DiscoverResponse",
            "crate::proto::discovery::DeviceList",
        )
        .codec_path("petiole_kubelet_api::codec::SmallMessages")
        .compile_fds(protox::compile(["discovery_v0.proto"], ["proto"])?)?;
    Ok(())
}
