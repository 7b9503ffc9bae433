//! Names what Dynamic Resource Allocation (KEP 4381) knows of Petiole: the driver, and the pool, the class and the devices of a
//! Configuration. Pure.
use super::{instance_name::InstanceName, names::shortened, typed_names::ConfigurationKey};

/// The name of the driver, in claims, slices and classes.
pub const DRIVER: &str = "akri.sh";
/// The kind of the CDI devices that containers get by claims.
pub const CDI_KIND: &str = "akri.sh/claim";
/// The label of the classes of Configurations, and its value.
pub const CLASS_LABEL: &str = "app.kubernetes.io/managed-by";
pub const CLASS_MANAGER: &str = "petiole";
/// The beginning of their names.
pub const CLASS_PREFIX: &str = "akri.";
/// The longest name of a device, in bytes, which is Kubernetes' own. Beyond it: the name of its Instance is cut, and ends with a digest.
const DEVICE_NAME_MAX: usize = 63;

/// Returns the name of the pool that has the devices of a Configuration.
pub fn pool_name(of: &ConfigurationKey) -> String {
    format!("{}/{}", of.namespace, of.name)
}

/// Returns the Configuration of a pool.
pub fn configuration_of(pool: &str) -> Option<ConfigurationKey> {
    let (namespace, name) = pool.split_once('/')?;
    Some(ConfigurationKey::new(namespace, name))
}

/// Returns the name of the DeviceClass of a Configuration.
pub fn class_name(of: &ConfigurationKey) -> String {
    format!("{CLASS_PREFIX}{}.{}", of.namespace, of.name)
}

/// Returns the name of the device of an Instance.
pub fn device_name(instance: &InstanceName) -> String {
    shortened(&instance.replace('.', "-"), DEVICE_NAME_MAX)
}

/// Returns the name of the CDI file of a claim.
pub fn cdi_file_name(claim_uid: &str) -> String {
    format!("akri.sh-claim-{claim_uid}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_after_a_configuration_leads_back_to_it() {
        let key = ConfigurationKey::new("lab", "cam");
        assert_eq!(pool_name(&key), "lab/cam");
        assert_eq!(configuration_of("lab/cam"), Some(key.clone()));
        assert_eq!(configuration_of("lab"), None);
        assert_eq!(class_name(&key), "akri.lab.cam");
    }

    #[test]
    fn a_device_is_called_as_its_instance_if_that_is_a_label() {
        assert_eq!(device_name(&"cam-1a2b3c".into()), "cam-1a2b3c");
        let long = "x".repeat(80);
        let [a, b] = ["a", "b"].map(|end| device_name(&format!("{long}{end}").into()));
        assert!(a.len() <= DEVICE_NAME_MAX && a != b, "{a} {b}");
    }
}
