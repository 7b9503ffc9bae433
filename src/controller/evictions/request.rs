//! Sends an eviction.
use crate::{
    cluster::{parts::PodPart, post},
    store::key_of,
};
use kube::{Api, Client, core::Status};
use serde_json::{Value, json};

/// Asks for the eviction of this very Pod.
pub(super) async fn evict(client: &Client, pod: &PodPart) -> kube::Result<Status> {
    let key = key_of(&pod.metadata);
    let api: Api<PodPart> = Api::namespaced(client.clone(), &key.namespace);
    let uri = format!("{}/{}/eviction", api.resource_url(), key.name);
    post(client, uri, &eviction(pod)).await
}

fn eviction(pod: &PodPart) -> Value {
    let metadata = &pod.metadata;
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace},
        "deleteOptions": {"preconditions": {"uid": metadata.uid}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_is_of_the_very_pod_that_had_the_slot() {
        let pod = json!({"metadata": {"name": "web", "namespace": "other", "uid": "uid-web"}});
        let eviction = eviction(&serde_json::from_value(pod).unwrap());
        assert_eq!(eviction["deleteOptions"]["preconditions"]["uid"], "uid-web");
        assert_eq!(eviction["metadata"]["name"], "web");
    }
}
