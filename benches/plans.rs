//! Measures the pure parts of a claim separately, to find the cost of a change to them. `benches/node` measures what
//! users see.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use petiole::{
    api::instance::{Instance, InstanceSpec},
    model::{
        instance_name::InstanceKey,
        instance_name::InstanceName,
        slot::SlotId,
        slot_table::{ObservedSlots, Precedence, Resource, SlotTable},
    },
    store::{
        Store as _,
        folder::{FolderStore, Settings},
    },
};
use std::{collections::BTreeMap, hint::black_box, time::Duration};

const CAPACITY: u32 = 5;

fn instance_name(n: usize) -> InstanceName {
    format!("camera-{n:06x}").into()
}

/// Returns Instances of one Configuration. Every second slot is in use on this node.
fn observed(count: usize) -> Vec<ObservedSlots> {
    let usage = |name: &InstanceName| -> BTreeMap<String, String> {
        let used = (0..CAPACITY).step_by(2);
        used.map(|index| (SlotId::new(name, index).to_string(), "node-a".to_owned()))
            .collect()
    };
    let slots = |n| ObservedSlots {
        key: InstanceKey::new("default", instance_name(n)),
        precedence: Precedence::default(),
        configuration: "camera".into(),
        capacity: CAPACITY,
        users_max: CAPACITY,
        is_offered: true,
        is_by_claims: false,
        is_own: false,
        told: BTreeMap::new(),
        usage: usage(&instance_name(n)),
    };
    (0..count).map(slots).collect()
}

fn table(count: usize) -> SlotTable {
    let mut table = SlotTable::new("node-a");
    table.observe(observed(count));
    table
}

fn slot_table(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("slot table");
    for count in [100, 1000] {
        let instances = observed(count);
        group.bench_function(BenchmarkId::new("observe", count), |bencher| {
            let mut table = table(count);
            bencher.iter_batched(
                || instances.clone(),
                |instances| table.observe(instances),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("claim, begin, settle", count), |bencher| {
            let resource = Resource::Instance(instance_name(7));
            let ids = [vec![SlotId::new(instance_name(7), 1).to_string()]];
            let mut table = table(count);
            bencher.iter(|| {
                let claim = table.plan_claim(&resource, &ids, &Default::default());
                let changes: Vec<_> = claim.unwrap().changes().cloned().collect();
                table.begin(&changes);
                table.settle(&changes, Some(Duration::from_secs(1)));
            });
        });
        group.bench_function(BenchmarkId::new("lists", count), |bencher| {
            let table = table(count);
            bencher.iter(|| {
                for n in 0..count {
                    black_box(table.instance_list(&instance_name(n)));
                }
                black_box(table.configuration_list(&"camera".into()));
            });
        });
    }
    group.finish();
}

fn folder_store(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        node_name: "node-a".into(),
        configurations: folder.path().join("configurations"),
        state: folder.path().join("state"),
    };
    let instances = settings.state.join("instances");
    std::fs::create_dir_all(&instances).unwrap();
    for n in 0..100 {
        let name = instance_name(n);
        let spec = InstanceSpec {
            configuration_name: "camera".into(),
            cdi_name: format!("akri.sh/camera={n:06x}"),
            capacity: i32::try_from(CAPACITY).unwrap(),
            broker_properties: BTreeMap::from([("URL".to_owned(), "rtsp://10.0.0.7/".to_owned())]),
            shared: true,
            nodes: vec!["node-a".into()],
            device_usage: BTreeMap::new(),
        };
        let mut instance = Instance::new(&name, spec);
        instance.metadata.namespace = Some("default".to_owned());
        let text = serde_json::to_string(&instance).unwrap();
        std::fs::write(instances.join(format!("default_{name}.yaml")), text).unwrap();
    }
    let store = FolderStore::open(settings).unwrap();

    let mut table = table(0);
    table.observe(observed(100).into_iter().map(|slots| ObservedSlots {
        usage: BTreeMap::new(),
        ..slots
    }));
    let resource = Resource::Instance(instance_name(7));
    let ids = [vec![SlotId::new(instance_name(7), 1).to_string()]];
    let claim = table
        .plan_claim(&resource, &ids, &Default::default())
        .unwrap();
    let take = claim.changes().next().unwrap().clone();
    criterion.bench_function(
        "store: a slot claimed and released, of 100 Instances",
        |bencher| {
            bencher.iter(|| {
                let mut back = take.clone();
                std::mem::swap(&mut back.from, &mut back.to);
                for mut change in [take.clone(), back] {
                    change.connection_digest = change.to.as_ref().map(|_| "digest".to_owned());
                    runtime.block_on(store.exchange(vec![change])).unwrap();
                }
            });
        },
    );
}

/// Creates a tree of sysfs with serial adapters, as the kernel does.
fn serial_adapters(root: &std::path::Path, count: usize) {
    use std::{fs, os::unix::fs::symlink};
    let class = root.join("sys/class/tty");
    fs::create_dir_all(&class).unwrap();
    for n in 0..count {
        let port = format!("devices/pci0000:00/0000:00:14.0/usb1/1-{n}");
        let usb = root.join("sys").join(&port);
        let tty = format!("{port}/1-{n}:1.0/ttyUSB{n}/tty/ttyUSB{n}");
        let folder = root.join("sys").join(&tty);
        fs::create_dir_all(&folder).unwrap();
        fs::write(usb.join("uevent"), "DEVTYPE=usb_device\n").unwrap();
        fs::write(usb.join("idVendor"), "0403\n").unwrap();
        symlink(
            "../../../../../../../../../class/tty",
            folder.join("subsystem"),
        )
        .unwrap();
        let uevent = format!("MAJOR=188\nMINOR={n}\nDEVNAME=ttyUSB{n}\n");
        fs::write(folder.join("uevent"), uevent).unwrap();
        symlink(format!("../../{tty}"), class.join(format!("ttyUSB{n}"))).unwrap();
    }
}

/// Measures the time in which an agent finds a thousand devices of its machine. The limit is 0.3 s.
fn udev_scan(criterion: &mut Criterion) {
    use petiole::discovery::{
        DiscoveryHandler as _, Properties, Task,
        handlers::udev::{Subsystems, Udev},
    };
    use tokio::time::Instant;
    const COUNT: usize = 1000;
    const LIMIT: Duration = Duration::from_millis(300);
    let folder = tempfile::tempdir().unwrap();
    serial_adapters(folder.path(), COUNT);
    let udev = Udev::new(folder.path(), Subsystems::All);
    let details = r#"udevRules: ['SUBSYSTEM=="tty", ATTRS{idVendor}=="0403"']"#;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let scan = || {
        runtime.block_on(async {
            let (task, mut seen) = Task::alone();
            let discovery = udev.prepare(details, &Properties::new()).unwrap();
            let run = discovery.run(task);
            tokio::select! {
                ended = run => panic!("{ended:?}"),
                set = seen.wait_for(|set| set.complete) => assert_eq!(set.unwrap().devices.len(), COUNT),
            }
        });
    };
    let began = Instant::now();
    scan();
    let took = began.elapsed();
    assert!(
        took <= LIMIT,
        "{COUNT} devices took {took:?}; {LIMIT:?} is the limit"
    );
    criterion.bench_function("udev: 1000 devices of sysfs found", |bencher| {
        bencher.iter(scan);
    });
}

criterion_group!(plans, slot_table, folder_store, udev_scan);
criterion_main!(plans);
