//! Tests of which records are kept, and for how long.
use super::{
    budget::{bytes_of, open},
    *,
};
use proptest::{collection::vec, prelude::*};

const LINK: u32 = 2;

fn at(millis: u64) -> Origin {
    from("10.0.0.1", millis)
}

fn from(source: &str, millis: u64) -> Origin {
    Origin {
        source: source.parse().unwrap(),
        now: Duration::from_millis(millis),
        jitter: 0.0,
        is_preferred: false,
        is_orphan: false,
    }
}

fn named(text: &str) -> Name {
    Name::from_dotted(text).unwrap()
}

fn address(host: &str, last: u8) -> Record {
    Record {
        name: named(host),
        ttl: 120,
        flush: true,
        data: Data::A([10, 0, 0, last].into()),
    }
}

fn pointer(target: &str, ttl: u32) -> Record {
    Record {
        name: named("_t._tcp.local"),
        ttl,
        flush: false,
        data: Data::Ptr(named(target)),
    }
}

fn addresses(cache: &Cache) -> Vec<&Data> {
    let set = cache.set(LINK, &named("h.local"), Kind::A);
    set.map(|(data, _)| data).collect()
}

/// Returns the events up to `until`, in milliseconds: records that expire or are asked for again.
fn log(cache: &mut Cache, until: u64) -> Vec<(u64, &'static str)> {
    let mut log = vec![];
    while let Some(due) = cache
        .due()
        .filter(|due| *due <= Duration::from_millis(until))
    {
        let done = cache.turn(due, |_| Use::Used);
        let millis = u64::try_from(due.as_millis()).unwrap();
        log.extend(done.refresh.iter().map(|_| (millis, "ask")));
        log.extend(done.lost.iter().map(|_| (millis, "lost")));
        log.extend(done.expired.iter().map(|_| (millis, "gone")));
    }
    log
}

#[test]
fn a_record_is_asked_for_at_80_85_90_and_95_percent_of_its_life_and_five_times_from_its_end_on() {
    let mut cache = Cache::default();
    assert_eq!(
        cache.take(LINK, &address("h.local", 1), &at(0)),
        Outcome::New
    );
    assert_eq!(
        log(&mut cache, 200_000),
        [
            (96_000, "ask"),
            (102_000, "ask"),
            (108_000, "ask"),
            (114_000, "ask"),
            (120_000, "ask"),
            (121_100, "ask"),
            (122_200, "ask"),
            (123_300, "ask"),
            (124_400, "ask"),
            (125_500, "gone")
        ]
    );
    assert_eq!((cache.records(), cache.bytes()), (0, 0));
    assert!(cache.budget.open.by_source.is_empty());
}

#[test]
fn an_answer_begins_its_life_anew_and_it_is_known_since_the_first() {
    let mut cache = Cache::default();
    cache.take(LINK, &address("h.local", 1), &at(0));
    let again = cache.take(LINK, &address("H.LOCAL", 1), &at(100_000));
    assert_eq!(again, Outcome::Refreshed);
    let (_, entry) = cache.set(LINK, &named("h.local"), Kind::A).next().unwrap();
    assert_eq!(entry.since, Duration::ZERO);
    assert_eq!(entry.expires, Duration::from_secs(220));
}

#[test]
fn a_goodbye_is_believed_after_a_second_unless_the_record_returns() {
    let mut cache = Cache::default();
    for (target, back) in [("a._t._tcp.local", false), ("b._t._tcp.local", true)] {
        cache.take(LINK, &pointer(target, 4500), &at(0));
        assert_eq!(
            cache.take(LINK, &pointer(target, 0), &at(5000)),
            Outcome::Goodbye
        );
        if back {
            cache.take(LINK, &pointer(target, 4500), &at(5900));
        }
    }
    assert_eq!(log(&mut cache, 10_000), [(6000, "lost")]);
    // A second goodbye neither begins another second nor makes the cache forget whom it searches for.
    for target in ["a._t._tcp.local", "c._t._tcp.local"] {
        let unknown = cache.take(LINK, &pointer(target, 0), &at(7000));
        assert_eq!(unknown, Outcome::Unknown, "{target}");
    }
    assert_eq!(log(&mut cache, 905_000), [(906_000, "gone"); 0]);
    assert_eq!(cache.records(), 2);
}

#[test]
fn a_flush_ends_older_records_a_second_later_and_spares_those_of_the_same_announcement() {
    let mut cache = Cache::default();
    cache.take(LINK, &address("h.local", 1), &at(0));
    cache.take(LINK, &address("h.local", 2), &at(5000));
    cache.take(LINK, &address("h.local", 3), &at(5500));
    assert_eq!(addresses(&cache).len(), 3);
    assert_eq!(log(&mut cache, 10_000), [(6000, "gone")]);
    assert_eq!(addresses(&cache).len(), 2);
    // The same record on another interface is a separate record.
    cache.take(3, &address("h.local", 9), &at(20_000));
    assert_eq!(log(&mut cache, 30_000), []);
}

#[test]
fn of_a_record_that_should_be_unique_the_newest_two_versions_are_known() {
    let mut cache = Cache::default();
    let name = named("a._t._tcp.local");
    for (n, millis) in [(1, 0), (2, 10), (3, 20)] {
        let record = Record {
            name: name.clone(),
            ttl: 4500,
            flush: false,
            data: Data::Txt(vec![n].into()),
        };
        assert_eq!(cache.take(LINK, &record, &at(millis)), Outcome::New);
    }
    let versions = cache
        .set(LINK, &name, Kind::Txt)
        .map(|(data, _)| data.clone());
    let newest = [2, 3].map(|n| Data::Txt(vec![n].into()));
    assert_eq!(Vec::from_iter(versions), newest);
}

#[test]
fn a_pointer_flushes_no_other() {
    let mut cache = Cache::default();
    cache.take(LINK, &pointer("a._t._tcp.local", 4500), &at(0));
    let flushing = Record {
        flush: true,
        ..pointer("b._t._tcp.local", 4500)
    };
    cache.take(LINK, &flushing, &at(5000));
    assert_eq!(log(&mut cache, 100_000), []);
}

#[test]
fn no_record_is_believed_for_more_than_75_minutes() {
    let mut cache = Cache::default();
    cache.take(LINK, &pointer("a._t._tcp.local", u32::MAX), &at(0));
    let found = log(&mut cache, u64::from(u32::MAX));
    assert!(found.contains(&(4_505_500, "lost")));
    assert_eq!(found.last(), Some(&(5_405_500, "gone")));
}

#[test]
fn a_pointer_that_nobody_confirms_is_remembered_for_a_while_and_not_believed() {
    let mut cache = Cache::default();
    let (name, target) = (named("_t._tcp.local"), named("a._t._tcp.local"));
    cache.take(LINK, &pointer("a._t._tcp.local", 10), &at(0));
    let found = log(&mut cache, 15_499);
    assert_eq!(found.last(), Some(&(14_400, "ask")));
    assert!(cache.points(LINK, &name, &target));
    assert_eq!(log(&mut cache, 15_500), [(15_500, "lost")]);
    assert!(!cache.points(LINK, &name, &target) && cache.pointer(LINK, &name, &target).is_some());
    let again = cache.take(LINK, &pointer("a._t._tcp.local", 10), &at(60_000));
    assert_eq!(again, Outcome::New);
    assert!(cache.points(LINK, &name, &target));
    assert_eq!(log(&mut cache, 75_500).last(), Some(&(75_500, "lost")));
    assert_eq!(log(&mut cache, 975_500), [(975_500, "gone")]);
}

#[test]
fn a_machine_that_stood_still_asks_for_what_has_expired_before_it_forgets_it() {
    let mut cache = Cache::default();
    cache.take(LINK, &address("h.local", 1), &at(0));
    let done = cache.turn(Duration::from_secs(500), |_| Use::Used);
    assert_eq!((done.refresh.len(), done.expired.len()), (1, 0));
    let found = log(&mut cache, 600_000);
    assert_eq!(found.last(), Some(&(505_500, "gone")));
    // A record that nobody uses is not asked for again.
    cache.take(LINK, &address("h.local", 1), &at(600_000));
    let done = cache.turn(Duration::from_secs(720), |_| Use::Unused);
    assert_eq!((done.refresh.len(), done.expired.len()), (0, 1));
}

#[test]
fn one_source_takes_half_of_the_room_and_the_next_half_of_the_rest() {
    let mut cache = Cache::default();
    let mut admitted = [0; 3];
    for (n, count) in admitted.iter_mut().enumerate() {
        for host in 0..RECORDS_MAX {
            let record = address(&format!("h{n}-{host}.local"), 1);
            let origin = from(&format!("10.0.0.{n}"), 0);
            *count += usize::from(cache.take(LINK, &record, &origin) == Outcome::New);
        }
    }
    assert_eq!(
        admitted,
        [
            open(RECORDS_MAX) / 2,
            open(RECORDS_MAX) / 4,
            open(RECORDS_MAX) / 8
        ]
    );
    // A known record is refreshed and withdrawn nevertheless.
    let known = address("h0-0.local", 1);
    assert_eq!(
        cache.take(LINK, &known, &from("10.0.0.0", 1)),
        Outcome::Refreshed
    );
}

#[test]
fn one_source_has_half_of_the_services_and_the_next_half_of_the_rest() {
    let mut cache = Cache::default();
    for (source, expected) in [("10.0.0.1", 2048), ("10.0.0.2", 1024)] {
        let admitted = (0..3000).filter(|n| {
            let record = pointer(&format!("{n}-{source}._t._tcp.local"), 4500);
            cache.take(LINK, &record, &from(source, 0)) == Outcome::New
        });
        assert_eq!(admitted.count(), expected, "{source}");
    }
}

fn txt(label: &str, bytes: usize) -> Record {
    Record {
        name: named(&format!("{label}._t._tcp.local")),
        data: Data::Txt(vec![1; bytes].into()),
        ..address("h.local", 1)
    }
}

#[test]
fn one_source_has_half_of_the_bytes_and_the_next_half_of_the_rest() {
    let mut cache = Cache::default();
    for (source, share) in [("10.0.0.1", 2), ("10.0.0.2", 4), ("10.0.0.3", 8)] {
        let outcomes = (0..4000).map(|n| {
            let record = txt(&format!("{source}-{n}"), 4000 >> (n / 1000 * 4));
            cache.take(LINK, &record, &from(source, 0))
        });
        let refused = outcomes.filter(|o| *o == Outcome::Refused(Limit::Share));
        assert!(refused.count() > 0);
        let mine = cache.budget.open.by_source[&source.parse().unwrap()].bytes;
        assert!(mine.abs_diff(open(BYTES_MAX) / share) < 100, "{mine}");
    }
    // Preferred services have a part of their own, of which a source has half, too.
    let preferred = Origin {
        is_preferred: true,
        ..from("10.0.0.1", 0)
    };
    let admitted = (0..1000).filter(|n| {
        let record = txt(&format!("camera-{n}"), 4000);
        cache.take(LINK, &record, &preferred) == Outcome::New
    });
    let bytes = admitted.count() * 4000;
    assert!(bytes.abs_diff(BYTES_MAX / 8) < 8000, "{bytes}");
}

#[test]
fn a_record_to_which_no_pointer_leads_is_kept_for_a_second_unless_one_comes() {
    let mut cache = Cache::default();
    let early = Origin {
        is_orphan: true,
        ..at(0)
    };
    for label in ["a", "b"] {
        cache.take(LINK, &txt(label, 1), &early);
    }
    cache.adopt(LINK, &named("a._t._tcp.local"));
    let done = cache.turn(Duration::from_secs(1), |_| Use::Unused);
    assert_eq!((done.expired.len(), cache.records()), (1, 1));
    assert_eq!(log(&mut cache, 96_000), [(96_000, "ask")]);
}

#[test]
fn no_time_passes_for_a_record_while_a_question_for_it_waits() {
    let mut cache = Cache::default();
    cache.take(LINK, &address("h.local", 1), &at(0));
    cache.take(LINK, &pointer("a._t._tcp.local", 4500), &at(0));
    cache.take(LINK, &pointer("a._t._tcp.local", 0), &at(50_000));
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(300) {
        now = cache.due().unwrap().max(now);
        let done = cache.turn(now, |_| Use::Waits);
        assert!(done.refresh.is_empty() && done.lost.is_empty() && done.expired.is_empty());
    }
    let target = named("_t._tcp.local");
    cache.asked(LINK, &target, Kind::Ptr, now);
    cache.asked(LINK, &named("h.local"), Kind::A, now);
    // From now on it takes as long as ever.
    let found = log(&mut cache, 400_000);
    let asked = found.iter().filter(|(_, what)| *what == "ask").count();
    assert!((5..=9).contains(&asked), "{found:?}");
    let after = |what| found.iter().find(|(_, w)| *w == what).unwrap().0 - 300_000;
    assert!((500..=1000).contains(&after("lost")), "{found:?}");
    assert!((5000..=7500).contains(&after("gone")), "{found:?}");
}

#[test]
fn a_full_cache_admits_preferred_services() {
    let mut cache = Cache::default();
    for source in 0..200_u8 {
        for n in 0..40 {
            let record = pointer(&format!("{n}-{source}._t._tcp.local"), 4500);
            cache.take(LINK, &record, &from(&format!("10.0.1.{source}"), 0));
        }
    }
    let late = pointer("camera._t._tcp.local", 4500);
    let usual = from("10.0.1.0", 1);
    assert_eq!(
        cache.take(LINK, &late, &usual),
        Outcome::Refused(Limit::Total)
    );
    let preferred = Origin {
        is_preferred: true,
        ..usual
    };
    assert_eq!(cache.take(LINK, &late, &preferred), Outcome::New);
}

#[test]
fn a_host_has_sixteen_addresses_at_most() {
    let mut cache = Cache::default();
    for last in 0..100 {
        let record = Record {
            flush: false,
            ..address("h.local", last)
        };
        cache.take(LINK, &record, &at(0));
    }
    assert_eq!(addresses(&cache).len(), 16);
}

proptest! {
    #[test]
    fn the_books_agree_with_the_records(steps in vec((0..4u8, 0..3u8, 0..3u32, 0..3u8, 0..3000u64), 0..100)) {
        let (mut cache, mut now) = (Cache::default(), 0);
        for (host, last, ttl, source, wait) in steps {
            now += wait;
            let record = Record { ttl: ttl * 3, ..address(&format!("h{host}.local"), last) };
            cache.take(LINK, &record, &from(&format!("10.0.0.{source}"), now));
            cache.turn(Duration::from_millis(now), |_| Use::Used);
        }
        let records: Vec<_> = cache.sets.iter().flat_map(|(key, set)| set.iter().map(move |(d, e)| (key, d, e))).collect();
        prop_assert_eq!(records.len(), cache.records());
        prop_assert_eq!(records.iter().map(|(k, d, _)| bytes_of(k, d)).sum::<usize>(), cache.bytes());
        for (source, share) in &cache.budget.open.by_source {
            prop_assert_eq!(records.iter().filter(|(_, _, e)| e.source == *source).count(), share.records);
        }
        let due = records.iter().map(|(_, _, e)| e.due()).min();
        prop_assert!(due.is_none_or(|due| cache.due().is_some_and(|d| d <= due)), "something is overlooked");
    }
}
