//! Keeps what is known of a device in little space. Pure.

/// The longest fact about a device, in bytes. Beyond it: the end is cut off.
pub const FACT_MAX: usize = 256;

/// Names and values, in one text: there are many of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(Box<str>);

impl Facts {
    pub(crate) fn add(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            let value = &value[..value.floor_char_boundary(FACT_MAX)];
            let value = value.replace(char::is_control, " ");
            self.0 = format!("{}{name}={value}\n", self.0).into();
        }
    }

    /// Returns each name with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split('\n').filter_map(|line| line.split_once('='))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }
}
