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

/// The most devices of a list. Further ones are counted and skipped.
pub const DEVICES_MAX: usize = 4096;
/// The most bytes of one device on the wire.
pub const DEVICE_BYTES_MAX: usize = 64 * 1024;
/// The most mounts, and the most device nodes, of one device.
pub const PATHS_MAX: usize = 64;
/// The number of the field `devices`.
const DEVICES: u32 = 1;

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
}

impl Message for DeviceList {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        encoding::message::encode_repeated(DEVICES, &self.devices, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != DEVICES || wire_type != WireType::LengthDelimited {
            return encoding::skip_field(wire_type, tag, buf, ctx);
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
        match device.mounts.len().max(device.device_specs.len()) {
            0..=PATHS_MAX => self.devices.push(device),
            _ => self.too_large += 1,
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        encoding::message::encoded_len_repeated(DEVICES, &self.devices)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
