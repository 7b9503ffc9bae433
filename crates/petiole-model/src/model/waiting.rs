//! Lists the kubelet's reasons for a container that waits. Pure.

/// The reasons of a container that waits for its image.
pub const NO_IMAGE: &[&str] = &[
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
];
/// The reasons of a container that is being started.
pub const STARTING: &[&str] = &["ContainerCreating", "PodInitializing"];
