//! Reads the SOAP answers of a device. Pure.
use crate::{url::Url, xml::Element};
use jiff::{civil, tz::TimeZone};
use std::net::IpAddr;

/// The longest value, in bytes. Beyond it: it is cut.
const VALUE_MAX: usize = 128;
/// The most network interfaces of a device. Beyond it: further ones are not known.
const INTERFACES_MAX: usize = 16;
/// The most addresses of an interface. Beyond it: further ones are not known.
const INTERFACE_ADDRESSES_MAX: usize = 8;
/// The most profiles whose streams are asked for. Beyond it: further ones are not known.
pub(crate) const PROFILES_MAX: usize = 4;
/// The longest address of a stream, in bytes. Beyond it: it is left out.
const STREAM_MAX: usize = 512;

/// A network interface of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The hardware address as the device writes it.
    pub mac: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// What the manufacturer says about a device. A value that it does not say is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Information {
    /// Its maker.
    pub manufacturer: String,
    /// Its model.
    pub model: String,
    /// Its serial number.
    pub serial: String,
}

/// The error that a device answers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// True if it wants credentials, or others.
    pub(crate) is_unauthorized: bool,
    pub(crate) reason: String,
}

/// Returns the error of an answer, if it is one.
pub(crate) fn fault(root: &Element) -> Option<Fault> {
    let fault = root.at(&["Body", "Fault"])?;
    // Their place differs between devices.
    let codes = fault.all(&["Value", "faultcode"]);
    let is_unauthorized = codes.iter().any(|code| {
        let local = code.trimmed().rsplit(':').next().unwrap_or_default();
        ["NotAuthorized", "FailedAuthentication", "InvalidSecurity"].contains(&local)
    });
    let reason = fault
        .at(&["Reason", "Text"])
        .or_else(|| fault.at(&["faultstring"]));
    let reason = reason.map(value).filter(|reason| !reason.is_empty());
    let reason = reason.or_else(|| codes.last().copied().map(value));
    Some(Fault {
        is_unauthorized,
        reason: reason.unwrap_or_default(),
    })
}

/// Returns the time of the device in seconds since 1970, unless it is no time of the years 1970 to 9999.
pub(crate) fn time(root: &Element) -> Option<i64> {
    let utc = root.find("UTCDateTime")?;
    let date = |name: &str| utc.at(&["Date", name])?.trimmed().parse().ok();
    let time = |name: &str| utc.at(&["Time", name])?.trimmed().parse().ok();
    let year = utc.at(&["Date", "Year"])?.trimmed().parse().ok()?;
    let date = civil::Date::new(year, date("Month")?, date("Day")?).ok()?;
    // A leap second is the last one of its minute, too.
    let second: i8 = time("Second")?;
    let second = if second == 60 { 59 } else { second };
    let time = civil::Time::new(time("Hour")?, time("Minute")?, second, 0).ok()?;
    let time = TimeZone::UTC.to_timestamp(date.to_datetime(time)).ok()?;
    Some(time.as_second()).filter(|seconds| *seconds >= 0)
}

/// Returns the network interfaces that have a hardware address.
pub(crate) fn interfaces(root: &Element) -> Vec<Interface> {
    let response = root.find("GetNetworkInterfacesResponse");
    let all = response
        .into_iter()
        .flat_map(|response| response.children("NetworkInterfaces"));
    let interface = |element: &Element| {
        let mac = value(element.at(&["Info", "HwAddress"])?);
        let configs = ["IPv4", "IPv6"].into_iter();
        let configs = configs.filter_map(|family| element.at(&[family, "Config"]));
        let addresses = configs.flat_map(|config| config.all(&["Address"]));
        let addresses = addresses.filter_map(|address| address.trimmed().parse().ok());
        Some(Interface {
            mac,
            addresses: addresses.take(INTERFACE_ADDRESSES_MAX).collect(),
        })
    };
    all.take(INTERFACES_MAX).filter_map(interface).collect()
}

pub(crate) fn information(root: &Element) -> Option<Information> {
    let response = root.find("GetDeviceInformationResponse")?;
    let text = |name: &str| response.at(&[name]).map(value).unwrap_or_default();
    Some(Information {
        manufacturer: text("Manufacturer"),
        model: text("Model"),
        serial: text("SerialNumber"),
    })
}

/// Returns the address of the media service.
pub(crate) fn media(root: &Element) -> Option<Url> {
    let address = root.find("Media")?.find("XAddr")?;
    Url::parse(address.trimmed())
}

/// Returns the tokens of the first profiles.
pub(crate) fn profiles(root: &Element) -> Vec<String> {
    let response = root.find("GetProfilesResponse");
    let all = response
        .into_iter()
        .flat_map(|response| response.children("Profiles"));
    let tokens = all.filter_map(|profile| profile.attribute("token"));
    let fit = tokens.filter(|token| token.len() <= VALUE_MAX);
    fit.take(PROFILES_MAX).map(str::to_owned).collect()
}

/// Returns the address of a stream, without a user and a password, which some devices put into it.
pub(crate) fn stream(root: &Element) -> Option<String> {
    let uri = root.find("MediaUri")?.find("Uri")?.trimmed();
    let is_plain = uri.len() <= STREAM_MAX && uri.chars().all(|c| c.is_ascii_graphic());
    let (scheme, rest) = uri.split_once("://").filter(|_| is_plain)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    (!host.is_empty()).then(|| format!("{scheme}://{host}{path}"))
}

fn value(element: &Element) -> String {
    plain(element.trimmed())
}

/// Returns a text on one line, with a bound.
pub(crate) fn plain(text: &str) -> String {
    let mut plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let end = (0..=VALUE_MAX.min(plain.len()))
        .rev()
        .find(|end| plain.is_char_boundary(*end));
    plain.truncate(end.unwrap_or_default());
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    fn read(body: &str) -> Element {
        xml::read(format!("<s:Envelope><s:Body>{body}</s:Body></s:Envelope>").as_bytes()).unwrap()
    }

    #[test]
    fn the_time_is_that_of_utc() {
        let body = "<r><SystemDateAndTime><UTCDateTime><Time><Hour>7</Hour><Minute>50</Minute><Second>45</Second></Time>\
                    <Date><Year>2010</Year><Month>9</Month><Day>16</Day></Date></UTCDateTime></SystemDateAndTime></r>";
        assert_eq!(time(&read(body)), Some(1_284_623_445));
        let leap = body.replace("<Second>45", "<Second>60");
        assert_eq!(time(&read(&leap)), Some(1_284_623_459));
        let leap = body.replace("2010", "2024").replace("<Month>9", "<Month>2");
        let leap = leap.replace("<Day>16", "<Day>29");
        assert_eq!(time(&read(&leap)), Some(1_709_193_045));
        for (from, to) in [
            ("<Month>9", "<Month>13"),
            ("<Day>16", "<Day>31"),
            ("<Second>45", "<Second>61"),
            ("2010", "1969"),
            ("2010", "10000"),
        ] {
            assert_eq!(time(&read(&body.replace(from, to))), None, "{to}");
        }
        assert_eq!(time(&read("<r/>")), None);
    }

    #[test]
    fn an_interface_has_its_hardware_address_and_all_addresses() {
        let body = "<GetNetworkInterfacesResponse><NetworkInterfaces token='a'><Info><Name>eth0</Name><HwAddress>00:11:22:33:44:55</HwAddress></Info>\
                    <IPv4><Config><Manual><Address>10.0.0.7</Address></Manual><FromDHCP><Address>10.0.0.8</Address></FromDHCP></Config></IPv4>\
                    </NetworkInterfaces><NetworkInterfaces/></GetNetworkInterfacesResponse>";
        let found = interfaces(&read(body));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].mac, "00:11:22:33:44:55");
        assert_eq!(found[0].addresses.len(), 2);
    }

    #[test]
    fn a_fault_wants_credentials_wherever_its_code_stands() {
        for (code, expected) in [
            (
                "<Code><Value>s:Sender</Value><Subcode><Value>ter:NotAuthorized</Value></Subcode></Code>",
                true,
            ),
            (
                "<Code><Value>wsse:FailedAuthentication</Value></Code>",
                true,
            ),
            ("<faultcode>ter:NotAuthorized</faultcode>", true),
            ("<Code><Value>ter:ActionNotSupported</Value></Code>", false),
        ] {
            let root = read(&format!(
                "<Fault>{code}<Reason><Text>no\nway</Text></Reason></Fault>"
            ));
            let fault = fault(&root).unwrap();
            assert_eq!(
                (fault.is_unauthorized, fault.reason.as_str()),
                (expected, "no way")
            );
        }
        assert_eq!(fault(&read("<a/>")), None);
    }

    #[test]
    fn a_stream_has_no_password() {
        let of = |uri: &str| stream(&read(&format!("<MediaUri><Uri>{uri}</Uri></MediaUri>")));
        assert_eq!(
            of("rtsp://admin:pass@10.0.0.7:554/1?a=b").unwrap(),
            "rtsp://10.0.0.7:554/1?a=b"
        );
        assert_eq!(of("rtsp://10.0.0.7").unwrap(), "rtsp://10.0.0.7");
        assert_eq!(of("rtsp://"), None);
        assert_eq!(of("no uri"), None);
    }

    #[test]
    fn values_are_cut_at_a_character() {
        let text = format!(
            "<GetDeviceInformationResponse><Model>{}</Model></GetDeviceInformationResponse>",
            "\u{e9}".repeat(100)
        );
        let model = information(&read(&text)).unwrap().model;
        assert_eq!(model.len(), VALUE_MAX);
    }
}
