//! Stories and properties of the inventory and the plan.
