//! Reads from a Pod or a Job why it does not run: what keeps a container from it, and that the scheduler finds no node. Pure.
use crate::{
    api::{configuration::Problem, reason::Reason},
    cluster::parts::{ConditionPart, ContainerStatusPart, JobStatusPart, PodStatusPart},
    model::waiting::WaitsFor,
};
use k8s_openapi::jiff::Timestamp;

/// The answer of the scheduler that it finds no node for a Pod. Its message is for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unscheduled {
    pub(crate) since: Option<Timestamp>,
    pub(crate) message: String,
}

pub(crate) fn is_true(conditions: &[ConditionPart], type_: &str) -> bool {
    let mut conditions = conditions.iter();
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
}

pub(crate) fn unscheduled(conditions: &[ConditionPart]) -> Option<Unscheduled> {
    let mut conditions = conditions.iter();
    // A Pod with scheduling gates (`SchedulingGated`) was not refused: something else holds it back on purpose.
    let condition = conditions.find(|c| {
        c.type_ == "PodScheduled" && c.status == "False" && c.reason == "Unschedulable"
    })?;
    Some(Unscheduled {
        since: condition.last_transition_time.as_ref().map(|time| time.0),
        message: condition.message.clone(),
    })
}

/// Returns when a container was started again after a crash, with the crash: it may crash again soon.
pub(crate) fn restarted(status: &PodStatusPart) -> Option<(Timestamp, Problem)> {
    let restarted = |container: &ContainerStatusPart| {
        let running = container.state.as_ref()?.running.as_ref()?;
        let last = container.last_state.as_ref()?.terminated.as_ref()?;
        let since = running.started_at.as_ref()?.0;
        (last.exit_code != 0).then(|| (since, crash(&container.name, last.exit_code)))
    };
    status.container_statuses.iter().find_map(restarted)
}

/// Returns why the first container that does not run does not; init containers come first. The text is the same for each
/// repetition: counts and waits are left out.
pub(crate) fn trouble(status: &PodStatusPart) -> Option<Problem> {
    let inits = status.init_container_statuses.iter();
    inits
        .chain(&status.container_statuses)
        .find_map(of_container)
}

fn of_container(container: &ContainerStatusPart) -> Option<Problem> {
    let state = container.state.as_ref()?;
    let name = &container.name;
    let last = container.last_state.as_ref();
    let last = last.and_then(|state| state.terminated.as_ref());
    if let Some(ended) = &state.terminated {
        return (ended.exit_code != 0).then(|| crash(name, ended.exit_code));
    }
    let waiting = state.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let says = match waiting.message.as_deref().unwrap_or_default() {
        "" => reason.to_owned(),
        message => format!("{reason}: {message}"),
    };
    match WaitsFor::from_reason(reason) {
        WaitsFor::Restart => Some(crash(name, last.map_or(0, |ended| ended.exit_code))),
        // The kubelet says by turns that it failed and that it waits. The second names the image and no cause.
        WaitsFor::Image => Some(Problem::new(
            Reason::BrokerImage,
            format!(
                "the image of container {name} cannot be pulled ({}); correct `image`, its pull secret or the registry",
                one_line(image_words(container, reason))
            ),
        )),
        WaitsFor::Other if !reason.is_empty() => Some(Problem::new(
            Reason::BrokerNotStarted,
            format!("container {name} cannot start: {}", one_line(&says)),
        )),
        WaitsFor::Start | WaitsFor::Other => None,
    }
}

/// Returns the part that is the same for a pull that failed and for the wait after it: the image.
fn image_words<'a>(container: &'a ContainerStatusPart, reason: &'a str) -> &'a str {
    match container.image.as_str() {
        "" => reason,
        image => image,
    }
}

fn crash(container: &str, exit_code: i32) -> Problem {
    let message = format!(
        "container {container} ends again and again, last with exit code {exit_code}; read `kubectl logs --previous`"
    );
    Problem::new(Reason::BrokerCrashes, message)
}

/// Messages of Go programs have several lines.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether a kubelet has refused the Pod, so that none of its containers was started.
pub(crate) fn is_refused(status: &PodStatusPart) -> bool {
    let containers = [&status.init_container_statuses, &status.container_statuses];
    status.phase == "Failed" && containers.iter().all(|statuses| statuses.is_empty())
}

/// Returns whether a kubelet has accepted the Pod and begun none of its containers: it may pull an image for minutes, and
/// ends the Pod only after that.
pub(crate) fn waits_to_begin(status: &PodStatusPart) -> bool {
    let containers = || (status.init_container_statuses.iter()).chain(&status.container_statuses);
    let waits = |container: &ContainerStatusPart| {
        let (state, last) = (container.state.as_ref(), container.last_state.as_ref());
        // A container that has never ended has an empty object.
        let has_ended = last.is_some_and(|last| last.terminated.is_some());
        !has_ended && state.is_some_and(|state| state.waiting.is_some())
    };
    containers().next().is_some() && containers().all(waits)
}

pub(crate) fn failure(status: &JobStatusPart) -> Option<String> {
    let mut conditions = status.conditions.iter();
    let failed = conditions.find(|c| c.type_ == "Failed" && c.status == "True")?;
    Some(one_line(&format!("{}: {}", failed.reason, failed.message)))
}

pub(crate) fn is_complete(status: &JobStatusPart) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|c| c.type_ == "Complete" && c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn trouble_of(status: Value) -> Option<Problem> {
        trouble(&serde_json::from_value(status).unwrap())
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"containerStatuses": [{
            "name": "a", "image": "x.io/a:1",
            "state": {"waiting": {"reason": reason, "message": message}},
        }]})
    }

    #[test]
    fn a_container_that_is_being_made_is_no_trouble_and_one_that_runs_is_none() {
        assert_eq!(trouble_of(waiting("ContainerCreating", "")), None);
        assert_eq!(
            trouble_of(json!({"containerStatuses": [{"state": {"running": {}}}]})),
            None
        );
        assert_eq!(trouble_of(json!({})), None);
    }

    #[test]
    fn a_pull_that_failed_and_the_wait_after_it_are_one_trouble() {
        let failed = trouble_of(waiting(
            "ErrImagePull",
            "failed to pull and unpack image \"x.io/a:1\": not\n found",
        ));
        let waits = trouble_of(waiting(
            "ImagePullBackOff",
            "Back-off pulling image \"x.io/a:1\"",
        ));
        assert_eq!(failed, waits);
        let Problem { reason, message } = failed.unwrap();
        assert_eq!(reason, Reason::BrokerImage);
        assert!(message.contains("x.io/a:1"), "{message}");
    }

    #[test]
    fn a_crash_has_its_exit_code_while_it_waits_and_before() {
        let ended = json!({"terminated": {"exitCode": 3, "finishedAt": null}});
        let just = trouble_of(json!({"containerStatuses": [{"name": "a", "state": ended}]}));
        let waits = trouble_of(json!({"containerStatuses": [{
            "name": "a", "lastState": ended, "state": {"waiting": {
                "reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
        }]}));
        assert_eq!(just, waits);
        assert!(just.unwrap().message.contains("exit code 3"));
        let well = json!({"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]});
        assert_eq!(trouble_of(well), None);
    }

    #[test]
    fn a_pod_waits_to_begin_until_one_of_its_containers_has_begun() {
        let waits = |statuses: Value| {
            waits_to_begin(&serde_json::from_value(json!({"containerStatuses": statuses})).unwrap())
        };
        let state = |state: &str, what: Value| json!({"name": "a", "lastState": {}, "state": {state: what}});
        let pulls = state("waiting", json!({"reason": "ContainerCreating"}));
        assert!(waits(json!([pulls, pulls])));
        assert!(!waits(json!([])));
        assert!(!waits(json!([pulls, state("running", json!({}))])));
        let ended = json!({"terminated": {"exitCode": 0, "finishedAt": null}});
        let mut again = state("waiting", json!({"reason": "ErrImagePull"}));
        again["lastState"] = ended;
        assert!(!waits(json!([again])));
    }

    #[test]
    fn a_pod_that_a_kubelet_refuses_has_started_no_container_not_even_one_of_its_beginning() {
        let refused = |status: Value| is_refused(&serde_json::from_value(status).unwrap());
        assert!(refused(
            json!({"phase": "Failed", "reason": "UnexpectedAdmissionError"})
        ));
        assert!(!refused(json!({"phase": "Pending"})));
        let ended = json!([{"name": "a", "state": {"terminated": {"exitCode": 1}}}]);
        for statuses in ["initContainerStatuses", "containerStatuses"] {
            assert!(!refused(json!({"phase": "Failed", statuses: ended})));
        }
    }
}
