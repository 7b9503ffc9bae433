//! Names of Instances that are made of what udev knows of devices.
use super::{machines::hub, *};
use crate::model::name_template::NameTemplate;

#[test]
fn two_sticks_with_one_serial_number_have_two_names_by_their_ports_and_one_by_the_number() {
    let machine = Machine::with_udev();
    hub(&machine, &[(1, "A1"), (2, "A1")]);
    let found = machine.devices(&rule(r#"KERNEL=="ttyUSB*""#));
    let names = |template: &str| {
        let template: NameTemplate = template.parse().unwrap();
        let names = found
            .iter()
            .map(|device| template.name(&[&device.properties]).unwrap());
        names.map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        names("zigbee-{UDEV_ID_PATH_TAG}"),
        [
            "zigbee-pci-0000-00-14-0-usb-0-1-1-1-0",
            "zigbee-pci-0000-00-14-0-usb-0-1-2-1-0"
        ]
    );
    assert_eq!(names("zigbee-{UDEV_ID_SERIAL_SHORT}"), ["zigbee-a1"; 2]);
}
