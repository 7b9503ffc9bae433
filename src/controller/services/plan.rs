//! Decides which Services of brokers are created, changed and deleted. Pure.
use super::action::{Action, Kind, Owner, Service};
use crate::{
    api::{configuration::Configuration, instance::Instance, names},
    controller::{
        queue::Waits,
        world::{OwnedService, World},
    },
    model::{
        instance_name::InstanceKey,
        names::{Key, ObjectKey, digest_32, shortened},
        typed_names::ConfigurationKey,
    },
};
use petiole_base::collect::CollectMap as _;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// The time for which a Service without brokers stays. A broker that is replaced is gone for a moment: a Service that went
/// with it would come back under another address, and names that were looked up meanwhile would be remembered as missing.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// Service names and label values: DNS labels.
const NAME_LIMIT: usize = 63;
/// Changes when the same spec makes another Service than before.
const FORMAT: &str = "1";

/// The Services that have no broker, each with the time since when.
pub(crate) type Idle = BTreeMap<ObjectKey, Instant>;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) idle: Idle,
    pub(crate) waits: Waits,
}

/// The values that each decision reads.
#[derive(Clone, Copy)]
struct Input<'a> {
    world: &'a World,
    idle: &'a Idle,
    now: Instant,
}

/// A Service that is asked for, or that was.
struct Wanted<'a> {
    key: ObjectKey,
    owner: Owner,
    label: &'static str,
    /// `None` where there should be none any more.
    spec: Option<Spec<'a>>,
}

/// A ServiceSpec and its digest.
#[derive(Clone, Copy)]
struct Spec<'a> {
    value: &'a Value,
    digest: &'a str,
}

/// The brokers of an Instance or of a Configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Brokers {
    /// True if there are any that have not ended and are not being deleted.
    is_any: bool,
    is_running: bool,
}

/// A Service comes when the first of its brokers runs. While it has brokers it follows its spec; it goes when it has
/// had none for [`IDLE_TIME`], or at once when its spec was taken out. The Services of deleted owners are garbage.
pub(crate) fn plan(world: &World, idle: &Idle, now: Instant) -> Plan {
    let brokers = brokers(world);
    let digests = Digests::new(world);
    let input = Input { world, idle, now };
    let mut plan = Plan::default();
    let instances = world.instances.iter();
    let of_instances =
        instances.filter_map(|(key, instance)| instance_service(world, &digests, key, instance));
    let of_configurations = (world.configurations.iter())
        .map(|(key, configuration)| configuration_service(&digests, key, configuration));
    for wanted in of_instances.chain(of_configurations) {
        let value = label_value(&wanted.owner.key.name);
        let key = (wanted.label, wanted.key.namespace.as_str(), value.as_str());
        let brokers = brokers.get(&key).copied().unwrap_or_default();
        decide(input, &wanted, brokers, &mut plan);
    }
    plan
}

fn brokers(world: &World) -> BTreeMap<(&str, &str, &str), Brokers> {
    let mut all: BTreeMap<_, Brokers> = BTreeMap::new();
    for (key, pod) in &world.pods {
        if pod.meta.is_deleting || pod.has_ended() {
            continue;
        }
        for label in [names::INSTANCE_LABEL, names::CONFIGURATION_LABEL] {
            if let Some(value) = pod.meta.labels.get(label) {
                let entry = (label, key.namespace.as_str(), value.as_str());
                let brokers = all.entry(entry).or_default();
                brokers.is_any = true;
                brokers.is_running |= pod.phase == "Running";
            }
        }
    }
    all
}

/// The digests of the specs: one of each, not one for each Instance.
struct Digests {
    instance: BTreeMap<ConfigurationKey, String>,
    configuration: BTreeMap<ConfigurationKey, String>,
}

impl Digests {
    fn new(world: &World) -> Self {
        let of = |spec: fn(&Configuration) -> Option<&Value>| {
            let all = world.configurations.iter();
            all.filter_map(|(key, configuration)| {
                let text = format!("{FORMAT} {}", spec(configuration)?);
                Some((key.clone(), digest_32(&text)))
            })
            .collect_map()
        };
        Self {
            instance: of(|c| given(c.spec.instance_service_spec.as_ref())),
            configuration: of(|c| given(c.spec.configuration_service_spec.as_ref())),
        }
    }
}

fn given(spec: Option<&Value>) -> Option<&Value> {
    spec.filter(|spec| !spec.is_null())
}

/// `None` where the Configuration cannot be read, or is gone: what is there stays.
fn instance_service<'a>(
    world: &'a World,
    digests: &'a Digests,
    key: &InstanceKey,
    instance: &Instance,
) -> Option<Wanted<'a>> {
    if instance.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let of = instance.spec.configuration_key(&key.namespace);
    let configuration = world.configurations.get(&of)?;
    let owner = Owner::new("Instance", key, &instance.metadata);
    let spec = given(configuration.spec.instance_service_spec.as_ref());
    let digest = digests.instance.get(&of);
    Some(wanted(owner, names::INSTANCE_LABEL, spec.zip(digest)))
}

fn configuration_service<'a>(
    digests: &'a Digests,
    key: &ConfigurationKey,
    configuration: &'a Configuration,
) -> Wanted<'a> {
    let owner = Owner::new("Configuration", key, &configuration.metadata);
    let spec = given(configuration.spec.configuration_service_spec.as_ref());
    let digest = digests.configuration.get(key);
    wanted(owner, names::CONFIGURATION_LABEL, spec.zip(digest))
}

fn wanted<'a>(
    owner: Owner,
    label: &'static str,
    spec: Option<(&'a Value, &'a String)>,
) -> Wanted<'a> {
    Wanted {
        key: service_key(&owner.key),
        owner,
        label,
        spec: spec.map(|(value, digest)| Spec { value, digest }),
    }
}

pub(crate) fn service_key<Name: AsRef<str>>(owner: &Key<Name>) -> ObjectKey {
    let name = format!("{}-svc", owner.name.as_ref().replace('.', "-"));
    ObjectKey::new(&owner.namespace, shortened(&name, NAME_LIMIT))
}

fn label_value(name: &str) -> String {
    shortened(name, NAME_LIMIT)
}

fn decide(
    Input { world, idle, now }: Input<'_>,
    wanted: &Wanted<'_>,
    brokers: Brokers,
    plan: &mut Plan,
) {
    let existing = world.whole().services.get(&wanted.key);
    let is_ours = |service: &OwnedService| service.meta.owner.as_ref() == Some(&wanted.owner.uid);
    let delete = |service: &OwnedService, reason| Action::Delete {
        kind: Kind::Service,
        key: wanted.key.clone(),
        uid: service.meta.uid.clone(),
        reason,
    };
    match (existing, &wanted.spec) {
        (None, Some(spec)) if brokers.is_running => {
            plan.actions.push(service(wanted, *spec).apply(None));
        }
        (None, _) => {}
        (Some(existing), _) if existing.meta.is_deleting => {}
        (Some(existing), Some(_)) if !is_ours(existing) => {
            if brokers.is_running {
                let report =
                    Action::Report(Kind::Service, wanted.owner.clone(), wanted.key.clone());
                plan.actions.push(report);
            }
        }
        (Some(existing), None) => {
            if is_ours(existing) {
                plan.actions
                    .push(delete(existing, "its spec was taken out"));
            }
        }
        (Some(existing), Some(spec)) => {
            if !brokers.is_any {
                let since = idle.get(&wanted.key).copied().unwrap_or(now);
                let left = IDLE_TIME.saturating_sub(now - since);
                plan.idle.insert(wanted.key.clone(), since);
                if left.is_zero() {
                    return plan.actions.push(delete(existing, "it has no brokers"));
                }
                plan.waits.add(left);
            }
            if !holds(existing, wanted, spec.digest) {
                let service = service(wanted, *spec);
                plan.actions.push(service.apply(Some(&existing.meta)));
            }
        }
    }
}

/// Returns whether the Service agrees with its spec. Labels and annotations of others do not count.
fn holds(existing: &OwnedService, wanted: &Wanted<'_>, digest: &str) -> bool {
    let ours = ours(wanted);
    let selector = existing.spec.selector.as_ref();
    let (labels, annotations) = (&existing.meta.labels, &existing.meta.annotations);
    annotations
        .get(names::RENDERED)
        .is_some_and(|d| d == digest)
        && (ours.iter()).all(|(key, value)| {
            labels.get(*key) == Some(value) && selector.and_then(|s| s.get(*key)) == Some(value)
        })
}

/// The labels of a Service, and of the Pods it selects.
fn ours(wanted: &Wanted<'_>) -> [(&'static str, String); 2] {
    [
        (names::CONTROLLER_LABEL, names::GROUP.to_owned()),
        (wanted.label, label_value(&wanted.owner.key.name)),
    ]
}

fn service<'a>(wanted: &'a Wanted<'_>, spec: Spec<'a>) -> Service<'a> {
    let mut labels = Map::from_iter([("app".to_owned(), json!(wanted.key.name))]);
    let ours = ours(wanted).map(|(key, value)| (key.to_owned(), Value::String(value)));
    labels.extend(ours.clone());
    let mut service = spec.value.clone();
    if let Some(service) = service.as_object_mut() {
        let selector = service.entry("selector").or_insert(Value::Null);
        if !selector.is_object() {
            *selector = json!({});
        }
        if let Some(selector) = selector.as_object_mut() {
            selector.extend(ours);
        }
    }
    Service {
        kind: Kind::Service,
        key: &wanted.key,
        owner: &wanted.owner,
        digest: spec.digest,
        labels: labels.into(),
        spec: service,
    }
}

#[cfg(test)]
mod tests;
