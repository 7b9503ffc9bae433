//! Parses the netlink messages of the kernel and of udev about devices: bytes to [`Event`]s. Pure.
//!
//! An event only says where to look again. The state of a device is read from sysfs.

/// A device, or a part of the tree, that may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Messages were lost, or a device moved: any device may have changed.
    Anything,
    Device {
        devpath: String,
        subsystem: String,
        /// True if only the device itself appeared or disappeared. The devices below it have events of their own.
        is_alone: bool,
        /// True if the device has disappeared. One of the same path is another one.
        is_removal: bool,
    },
}

/// The first bytes of udev's messages. A number in network order follows.
const UDEV_PREFIX: &[u8] = b"libudev\0";
const UDEV_MAGIC: u32 = 0xfeed_cafe;
/// The longest path, in bytes. No path of sysfs is longer. Beyond it: the message is ignored.
const PATH_MAX: usize = 4096;

/// Parses one message. Returns `None` if it is not about a device.
pub(super) fn parse(message: &[u8]) -> Option<Event> {
    let properties = match message.strip_prefix(UDEV_PREFIX) {
        Some(header) => udev_properties(message, header)?,
        // The text is `action@devpath`, then the properties.
        None => {
            let end = message.iter().position(|byte| *byte == 0)?;
            (message[..end].contains(&b'@')).then(|| &message[end + 1..])?
        }
    };
    let (mut action, mut devpath, mut subsystem) = (None, None, None);
    for property in properties.split(|byte| *byte == 0) {
        let Ok(text) = std::str::from_utf8(property) else {
            continue;
        };
        match text.split_once('=') {
            Some(("ACTION", value)) => action = Some(value),
            Some(("DEVPATH", value)) => devpath = Some(value),
            Some(("SUBSYSTEM", value)) => subsystem = Some(value),
            Some(_) | None => {}
        }
    }
    let devpath = devpath.filter(|path| is_device(path))?;
    let action = action?;
    if action == "move" {
        return Some(Event::Anything);
    }
    Some(Event::Device {
        devpath: devpath.to_owned(),
        subsystem: subsystem?.to_owned(),
        is_alone: matches!(action, "add" | "remove"),
        is_removal: action == "remove",
    })
}

/// Returns the properties in one of udev's messages; its header has their position.
fn udev_properties<'a>(message: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    let number = |at: usize| <[u8; 4]>::try_from(header.get(at..at + 4)?).ok();
    if u32::from_be_bytes(number(0)?) != UDEV_MAGIC {
        return None;
    }
    let from = usize::try_from(u32::from_ne_bytes(number(8)?)).ok()?;
    let length = usize::try_from(u32::from_ne_bytes(number(12)?)).ok()?;
    message.get(from..from.checked_add(length)?)
}

/// Returns whether a path is that of a device. Modules, drivers and file systems have events too.
fn is_device(devpath: &str) -> bool {
    let parts = || devpath.split('/').skip(1);
    devpath.len() <= PATH_MAX
        && devpath.starts_with("/devices/")
        && parts().all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kernel(action: &str, path: &str) -> Vec<u8> {
        format!("{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM=tty\0SEQNUM=4\0")
            .into_bytes()
    }

    fn udev(properties: &str, magic: u32) -> Vec<u8> {
        let mut message = UDEV_PREFIX.to_vec();
        message.extend(magic.to_be_bytes());
        let length = u32::try_from(properties.len()).unwrap();
        for number in [40, 40, length, 0, 0, 0] {
            message.extend(number.to_ne_bytes());
        }
        message.truncate(40);
        message.resize(40, 0);
        message.extend(properties.bytes());
        message
    }

    fn device(is_alone: bool, is_removal: bool) -> Event {
        Event::Device {
            devpath: "/devices/a/ttyUSB0".to_owned(),
            subsystem: "tty".to_owned(),
            is_alone,
            is_removal,
        }
    }

    #[test]
    fn messages_of_the_kernel_and_of_udev_say_where_to_look() {
        let path = "/devices/a/ttyUSB0";
        assert_eq!(parse(&kernel("add", path)), Some(device(true, false)));
        assert_eq!(parse(&kernel("remove", path)), Some(device(true, true)));
        assert_eq!(parse(&kernel("bind", path)), Some(device(false, false)));
        assert_eq!(parse(&kernel("move", path)), Some(Event::Anything));
        let properties = "ACTION=change\0DEVPATH=/devices/a/ttyUSB0\0SUBSYSTEM=tty\0";
        let message = udev(properties, UDEV_MAGIC);
        assert_eq!(parse(&message), Some(device(false, false)));
    }

    #[test]
    fn what_is_no_message_about_a_device_is_nothing() {
        for path in [
            "/module/zram",
            "/devices/../x",
            "/devices//x",
            "/bus/usb",
            "",
        ] {
            assert_eq!(parse(&kernel("add", path)), None, "{path}");
        }
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"add@/devices/a"), None);
        let properties = "ACTION=add\0DEVPATH=/devices/a\0SUBSYSTEM=tty\0";
        assert_eq!(parse(&udev(properties, 1)), None);
        assert_eq!(parse(&udev(properties, UDEV_MAGIC)[..44]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, is_udev: bool) {
            let mut message = if is_udev { udev("", UDEV_MAGIC)[..12].to_vec() } else { vec![] };
            message.extend(bytes);
            drop(parse(&message));
        }
    }
}
