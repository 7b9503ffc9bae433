//! Akri's API of discovery handlers, `v0`. Handlers call `Registration`, and the agent calls `DiscoveryHandler`.
//!
//! [`DeviceList`] takes the place of `v0.DiscoverResponse`. It is bounded while it is decoded: two bytes on the wire can be
//! a device, and a device is a hundred bytes of memory.
use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{self, DecodeContext, WireType},
};
use std::fmt;

tonic::include_proto!("v0");

/// The most devices of a list. Beyond it: further ones are left out (`DiscoveryIncomplete`).
pub const DEVICES_MAX: usize = 4096;
/// The most bytes of one device on the wire. Beyond it: the device is left out (`DiscoveryIncomplete`).
pub const DEVICE_BYTES_MAX: usize = 64 * 1024;
/// The most mounts, the most device nodes, and the most names of properties for its connection, of one device.
/// Beyond it: the device is left out (`DiscoveryIncomplete`).
pub const PATHS_MAX: usize = 64;
/// The longest path of a mount or device node, in bytes. Beyond it: the device is left out (`DiscoveryIncomplete`).
pub const PATH_MAX: usize = 1024;
/// The most problems of a list. Beyond it: further ones are skipped.
pub const PROBLEMS_MAX: usize = 32;
/// The numbers of the fields.
const DEVICES: u32 = 1;
const INCOMPLETE: u32 = 1000;
const LEFT_OUT: u32 = 1001;
const PROBLEMS: u32 = 1002;

/// The bytes of a property. It may be secret, so no log shows them.
impl fmt::Debug for ByteData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A `v0.DiscoverResponse` within bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceList {
    pub devices: Vec<Device>,
    /// The number of devices beyond [`DEVICES_MAX`].
    pub beyond: usize,
    /// The number of devices that were larger than a device may be.
    pub too_large: usize,
    /// Whether the handler has not completed its first look.
    pub incomplete: bool,
    /// Whether the handler left out devices that are there.
    pub left_out: bool,
    /// What the handler could not use, and why.
    pub problems: Vec<String>,
}

impl Message for DeviceList {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        encoding::message::encode_repeated(DEVICES, &self.devices, buf);
        for (tag, flag) in [(INCOMPLETE, self.incomplete), (LEFT_OUT, self.left_out)] {
            if flag {
                encoding::bool::encode(tag, &flag, buf);
            }
        }
        encoding::string::encode_repeated(PROBLEMS, &self.problems, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            DEVICES if wire_type == WireType::LengthDelimited => {}
            INCOMPLETE => return encoding::bool::merge(wire_type, &mut self.incomplete, buf, ctx),
            LEFT_OUT => return encoding::bool::merge(wire_type, &mut self.left_out, buf, ctx),
            PROBLEMS if self.problems.len() < PROBLEMS_MAX => {
                return encoding::string::merge_repeated(wire_type, &mut self.problems, buf, ctx);
            }
            _ => return encoding::skip_field(wire_type, tag, buf, ctx),
        }
        if self.devices.len() >= DEVICES_MAX {
            self.beyond += 1;
            return encoding::skip_field(wire_type, tag, buf, ctx);
        }
        let len = usize::try_from(encoding::decode_varint(&mut *buf)?).unwrap_or(usize::MAX);
        if len > buf.remaining() {
            // The error of a message that is announced with a byte and has none.
            return Device::decode_length_delimited([1].as_slice()).map(drop);
        }
        if len > DEVICE_BYTES_MAX {
            self.too_large += 1;
            buf.advance(len);
            return Ok(());
        }
        let device = Device::decode(buf.copy_to_bytes(len))?;
        let lists = [
            device.mounts.len(),
            device.device_specs.len(),
            device.connection.len(),
        ];
        if lists.into_iter().all(|len| len <= PATHS_MAX) {
            self.devices.push(device)
        } else {
            self.too_large += 1
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        let flags = [(INCOMPLETE, self.incomplete), (LEFT_OUT, self.left_out)];
        let flags = flags.iter().filter(|(_, flag)| *flag);
        let flags = flags.map(|(tag, flag)| encoding::bool::encoded_len(*tag, flag));
        encoding::message::encoded_len_repeated(DEVICES, &self.devices)
            + flags.sum::<usize>()
            + encoding::string::encoded_len_repeated(PROBLEMS, &self.problems)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
