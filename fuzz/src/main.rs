//! Every fuzz target in one program, which libFuzzer drives: `fuzz --target=NAME [OPTION…] CORPUS…`.
//!
//! A target takes any bytes. Where they make no sense to it, it returns; where what Petiole makes of them is not as it
//! must be, it panics. `fuzz/run` builds and runs this program; `fuzz/corpus/<target>` has the first inputs of each.
#![no_main]
mod bytes;
mod cdi;
mod checkpoint;
mod configuration;
mod details;
mod device;
mod external;
mod filters;
mod http2;
mod mdns;
mod mqtt;
mod onvif;
mod opcua;
mod pod;
mod probe;
mod slots;
mod udev;

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 16] = [
    ("cdi", cdi::run),
    ("checkpoint", checkpoint::run),
    ("configuration", configuration::run),
    ("details", details::run),
    ("external", external::run),
    ("filters", filters::run),
    ("hpack", http2::run_block),
    ("http2", http2::run_connection),
    ("mdns", mdns::run),
    ("mqtt", mqtt::run),
    ("onvif", onvif::run),
    ("opcua", opcua::run),
    ("pod", pod::run),
    ("probe", probe::run),
    ("slots", slots::run),
    ("udev", udev::run),
];

static CHOSEN: OnceLock<Target> = OnceLock::new();

fuzz_target!(init: choose(), |bytes| {
    CHOSEN.get().expect("a target is chosen first")(bytes);
});

/// libFuzzer leaves options that begin with two hyphens to the program.
fn choose() {
    let chosen = std::env::args().find_map(|a| Some(a.strip_prefix("--target=")?.to_owned()));
    let chosen = TARGETS
        .iter()
        .find(|(name, _)| chosen.as_deref() == Some(name));
    let names = TARGETS.map(|(name, _)| name);
    let (_, target) = chosen.unwrap_or_else(|| panic!("--target= must be one of {names:?}"));
    CHOSEN.get_or_init(|| *target);
}
