//! Asks by SNMP, version 2c (RFC 3416), for a description: one datagram, and one back. Pure.
use crate::{
    ber::{OBJECT_ID, OCTET_STRING, Reader, SEQUENCE, item, number, object_id},
    facts::Facts,
    failure::Failure,
};

const PROTOCOL: &str = "SNMP";
const VERSION_2C: u32 = 1;
const GET: u8 = 0xA0;
const RESPONSE: u8 = 0xA2;
const NULL: u8 = 0x05;
/// The objects that are asked for, and the names of their facts: those of SNMPv2-MIB (RFC 3418), and `entPhysicalSerialNum.1` (RFC 6933).
const OBJECTS: [(&[u8], &str); 5] = [
    (&[0x2B, 6, 1, 2, 1, 1, 1, 0], "DESCRIPTION"),
    (&[0x2B, 6, 1, 2, 1, 1, 2, 0], "OBJECT_ID"),
    (&[0x2B, 6, 1, 2, 1, 1, 5, 0], "NAME"),
    (&[0x2B, 6, 1, 2, 1, 1, 6, 0], "LOCATION"),
    (&[0x2B, 6, 1, 2, 1, 47, 1, 1, 1, 1, 11, 1], "SERIAL_NUMBER"),
];

/// Returns the request with this number.
pub(crate) fn request(community: &str, id: u32) -> Vec<u8> {
    let object =
        |(id, _): &(&[u8], _)| item(SEQUENCE, &[item(OBJECT_ID, id), item(NULL, &[])].concat());
    let objects = item(
        SEQUENCE,
        &OBJECTS.iter().flat_map(object).collect::<Vec<u8>>(),
    );
    let get = item(GET, &[number(id), number(0), number(0), objects].concat());
    let community = item(OCTET_STRING, community.as_bytes());
    item(SEQUENCE, &[number(VERSION_2C), community, get].concat())
}

/// Reads a datagram. Returns `None` if it is no answer to the request with this number.
pub(crate) fn answer(datagram: &[u8], id: u32) -> Option<Result<Facts, Failure>> {
    let mut message = Reader(datagram).open(SEQUENCE)?;
    message.number()?;
    message.open(OCTET_STRING)?;
    let mut response = message.open(RESPONSE)?;
    if response.number()? != id {
        return None;
    }
    let error = response.number()?;
    response.number()?;
    if error != 0 {
        return Some(Err(Failure::Refused(PROTOCOL, error)));
    }
    let mut facts = Facts::default();
    for variable in response.open(SEQUENCE)? {
        let mut variable = Reader(variable.content);
        let id = variable.open(OBJECT_ID)?.0;
        let value = variable.next()?;
        let Some((_, name)) = OBJECTS.iter().find(|(known, _)| *known == id) else {
            continue;
        };
        // An object that is not there has the tag of its exception (RFC 3416 3).
        match value.tag {
            OCTET_STRING => facts.set_bytes(name, value.content),
            OBJECT_ID => facts.set(name, &object_id(value.content)),
            _ => {}
        }
    }
    Some(match facts.get("DESCRIPTION") {
        Some(_) => Ok(facts),
        None => Err(Failure::Missing("sysDescr".to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ber::INTEGER;

    fn response(id: u32, error: u8, variables: &[u8]) -> Vec<u8> {
        let numbers = [
            item(INTEGER, &id.to_be_bytes()),
            item(INTEGER, &[error]),
            item(INTEGER, &[0]),
        ];
        let response = item(
            RESPONSE,
            &[numbers.concat(), item(SEQUENCE, variables)].concat(),
        );
        let head = [item(INTEGER, &[1]), item(OCTET_STRING, b"public")].concat();
        item(SEQUENCE, &[head, response].concat())
    }

    fn variable(object: usize, tag: u8, value: &[u8]) -> Vec<u8> {
        let id = item(OBJECT_ID, OBJECTS[object].0);
        item(SEQUENCE, &[id, item(tag, value)].concat())
    }

    #[test]
    fn the_request_has_the_community_and_the_objects() {
        let request = request("plant", 0x7F01_0203);
        let mut message = Reader(&request).open(SEQUENCE).unwrap();
        assert_eq!(message.number(), Some(1));
        assert_eq!(message.open(OCTET_STRING).unwrap().0, b"plant");
        let mut get = message.open(GET).unwrap();
        assert_eq!(
            [get.number(), get.number(), get.number()],
            [Some(0x7F01_0203), Some(0), Some(0)]
        );
        assert_eq!(get.open(SEQUENCE).unwrap().count(), OBJECTS.len());
    }

    #[test]
    fn an_answer_has_what_the_host_knows_of_the_objects() {
        let variables = [
            variable(0, OCTET_STRING, b"Acme\r\nSwitch"),
            variable(1, OBJECT_ID, &[0x2B, 6, 1]),
            variable(4, 0x81, &[]), // noSuchInstance
        ];
        let facts = answer(&response(7, 0, &variables.concat()), 7)
            .unwrap()
            .unwrap();
        let facts: Vec<_> = facts.iter().collect();
        assert_eq!(
            facts,
            [("DESCRIPTION", "Acme  Switch"), ("OBJECT_ID", "1.3.6.1")]
        );
    }

    #[test]
    fn another_request_and_an_echo_are_no_answer_and_an_error_is_one() {
        let described = variable(0, OCTET_STRING, b"x");
        assert!(answer(&response(8, 0, &described), 7).is_none());
        assert!(answer(&request("public", 7), 7).is_none());
        assert_eq!(
            answer(&response(7, 5, &described), 7),
            Some(Err(Failure::Refused("SNMP", 5)))
        );
        let missing = Failure::Missing("sysDescr".to_owned());
        assert_eq!(
            answer(&response(7, 0, &variable(2, OCTET_STRING, b"x")), 7),
            Some(Err(missing))
        );
    }
}
