//! Changes the owners of slots: one patch for each Instance.
use super::{Inner, plan};
use crate::{
    api::instance::Instance,
    model::instance_name::InstanceKey,
    store::{
        interface::{Exchange, StoreError},
        plan::exchanged,
    },
};

impl Inner {
    /// Exchanges slots of one Instance, all or none.
    pub(super) async fn exchange(
        &self,
        key: &InstanceKey,
        exchanges: Vec<&Exchange>,
    ) -> Result<(), StoreError> {
        let patch = |instance: &Instance| {
            exchanged(instance, &exchanges)?;
            Ok(plan::exchange(instance, &exchanges))
        };
        self.patch(key, patch).await.map(drop)
    }
}
