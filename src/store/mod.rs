//! Where Configurations come from and Instances live.
