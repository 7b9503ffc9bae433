//! What a server has said, and the servers that it tells of. Pure.
use crate::{
    answer::{Answer, Application, Endpoint, Question},
    reach::{Unoffered, offered_url},
    url::EndpointUrl,
};

/// The rounds for which a server that a discovery server names no more is asked: one that was started again knows none until they have
/// registered, which they do every ten minutes (OPC 10000-12, 6.5.4).
pub(crate) const NAMED_FOR: u64 = 90;

/// The answers of one server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) applications: Vec<Application>,
    /// It named these before, each with the first round in which it did not.
    former: Vec<(Application, u64)>,
    /// The addresses of servers that it knows by multicast DNS.
    pub(crate) on_network: Vec<String>,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Said {
    /// Takes the answers, with those applications that `takes` wants. A question that a server refuses has no answer: it is there
    /// all the same.
    pub(crate) fn new(answers: Vec<Answer>, takes: impl Fn(&Application) -> bool) -> Self {
        let mut said = Self::default();
        for answer in answers {
            match answer {
                Answer::Servers(applications) => {
                    said.applications = applications.into_iter().filter(&takes).collect();
                }
                Answer::ServersOnNetwork(urls) => said.on_network = urls,
                Answer::Endpoints(endpoints) => said.endpoints = endpoints,
                Answer::Refused(..) => {}
            }
        }
        said
    }

    /// Keeps the applications of earlier answers that these have not.
    pub(crate) fn after(mut self, before: Option<&Self>, round: u64) -> Self {
        let named = |before: &Application| {
            let is_same = |now: &Application| {
                now.discovery_urls == before.discovery_urls
                    || !now.uri.is_empty() && now.uri == before.uri
            };
            self.applications.iter().any(is_same)
        };
        let last = before.iter().flat_map(|before| &before.applications);
        let former = before.iter().flat_map(|before| &before.former).cloned();
        let all = last.map(|last| (last.clone(), round)).chain(former);
        let is_kept = |(application, since): &(Application, u64)| {
            round < since + NAMED_FOR && !named(application)
        };
        self.former = all.filter(is_kept).collect();
        self
    }

    /// Returns the applications that it names, and then those that it named before, each with whether it is one of these.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&Application, bool)> {
        let former = self
            .former
            .iter()
            .map(|(application, _)| (application, true));
        let now = self
            .applications
            .iter()
            .map(|application| (application, false));
        now.chain(former)
    }

    /// Returns whether it has an answer to a question.
    pub(crate) fn has(&self, question: Question) -> bool {
        match question {
            Question::FindServers => !self.applications.is_empty(),
            Question::FindServersOnNetwork => !self.on_network.is_empty(),
            Question::GetEndpoints => !self.endpoints.is_empty(),
        }
    }

    /// Returns how many bytes of texts, and of what holds them, it has.
    pub(crate) fn bytes(&self) -> usize {
        const FIELD: usize = 24;
        let applications = self.named().map(|(application, _)| {
            let Application {
                uri,
                product_uri,
                name,
                kind: _,
                discovery_urls,
            } = application;
            let urls: usize = discovery_urls.iter().map(|url| url.len() + FIELD).sum();
            uri.len() + product_uri.len() + name.len() + urls + 5 * FIELD
        });
        let endpoints = self.endpoints.iter().map(|endpoint| {
            endpoint.url.len() + endpoint.policy.len() + 8 * endpoint.users.len() + 4 * FIELD
        });
        let on_network = self.on_network.iter().map(|url| url.len() + FIELD);
        applications.chain(endpoints).chain(on_network).sum()
    }
}

/// A server that another one, or it itself, has named.
pub(crate) struct Found<'a> {
    pub(crate) application: &'a Application,
    /// The server that named it.
    pub(crate) source: &'a EndpointUrl,
    /// The address that the server gives, as it is.
    pub(crate) advertised: &'a str,
    /// The address at which this node reaches it. `None` if a name must be looked up first, or there is none.
    pub(crate) url: Option<EndpointUrl>,
    /// Why it has no address that can be used.
    pub(crate) unusable: Option<String>,
    /// True if it is the server that named it.
    pub(crate) is_self: bool,
    /// True if it is named no more.
    pub(crate) is_former: bool,
}

impl<'a> Found<'a> {
    /// `knows` says whether this node knows an address of a host, once that is known.
    pub(crate) fn new(
        application: &'a Application,
        source: &'a EndpointUrl,
        knows: &dyn Fn(&str) -> Option<bool>,
    ) -> Self {
        let urls = application.discovery_urls.iter();
        // As Akri does: TCP comes first. It does not need another library in brokers, and other transports are rare.
        let tcp = urls.clone().find(|url| url.starts_with("opc.tcp://"));
        let advertised = tcp.map_or("", String::as_str);
        let (url, unusable) = match offered_url(advertised, source, knows) {
            Ok(url) => (Some(url), None),
            Err(Unoffered::Lookup(_)) => (None, None),
            Err(Unoffered::Bad(_)) if tcp.is_none() => {
                let why = "it has no address that begins with opc.tcp://".to_owned();
                (None, Some(why))
            }
            Err(Unoffered::Bad(why)) => (None, Some(format!("its address {advertised:?} {why}"))),
        };
        let is_self = (url.as_ref())
            .is_some_and(|url| (url.host(), url.port()) == (source.host(), source.port()));
        Self {
            application,
            source,
            advertised,
            url,
            unusable,
            is_self,
            is_former: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> EndpointUrl {
        text.parse().unwrap()
    }

    #[test]
    fn a_server_without_an_address_that_can_be_used_says_why() {
        let source = url("opc.tcp://10.1.2.3:4840/");
        let why = |urls: &[&str]| {
            let application = Application {
                discovery_urls: urls.iter().map(ToString::to_string).collect(),
                ..Application::default()
            };
            Found::new(&application, &source, &|_| None).unusable
        };
        assert!(why(&[]).unwrap().contains("no address"));
        assert!(why(&["https://plc"]).unwrap().contains("no address"));
        assert!(why(&["opc.tcp://plc:99999/"]).unwrap().contains("99999"));
        assert_eq!(why(&["opc.tcp://plc:1/"]), None, "it is looked up first");
    }
}
