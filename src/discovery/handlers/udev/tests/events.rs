//! Tests of machines that change: the devices that are offered after each event.
use super::{scan::UDEV_PATIENCE, *};
use std::io;

struct Reported(mpsc::Receiver<Vec<Event>>);

impl Events for Reported {
    async fn next(&mut self) -> io::Result<Vec<Event>> {
        self.0
            .recv()
            .await
            .ok_or_else(|| io::Error::other("the test is over"))
    }
}

/// A running discovery, and the events that it receives.
struct Running {
    events: mpsc::Sender<Vec<Event>>,
    found: watch::Receiver<DeviceSet>,
    run: tokio::task::JoinSet<Result<(), DiscoveryError>>,
}

impl Running {
    fn start(machine: &Machine, details: &str) -> Self {
        let (events, reported) = mpsc::channel(16);
        let (sender, found) = watch::channel(DeviceSet::default());
        let look = machine.look(details);
        let mut run = tokio::task::JoinSet::new();
        run.spawn(async move { follow(look, Reported(reported), &sender).await });
        Self { events, found, run }
    }

    async fn happens(&self, events: &[(&str, &str, &str)]) {
        let event = |(action, devpath, subsystem): &(&str, &str, &str)| {
            let text = format!(
                "{action}@{devpath}\0ACTION={action}\0DEVPATH={devpath}\0SUBSYSTEM={subsystem}\0"
            );
            uevent::parse(text.as_bytes()).unwrap()
        };
        self.events
            .send(events.iter().map(event).collect())
            .await
            .unwrap();
    }

    async fn until_there_are(&mut self, count: usize) -> DeviceSet {
        let wait = self
            .found
            .wait_for(|set| set.complete && set.devices.len() == count);
        let set = tokio::time::timeout(Duration::from_secs(30), wait).await;
        set.expect("in time").unwrap().clone()
    }
}

fn tty(machine: &Machine, n: u32) -> String {
    let devpath = format!("/devices/platform/uart/tty/ttyS{n}");
    machine.plug(Part {
        subsystem: "class/tty",
        devpath: &devpath,
        uevent: &format!("MAJOR=4\nMINOR={n}\nDEVNAME=ttyS{n}\n"),
        attributes: &[],
    });
    devpath
}

const TTYS: &str = "udevRules: ['SUBSYSTEM==\"tty\"']";

#[tokio::test]
async fn a_device_that_is_plugged_and_pulled_comes_and_goes_by_its_event_alone() {
    let machine = Machine::new();
    tty(&machine, 0);
    let mut running = Running::start(&machine, TTYS);
    running.until_there_are(1).await;
    let path = tty(&machine, 1);
    // A device is not searched for without an event that names it.
    tty(&machine, 2);
    running.happens(&[("add", &path, "tty")]).await;
    running.until_there_are(2).await;
    machine.pull(&path);
    running.happens(&[("remove", &path, "tty")]).await;
    running.until_there_are(1).await;
    running.events.send(vec![Event::Anything]).await.unwrap();
    running.until_there_are(2).await;
}

#[tokio::test]
async fn what_is_below_a_device_that_went_goes_with_it_and_a_sibling_stays() {
    let machine = Machine::new();
    for port in ["1-1", "1-10"] {
        machine.plug(Part {
            subsystem: "class/tty",
            devpath: &format!("/devices/usb1/{port}/tty/ttyACM{}", port.len()),
            uevent: &format!(
                "MAJOR=166\nMINOR={}\nDEVNAME=ttyACM{}\n",
                port.len(),
                port.len()
            ),
            attributes: &[],
        });
    }
    let mut running = Running::start(&machine, TTYS);
    running.until_there_are(2).await;
    machine.pull("/devices/usb1/1-1");
    running
        .happens(&[("remove", "/devices/usb1/1-1", "usb")])
        .await;
    let set = running.until_there_are(1).await;
    let left = set.devices.keys().next().unwrap().as_str();
    assert_eq!(left, "/devices/usb1/1-10/tty/ttyACM4");
}

#[tokio::test]
async fn an_event_of_a_parent_looks_at_what_is_below_it() {
    let machine = Machine::new();
    let parent = |driver: &'static str| {
        fs::remove_file(machine.folder("/devices/platform/uart/driver")).ok();
        machine.plug(Part {
            subsystem: "bus/platform",
            devpath: "/devices/platform/uart",
            uevent: "",
            attributes: &[("driver", driver)],
        });
    };
    parent("other");
    tty(&machine, 0);
    let mut running = Running::start(
        &machine,
        &rule(r#"SUBSYSTEM=="tty", DRIVERS=="serial8250""#),
    );
    running.until_there_are(0).await;
    parent("serial8250");
    running
        .happens(&[("bind", "/devices/platform/uart", "platform")])
        .await;
    running.until_there_are(1).await;
    parent("other");
    running
        .happens(&[("unbind", "/devices/platform/uart", "platform")])
        .await;
    running.until_there_are(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_device_is_offered_when_udev_has_looked_at_it_or_has_had_the_time() {
    let machine = Machine::with_udev();
    let mut running = Running::start(&machine, TTYS);
    running.until_there_are(0).await;
    let path = tty(&machine, 1);
    let began = Instant::now();
    running.happens(&[("add", &path, "tty")]).await;
    running.until_there_are(1).await;
    assert!(began.elapsed() >= UDEV_PATIENCE, "{:?}", began.elapsed());
    let path = tty(&machine, 2);
    running.happens(&[("add", &path, "tty")]).await;
    machine.udev_says("c4:2", "E:ID_BUS=pci\n");
    let began = Instant::now();
    running.happens(&[("add", &path, "tty")]).await;
    running.until_there_are(2).await;
    assert!(began.elapsed() < UDEV_PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn each_device_has_its_own_time_for_udev() {
    let machine = Machine::with_udev();
    let mut running = Running::start(&machine, TTYS);
    running.until_there_are(0).await;
    let first = tty(&machine, 1);
    running.happens(&[("add", &first, "tty")]).await;
    sleep(Duration::from_millis(2_900)).await;
    let second = tty(&machine, 2);
    let began = Instant::now();
    running.happens(&[("add", &second, "tty")]).await;
    let set = running.until_there_are(1).await;
    assert_eq!(set.devices.keys().next().unwrap().as_str(), first);
    running.until_there_are(2).await;
    assert!(began.elapsed() >= UDEV_PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_offered_without_udevs_entry_stays_at_its_later_events() {
    let machine = Machine::with_udev();
    let path = tty(&machine, 1);
    let mut running = Running::start(&machine, TTYS);
    running.until_there_are(1).await;
    running
        .happens(&[
            ("change", &path, "tty"),
            ("bind", "/devices/platform/uart", "platform"),
        ])
        .await;
    running.events.send(vec![Event::Anything]).await.unwrap();
    // It is published with each change, so that the change of a second device comes after those events.
    tty(&machine, 2);
    let wait = running.found.wait_for(|set| set.devices.len() != 1);
    let set = tokio::time::timeout(Duration::from_secs(30), wait).await;
    assert_eq!(set.unwrap().unwrap().devices.len(), 2);
    // Another device of this name has its own time.
    machine.pull(&path);
    running.happens(&[("remove", &path, "tty")]).await;
    running.until_there_are(1).await;
    tty(&machine, 1);
    let began = Instant::now();
    running.happens(&[("add", &path, "tty")]).await;
    running.until_there_are(2).await;
    assert!(began.elapsed() >= UDEV_PATIENCE, "{:?}", began.elapsed());
    // And so it has if both events come at once.
    let began = Instant::now();
    running
        .happens(&[("remove", &path, "tty"), ("add", &path, "tty")])
        .await;
    running.until_there_are(1).await;
    running.until_there_are(2).await;
    assert!(began.elapsed() >= UDEV_PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_machine_without_sysfs_is_an_error_that_names_the_folder() {
    let machine = Machine::new();
    fs::remove_dir_all(machine.root.path().join("sys")).unwrap();
    let mut running = Running::start(&machine, TTYS);
    let ended = running.run.join_next().await.unwrap().unwrap();
    assert!(ended.unwrap_err().to_string().contains("sys/devices"));
}

#[tokio::test]
async fn the_kernel_lets_any_user_listen() {
    let monitor = Monitor::open();
    assert!(monitor.is_ok(), "{:?}", monitor.err());
}

const GROUPED: &str =
    r#"{groupRecursive: true, udevRules: ['ATTR{idVendor}=="046d"', 'KERNEL=="video*"']}"#;

/// The number of device nodes of a group; 0 if it is not offered.
fn nodes_of(set: &DeviceSet, top: &str) -> usize {
    let device = set.devices.iter().find(|(id, _)| id.as_str() == top);
    device.map_or(0, |(_, device)| device.device_nodes.len())
}

#[tokio::test(start_paused = true)]
async fn a_group_is_offered_when_it_has_not_grown_for_a_while() {
    let machine = Machine::new();
    let was_there = machine.camera("1-1");
    machine.video(&was_there, 0);
    let mut running = Running::start(&machine, GROUPED);
    let began = Instant::now();
    running.until_there_are(1).await;
    assert!(began.elapsed() < Duration::from_secs(1), "it was there");
    let top = machine.camera("1-2");
    running.happens(&[("add", &top, "usb")]).await;
    for n in 1..4 {
        sleep(Duration::from_millis(400)).await;
        let part = machine.video(&top, n);
        running.happens(&[("add", &part, "video4linux")]).await;
    }
    let grown = machine.video(&was_there, 9);
    running.happens(&[("add", &grown, "video4linux")]).await;
    let set = running.until_there_are(2).await;
    assert_eq!((nodes_of(&set, &top), nodes_of(&set, &was_there)), (4, 2));
    assert!(
        began.elapsed() >= Duration::from_millis(2_200),
        "{:?}",
        began.elapsed()
    );
    let whole = running.found.wait_for(|set| nodes_of(set, &was_there) == 3);
    whole.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_is_not_offered_while_udev_is_at_work_on_its_parts() {
    let machine = Machine::with_udev();
    let mut running = Running::start(&machine, GROUPED);
    running.until_there_are(0).await;
    machine.udev_says("c189:1", "E:ID_BUS=usb\n");
    let top = machine.camera("1-1");
    let part = machine.video(&top, 0);
    let added = [("add", &*top, "usb"), ("add", &*part, "video4linux")];
    running.happens(&added).await;
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(nodes_of(&running.found.borrow(), &top), 0);
    machine.udev_says("c81:0", "E:ID_BUS=usb\n");
    running.happens(&added[1..]).await;
    let set = running.until_there_are(1).await;
    assert_eq!(nodes_of(&set, &top), 2);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_loses_a_part_changes_at_once_whatever_it_has_got() {
    let machine = Machine::new();
    let top = machine.camera("1-1");
    let first = machine.video(&top, 0);
    let mut running = Running::start(&machine, GROUPED);
    running.until_there_are(1).await;
    machine.pull(&first);
    let others = [1, 2].map(|n| machine.video(&top, n));
    let began = Instant::now();
    running
        .happens(&[
            ("remove", &first, "video4linux"),
            ("add", &others[0], "video4linux"),
            ("add", &others[1], "video4linux"),
        ])
        .await;
    let changed = running.found.wait_for(|set| nodes_of(set, &top) == 3);
    changed.await.unwrap();
    machine.pull(&others[0]);
    running
        .happens(&[("remove", &others[0], "video4linux")])
        .await;
    let lost = running.found.wait_for(|set| nodes_of(set, &top) == 2);
    lost.await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    // A part that is back a moment later was reset.
    machine.video(&top, 1);
    running.happens(&[("add", &others[0], "video4linux")]).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(nodes_of(&running.found.borrow(), &top), 2);
    let whole = running.found.wait_for(|set| nodes_of(set, &top) == 3);
    whole.await.unwrap();
}
