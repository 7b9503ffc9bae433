//! Asks by Modbus TCP for the identification of a device: function 43/14 (Modbus Application Protocol V1.1b3, 6.21). Pure.
use crate::{facts::Facts, failure::Failure, turn::Turn};

const PROTOCOL: &str = "Modbus";
const FUNCTION: u8 = 0x2B;
const KIND: u8 = 0x0E;
/// All objects of the category "regular", or as many as the device has.
const REGULAR: u8 = 2;
const EXCEPTION: u8 = 0x80;
/// The bytes before the unit (Modbus Messaging on TCP/IP V1.0b, 3.1.3).
const HEAD: usize = 6;
/// The most bytes of a message of Modbus after its length. Beyond it: the host is not identified.
const BODY_MAX: usize = 254;
/// The most requests for the objects of one device, which has 7 of them. Beyond it: further ones are not known.
pub const REQUESTS_MAX: u16 = 8;
/// The names of the facts of the objects.
const OBJECTS: [&str; 7] = [
    "VENDOR",
    "PRODUCT_CODE",
    "VERSION",
    "VENDOR_URL",
    "NAME",
    "MODEL",
    "APPLICATION_NAME",
];

/// A conversation with one unit.
#[derive(Debug, Default)]
pub(crate) struct Modbus {
    unit: u8,
    asked: u16,
    received: Vec<u8>,
    facts: Facts,
}

impl Modbus {
    /// Begins, with a request to send.
    pub(crate) fn start(unit: u8) -> (Self, Vec<u8>) {
        let mut modbus = Self {
            unit,
            ..Self::default()
        };
        let request = modbus.request(0);
        (modbus, request)
    }

    fn request(&mut self, object: u8) -> Vec<u8> {
        self.asked += 1;
        let [high, low] = self.asked.to_be_bytes();
        vec![
            high, low, 0, 0, 0, 5, self.unit, FUNCTION, KIND, REGULAR, object,
        ]
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Turn, Failure> {
        let foreign = Failure::Foreign(PROTOCOL);
        self.received.extend_from_slice(bytes);
        let Some((head, rest)) = self.received.split_first_chunk::<HEAD>() else {
            return Ok(Turn::More);
        };
        let [id_high, id_low, 0, 0, high, low] = *head else {
            return Err(foreign);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let is_ours = u16::from_be_bytes([id_high, id_low]) == self.asked;
        if !is_ours || !(2..=BODY_MAX).contains(&length) || rest.len() > length {
            return Err(foreign);
        }
        let Some(&[_unit, function, ref answer @ ..]) = rest.get(..length) else {
            return Ok(Turn::More);
        };
        if function == FUNCTION | EXCEPTION {
            // 1 to 3: a device that has no identification. Others are of a gateway that does not reach the unit.
            return match answer {
                [1..=3] => Ok(Turn::Done(std::mem::take(&mut self.facts))),
                [code] => Err(Failure::Refused(PROTOCOL, u32::from(*code))),
                _ => Err(foreign),
            };
        }
        let [
            KIND,
            _category,
            _conformity,
            more,
            next,
            count,
            objects @ ..,
        ] = answer
        else {
            return Err(foreign);
        };
        if function != FUNCTION {
            return Err(foreign);
        }
        let (more, next) = (*more == 0xFF, *next);
        let mut objects = objects;
        for _ in 0..*count {
            let [object, size, rest @ ..] = objects else {
                return Err(foreign);
            };
            let (value, rest) = rest
                .split_at_checked(usize::from(*size))
                .ok_or(foreign.clone())?;
            if let Some(name) = OBJECTS.get(usize::from(*object)) {
                self.facts.set_bytes(name, value);
            }
            objects = rest;
        }
        self.received.clear();
        // The facts that are there stay if a device has more without end.
        if more && self.asked < REQUESTS_MAX {
            Ok(Turn::Send(self.request(next)))
        } else {
            Ok(Turn::Done(std::mem::take(&mut self.facts)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: u8, pdu: &[u8]) -> Vec<u8> {
        [&[0, id, 0, 0, 0, pdu.len() as u8 + 1, 1][..], pdu].concat()
    }

    #[test]
    fn objects_come_in_one_answer_or_several_and_in_any_parts() {
        let (mut modbus, request) = Modbus::start(1);
        assert_eq!(request, [0, 1, 0, 0, 0, 5, 1, 0x2B, 0x0E, 2, 0]);
        let first = answer(1, b"\x2B\x0E\x02\x82\xFF\x04\x02\x00\x04Acme\x02\x031.7");
        let (last, parts) = first.split_last().unwrap();
        for byte in parts {
            assert_eq!(modbus.receive(&[*byte]), Ok(Turn::More));
        }
        let Ok(Turn::Send(request)) = modbus.receive(&[*last]) else {
            panic!("there are more objects");
        };
        assert_eq!(request, [0, 2, 0, 0, 0, 5, 1, 0x2B, 0x0E, 2, 4]);
        let second = answer(2, b"\x2B\x0E\x02\x82\x00\x00\x02\x04\x05Press\x81\x01x");
        let Ok(Turn::Done(facts)) = modbus.receive(&second) else {
            panic!("all is said");
        };
        let facts: Vec<_> = facts.iter().collect();
        assert_eq!(
            facts,
            [("NAME", "Press"), ("VENDOR", "Acme"), ("VERSION", "1.7")]
        );
    }

    #[test]
    fn a_device_may_have_no_identification_and_a_gateway_no_device() {
        let (mut modbus, _) = Modbus::start(1);
        assert_eq!(
            modbus.receive(&answer(1, &[0xAB, 1])),
            Ok(Turn::Done(Facts::default()))
        );
        let (mut modbus, _) = Modbus::start(1);
        assert_eq!(
            modbus.receive(&answer(1, &[0xAB, 11])),
            Err(Failure::Refused("Modbus", 11))
        );
    }

    #[test]
    fn a_device_that_has_more_without_end_is_asked_a_few_times() {
        let (mut modbus, _) = Modbus::start(1);
        for id in 1..REQUESTS_MAX {
            let more = answer(id as u8, b"\x2B\x0E\x02\x82\xFF\x00\x01\x00\x01A");
            assert!(matches!(modbus.receive(&more), Ok(Turn::Send(_))));
        }
        let more = answer(REQUESTS_MAX as u8, b"\x2B\x0E\x02\x82\xFF\x00\x00");
        assert!(matches!(modbus.receive(&more), Ok(Turn::Done(_))));
    }

    #[test]
    fn an_echo_and_other_protocols_are_foreign() {
        let (_, echo) = Modbus::start(1);
        for bytes in [
            &echo[..],
            b"SSH-2.0-x",
            b"HTTP/1.1 400",
            &answer(9, &[0xAB, 1]),
            &answer(1, b"\x2B\x0E\x02\x82\x00\x00\x01\x00\x09A"),
        ] {
            let (mut modbus, _) = Modbus::start(1);
            assert_eq!(
                modbus.receive(bytes),
                Err(Failure::Foreign("Modbus")),
                "{bytes:?}"
            );
        }
    }
}
