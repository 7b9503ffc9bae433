//! Tests the number of nodes that offer a device, where `maxNodes` says nothing.
use super::{
    merge::{Cluster, nothing, says},
    *,
};
use std::collections::BTreeSet;

#[test]
fn sixteen_of_many_nodes_offer_a_camera_and_the_next_one_steps_in() {
    let names: [String; 20] = std::array::from_fn(|n| format!("n{n:02}"));
    let nodes = names.each_ref().map(|name| (name.as_str(), ready()));
    let of = |handler: &str| {
        let spec = json!({ "discoveryHandler": { "name": handler } });
        configuration("cam", json!({ "spec": spec }))
    };
    let world = World::default().with_nodes(nodes);
    let mut cluster = Cluster::new(world.with_configuration(of("onvif")));
    for name in &names {
        cluster.says(says(name));
    }
    let offering = |cluster: &Cluster| -> BTreeSet<String> {
        cluster.nodes().into_iter().map(str::to_owned).collect()
    };
    cluster.settle(0);
    let first = offering(&cluster);
    assert_eq!(first.len(), 16);
    let gone = first.first().unwrap();
    cluster.says(nothing(gone)).settle(1);
    let then = offering(&cluster);
    assert!(then.len() == 16 && !then.contains(gone), "{then:?}");
    cluster.says(says(gone)).settle(2);
    assert_eq!(
        offering(&cluster),
        then,
        "no node leaves for one that is back"
    );
    cluster.world = std::mem::take(&mut cluster.world).with_configuration(of("zeroconf"));
    cluster.settle(3);
    assert_eq!(offering(&cluster).len(), 20);
    cluster.world = std::mem::take(&mut cluster.world).with_configuration(of("onvif"));
    cluster.settle(4);
    assert_eq!(offering(&cluster).len(), 16);
}
