//! Divides what an agent may keep and send among those who ask for it. Pure.
//!
//! A bound of each field does not bound their sum: the values of [`limits`](super::limits) hold for one object, and a user
//! can create many. So bytes are counted as well, before anything is built of them:
//!
//! | what | bound | who gets how much of it | beyond it |
//! |---|---|---|---|
//! | `brokerProperties` of a Configuration | 32 KiB | | `BadSpec` |
//! | one Configuration as it is read | 256 KiB | | it is not parsed, and is named as unreadable |
//! | the Configurations of a process | 8 MiB, and of an agent `--max-configurations` | a namespace with a smaller part of them comes before one with a larger part | the newest of that namespace are not read |
//! | Instances of a node | `--max-instances`, with 16 MiB of properties | a namespace, and in it a Configuration: half of what others leave ([`Division`]) | its devices are left out: `TooManyDevices` |
//! | Instances of a Configuration | `maxInstances` | a host of the LAN that announces devices: half of what others leave | its devices are left out: `TooManyDevices` |
//! | devices that are found by mDNS | 16 MiB | as Instances of a node | its services are left out: `DiscoveryIncomplete` |
//! | what a plan writes in one turn | 512 KiB | as Instances of a node, and one device at least | it is written in the next turns |
//! | NodeDevices | 1 MiB | | messages are cut first, then the newest devices without an Instance are left out, of the namespace with the most, and in it of the Configuration with the most: `TooManyDevices` |
//! | the environment in one answer of Allocate | 256 KiB | | the container is refused |
//!
//! Who takes the most is the one whose newest devices are left out. A Configuration's own properties are in memory once:
//! each plan borrows them, and a report has only the device's own.
use super::{division::Division, typed_names::ConfigurationKey};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the bytes of names and values.
pub fn text_bytes(texts: &BTreeMap<String, String>) -> usize {
    texts
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}

/// The bytes that a name and its value take in memory beside their text.
const ENTRY_BYTES: usize = 96;

/// Returns the bytes that names and values take in memory.
pub fn kept_bytes(texts: &BTreeMap<String, String>) -> usize {
    text_bytes(texts) + ENTRY_BYTES * texts.len()
}

/// Returns the bytes of a value as JSON.
pub fn json_bytes(value: &impl Serialize) -> usize {
    // Maps with texts as keys are always JSON.
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

/// The bytes that may be planned in one turn.
#[derive(Debug)]
pub struct Turn {
    division: Division,
    /// The Configuration whose part it is now, and its most.
    of: Option<ConfigurationKey>,
    share: usize,
    taken: usize,
}

impl Turn {
    /// Returns the turn of these Configurations.
    pub fn new<'a>(bytes: usize, of: impl IntoIterator<Item = &'a ConfigurationKey>) -> Self {
        let mut division = Division::new(bytes);
        of.into_iter().for_each(|key| division.join(key));
        Self {
            division,
            of: None,
            share: 0,
            taken: 0,
        }
    }

    /// Begins the part of a Configuration.
    pub fn begin(&mut self, key: &ConfigurationKey) {
        self.of = Some(key.clone());
        (self.share, self.taken) = (self.division.most(key), 0);
    }

    /// Takes bytes of this part. Returns whether it has them: of each part the first one that asks gets what it needs.
    pub fn take(&mut self, bytes: usize) -> bool {
        let is_had = self.taken == 0 || self.taken + bytes <= self.share;
        if let Some(key) = self.of.as_ref().filter(|_| is_had) {
            self.taken += bytes;
            self.division.take(key, bytes);
        }
        is_had
    }
}

/// The size of something that is kept, and who it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim<'a, K, T> {
    pub key: &'a K,
    pub namespace: &'a str,
    /// The age of the object. The older of two in one namespace comes first.
    pub since: T,
    pub bytes: usize,
}

/// The most objects that are kept, and the most bytes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub count: usize,
    pub bytes: usize,
}

impl Room {
    /// Returns which of the objects are kept; `None` if all are.
    ///
    /// Each object stands where its namespace has used a certain part of the room with it. Those come first for which that
    /// part is smallest, so that a namespace with many or large objects keeps no other namespace out.
    pub fn kept<'a, K: Ord, T: Ord>(
        self,
        mut claims: Vec<Claim<'a, K, T>>,
    ) -> Option<BTreeSet<&'a K>> {
        let bytes: usize = claims.iter().map(|claim| claim.bytes).sum();
        if claims.len() <= self.count && bytes <= self.bytes {
            return None;
        }
        claims.sort_by(|a, b| (&a.since, a.key).cmp(&(&b.since, b.key)));
        let mut used: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let mut places: Vec<(u128, usize)> = (claims.iter().enumerate())
            .map(|(n, claim)| {
                let (count, bytes) = used.entry(claim.namespace).or_default();
                (*count, *bytes) = (*count + 1, *bytes + claim.bytes);
                (self.part(*count, *bytes), n)
            })
            .collect();
        places.sort_unstable();
        let (mut kept, mut left) = (BTreeSet::new(), self.bytes);
        for claim in places.into_iter().map(|(_, n)| &claims[n]) {
            if kept.len() < self.count && claim.bytes <= left {
                left -= claim.bytes;
                kept.insert(claim.key);
            }
        }
        Some(kept)
    }

    /// Returns how much of the room this is: of its count or of its bytes, whichever is more.
    fn part(self, count: usize, bytes: usize) -> u128 {
        let [count, bytes, all, all_bytes] =
            [count, bytes, self.count, self.bytes].map(|n| u128::try_from(n).unwrap_or(u128::MAX));
        (count.saturating_mul(all_bytes)).max(bytes.saturating_mul(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_a_turn_each_gets_half_of_what_others_leave_and_one_at_least() {
        let keys = [("a", "x"), ("a", "y"), ("b", "z")];
        let keys = keys.map(|(namespace, name)| ConfigurationKey::new(namespace, name.to_owned()));
        let mut turn = Turn::new(100, &keys);
        turn.begin(&keys[0]);
        assert!(turn.take(15) && turn.take(10) && !turn.take(1));
        turn.begin(&keys[1]);
        assert!(
            turn.take(200) && !turn.take(1),
            "the first one is never refused"
        );
        turn.begin(&keys[2]);
        assert!(turn.take(1) && !turn.take(1));
        let mut turn = Turn::new(100, &keys[2..]);
        turn.begin(&keys[2]);
        assert!(turn.take(50) && !turn.take(1));
    }

    #[test]
    fn bytes_are_counted_as_they_are_sent() {
        let texts = BTreeMap::from([("a".to_owned(), "\u{1}é".to_owned())]);
        assert_eq!(text_bytes(&texts), 4);
        assert_eq!(
            json_bytes(&texts),
            serde_json::to_string(&texts).unwrap().len()
        );
    }

    fn kept(room: Room, objects: &[(&'static str, usize, usize)]) -> Vec<(&'static str, usize)> {
        let keys: Vec<_> = objects.iter().map(|(of, since, _)| (*of, *since)).collect();
        let claims = objects
            .iter()
            .zip(&keys)
            .map(|((of, since, bytes), key)| Claim {
                key,
                namespace: of,
                since: *since,
                bytes: *bytes,
            });
        match room.kept(claims.collect()) {
            Some(kept) => kept.into_iter().copied().collect(),
            None => keys,
        }
    }

    #[test]
    fn a_namespace_that_is_full_of_objects_keeps_no_other_out() {
        let room = Room {
            count: 4,
            bytes: 100,
        };
        let many: Vec<_> = (0..1600).map(|since| ("many", since, 1)).collect();
        let few = [("few", 5000, 1), ("few", 5001, 1)];
        let all = [&many[..], &few[..]].concat();
        let expected = [("few", 5000), ("few", 5001), ("many", 0), ("many", 1)];
        assert_eq!(kept(room, &all), expected);
        assert_eq!(kept(room, &many).len(), 4, "a namespace alone has it all");
        let large = [
            ("large", 0, 60),
            ("large", 1, 60),
            ("few", 9, 30),
            ("few", 10, 10),
        ];
        assert_eq!(kept(room, &large), [("few", 9), ("few", 10), ("large", 0)]);
    }

    proptest! {
        #[test]
        fn what_is_kept_is_within_the_room(
            objects in prop::collection::vec((0_usize..4, 0_usize..60), 0..40),
            count in 0_usize..20,
        ) {
            const NAMES: [&str; 4] = ["a", "b", "c", "d"];
            let room = Room { count, bytes: 200 };
            let objects: Vec<_> = (objects.iter().enumerate())
                .map(|(since, (name, bytes))| (NAMES[*name], since, *bytes))
                .collect();
            let kept = kept(room, &objects);
            let bytes: usize = (objects.iter())
                .filter(|(of, since, _)| kept.contains(&(*of, *since)))
                .map(|(_, _, bytes)| bytes)
                .sum();
            prop_assert!(kept.len() <= count && bytes <= 200);
        }
    }
}
