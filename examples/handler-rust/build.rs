fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["discovery_v0.proto"], ["../../proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
