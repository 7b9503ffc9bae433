//! Tests of a LAN with many hosts that ask for the same services.
use super::{
    lan::Lan,
    responder::{Responder, USUAL},
    *,
};

fn herd() -> Lan {
    let mut lan = Lan::new(vec![Responder::new(USUAL, 7, &["a"])]);
    lan.join(20);
    lan.run(ms(60_000));
    lan
}

#[test]
fn a_responder_that_is_silent_for_five_seconds_stays_on_all_of_twenty_hosts() {
    let mut lan = herd();
    for outage in 0..40 {
        let begins = 60_000 + outage * 20_000 + outage * 137 % 10_000;
        lan.run(ms(begins));
        lan.responders[0].is_alive = false;
        lan.run(ms(begins + 5000));
        lan.responders[0].is_alive = true;
    }
    lan.run(lan.now + ms(20_000));
    assert_eq!((lan.losses_since(ms(0)), lan.peers_lost), (0, 0));
}

#[test]
fn a_responder_that_ends_is_gone_on_all_of_twenty_hosts_within_twenty_seconds() {
    let mut lan = herd();
    lan.responders[0].is_alive = false;
    lan.run(ms(80_000));
    assert_eq!((lan.losses_since(ms(0)), lan.peers_lost), (1, 20));
}
