//! Finds services on the LAN by multicast DNS (RFC 6762) and DNS-SD (RFC 6763). It sends questions, and never
//! answers.
//!
//! ```text
//! packets, interfaces, subscriptions, time -> querier::Querier -> packets, changed services     pure
//! sockets, interfaces of the system           network
//! the task that owns both                     process::Mdns, one for each process
//! ```
//!
//! # RFC 6762, section by section
//! | section | behaviour | where | test |
//! |---|---|---|---|
//! | 5.2 | continuous questions: first after 20 to 120 ms, then at growing intervals up to an hour | [`schedule::Series`] | `section_5_2_a_continuous_question_…` |
//! | 5.2 | records in use are asked for again at 80, 85, 90 and 95 % of their lifetimes, with up to 2 % of jitter | [`cache`] | `section_5_2_a_record_in_use_…` |
//! | 5.4, 15.1 | the first question allows a unicast answer where no other program has the port | [`querier`] | `section_5_4_…` |
//! | 6, 11 | responses from another port, and unicast ones from off the link or long after a question, are ignored | [`querier`] | `a_response_from_another_port_or_from_afar_is_ignored` |
//! | 6.1 | NSEC: a denied address is not asked for while the denial lives | [`querier`] | `section_6_1_…` |
//! | 6.7 | a responder that answers by unicast to the port is found | [`process`]: one socket for all browses of an interface | `every_kind_that_dies_…` |
//! | 7.1 | known answers have more than half of their lifetimes left | [`query`] | `section_7_1_…` |
//! | 7.2 | known answers that do not fit follow; all but the last packet are truncated | [`query`] | `known_answers_that_do_not_fit_…` |
//! | 7.3 | the question of another host replaces our own, if ours is due within 100 ms and the last one was ours | [`querier`] | `section_7_3_…` |
//! | 8.2 | the records that a prober proposes are not answers | [`message`] | `what_a_prober_proposes_…` |
//! | 10 | no record lives for more than 75 minutes | [`cache`] | `no_record_is_believed_for_more_than_75_minutes` |
//! | 10.1 | what is withdrawn is asked for once, counts as gone after a second, and is searched for | [`querier`] | `a_forged_goodbye_of_a_pointer_…` |
//! | 10.2 | a cache-flush bit ends older records a second later | [`cache`] | `section_10_2_…` |
//! | 10.3, 13 | the records of a removed interface are dropped; on a changed one the questions restart | [`querier`] | `section_14_…` |
//! | 10.4 | seven questions without known answers, then the service is flushed and searched for | [`schedule::Confirm`], [`schedule::Search`] | `section_10_4_…` |
//! | 10.5 | questions of others that nobody answers lead to a confirmation | [`querier`] | `section_10_5_…` |
//! | 14 | each interface has its own cache; a service is gone when it is gone on all | [`querier`] | `section_14_…` |
//! | 16 | names compare without ASCII case | [`name`] | `section_16_…` |
//! | 17 | packets fit into an Ethernet frame; larger ones are read up to 9000 bytes | [`query`] | `known_answers_that_do_not_fit_…` |
//! | 18 | messages with another opcode or a response code are ignored | [`message`] | `names_that_point_in_circles_…` |
//!
//! The querier differs from the RFC in three points:
//! - A confirmation takes 8.3 s and seven questions instead of 10 s and two.
//! - A record without an answer is also asked for in the 5.5 s after its end, before it counts as gone.
//! - Lost services are searched for every 1.5 s for two minutes before the intervals grow, because an outage of a
//!   minute must not cost another minute.
pub mod cache;
pub mod family;
mod host_links;
pub mod interfaces;
pub mod link;
pub mod message;
pub mod name;
mod network;
pub mod pace;
pub mod process;
pub mod querier;
pub mod query;
pub mod schedule;
pub mod trace;
mod traffic;
mod turns;
mod txt;
