//! Takes inputs apart.

/// Reads values off the front of an input. At its end every number is 0.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    /// `count` bytes, or all that are left.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u8) -> u8 {
        self.byte() % limit
    }

    /// The text up to the end of the line.
    pub fn line(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|b| *b == b'\n');
        let line = self.bytes(end.unwrap_or(self.0.len()));
        self.bytes(1);
        std::str::from_utf8(line).ok()
    }
}
