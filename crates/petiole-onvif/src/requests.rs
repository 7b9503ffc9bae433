//! Writes the SOAP requests to a device. Pure.
use crate::xml::escaped;

/// A call of a service of ONVIF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// The time of the device; it needs no rights (ONVIF Core 5.12).
    SystemDateAndTime,
    NetworkInterfaces,
    DeviceInformation,
    /// The addresses of the other services.
    Capabilities,
    Profiles,
    /// The stream of the profile with this token.
    StreamUri(String),
}

const DEVICE: &str = "http://www.onvif.org/ver10/device/wsdl";
const MEDIA: &str = "http://www.onvif.org/ver10/media/wsdl";

impl Call {
    /// Returns the name of the operation.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::SystemDateAndTime => "GetSystemDateAndTime",
            Self::NetworkInterfaces => "GetNetworkInterfaces",
            Self::DeviceInformation => "GetDeviceInformation",
            Self::Capabilities => "GetCapabilities",
            Self::Profiles => "GetProfiles",
            Self::StreamUri(_) => "GetStreamUri",
        }
    }

    fn namespace(&self) -> &'static str {
        match self {
            Self::SystemDateAndTime
            | Self::NetworkInterfaces
            | Self::DeviceInformation
            | Self::Capabilities => DEVICE,
            Self::Profiles | Self::StreamUri(_) => MEDIA,
        }
    }

    /// Returns the media type of the request, with the action that some devices look at.
    pub(crate) fn content_type(&self) -> String {
        format!(
            "application/soap+xml; charset=utf-8; action=\"{}/{}\"",
            self.namespace(),
            self.name()
        )
    }

    /// Writes the envelope. `security` is an element of its header, or empty.
    pub(crate) fn envelope(&self, security: &str) -> String {
        let arguments = match self {
            Self::SystemDateAndTime
            | Self::NetworkInterfaces
            | Self::DeviceInformation
            | Self::Profiles => String::new(),
            Self::Capabilities => "<t:Category>Media</t:Category>".to_owned(),
            Self::StreamUri(profile) => format!(
                r#"<t:StreamSetup xmlns:tt="http://www.onvif.org/ver10/schema"><tt:Stream>RTP-Unicast</tt:Stream><tt:Transport><tt:Protocol>RTSP</tt:Protocol></tt:Transport></t:StreamSetup><t:ProfileToken>{}</t:ProfileToken>"#,
                escaped(profile)
            ),
        };
        let (name, namespace) = (self.name(), self.namespace());
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Header>{security}</s:Header><s:Body><t:{name} xmlns:t="{namespace}">{arguments}</t:{name}></s:Body></s:Envelope>"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    #[test]
    fn every_request_is_a_document_with_its_operation() {
        for call in [
            Call::SystemDateAndTime,
            Call::NetworkInterfaces,
            Call::DeviceInformation,
            Call::Capabilities,
            Call::Profiles,
            Call::StreamUri("a<b".to_owned()),
        ] {
            let root = xml::read(call.envelope("<x/>").as_bytes()).unwrap();
            assert!(root.at(&["Body", call.name()]).is_some(), "{call:?}");
            assert!(root.at(&["Header", "x"]).is_some());
        }
        let root = xml::read(Call::StreamUri("a<b".to_owned()).envelope("").as_bytes()).unwrap();
        assert_eq!(root.find("ProfileToken").unwrap().text, "a<b");
    }
}
