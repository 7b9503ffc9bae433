//! Reads from the kubelet's reason why a container waits. Pure.

/// What a container waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    Image,
    /// Its program has ended, and is started again later.
    Restart,
    /// It is being started.
    Start,
    Other,
}

impl WaitsFor {
    pub fn from_reason(reason: &str) -> Self {
        match reason {
            "ErrImageNeverPull"
            | "ErrImagePull"
            | "ImageInspectError"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "RegistryUnavailable" => Self::Image,
            "CrashLoopBackOff" => Self::Restart,
            "ContainerCreating" | "PodInitializing" => Self::Start,
            _ => Self::Other,
        }
    }
}
