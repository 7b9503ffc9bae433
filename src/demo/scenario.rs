//! Runs `petiole demo --once`: the scenario from the first packet to the last capacity entry, each step with its time.
use super::{
    plan::{is_offered, is_removed, is_served, is_unhealthy},
    publisher::Service,
    seen::Seen,
    state::Demo,
};
use anyhow::bail;
use jiff::Timestamp;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The time limit of a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which the state is compared with the next step.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the scenario. The error names the step that did not happen.
pub(super) async fn run(demo: &mut Demo) -> anyhow::Result<()> {
    demo.print(
        "petiole demo: three mDNS services on this machine, an agent, a kubelet, and a broker for each device\n",
    )?;
    demo.print(
        "(no cluster: Pods are plain processes; endpoint grace 5 s instead of 5 min, gracePeriodSeconds 5 instead of 60, free slots released after 2 s instead of 10)\n",
    )?;
    let devices = Vec::from_iter(demo.publisher.services().iter().map(Service::fullname));
    for device in &devices {
        demo.print(&format!("           announced {device}\n"))?;
    }
    find(demo, &devices).await?;
    if let Some((lost, staying)) = devices.split_last() {
        lose(demo, lost, staying).await?;
    }
    demo.print("all steps are done; the demo has removed its files\n")
}

/// Waits until each device has an Instance, a resource and a broker.
async fn find(demo: &mut Demo, devices: &[String]) -> anyhow::Result<()> {
    let all = |is_it: fn(&Seen, &str) -> bool| {
        move |seen: &Seen| devices.iter().all(|device| is_it(seen, device))
    };
    let is_found = |seen: &Seen, device: &str| seen.instance_of(device).is_some();
    wait(demo, "three services are three Instances", all(is_found)).await?;
    let step = "three resources stand in the node's capacity and allocatable";
    wait(demo, step, all(is_offered)).await?;
    let step = "three brokers printed the variables of their devices";
    wait(demo, step, all(is_served)).await?;
    show_variables(demo)
}

/// Withdraws the last service, waits until nothing is left of it, and restarts the kubelet.
async fn lose(demo: &mut Demo, lost: &str, staying: &[String]) -> anyhow::Result<()> {
    let instance = demo.seen.instance_of(lost).unwrap_or_default().to_owned();
    demo.print(&format!("           goodbye from {lost}\n"))?;
    demo.publisher.toggle(staying.len())?;
    let step = "one service said goodbye: its resource is unhealthy, allocatable is 0";
    let are_offered = |seen: &Seen| staying.iter().all(|device| is_offered(seen, device));
    wait(demo, step, |seen| {
        is_unhealthy(seen, lost) && are_offered(seen)
    })
    .await?;
    let step = "its grace period is over: its Instance, socket and broker are removed";
    wait(demo, step, |seen| is_removed(seen, &instance)).await?;
    let have_brokers = |seen: &Seen| staying.iter().all(|device| is_served(seen, device));
    let is_done = |seen: &Seen| {
        let is_gone = seen.is_kubelet_up() && seen.resource_of(&instance).is_none();
        is_gone && are_offered(seen) && have_brokers(seen)
    };
    wait(demo, "the kubelet dropped its capacity entry", is_done).await?;
    demo.print("           restarting the kubelet\n")?;
    let before = demo.seen.kubelet_since;
    demo.restart_kubelet();
    let step = "the kubelet was restarted: both other resources and brokers are back";
    wait(demo, step, |seen| {
        seen.kubelet_since != before && is_done(seen)
    })
    .await
}

async fn wait(
    demo: &mut Demo,
    step: &str,
    is_reached: impl Fn(&Seen) -> bool,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        demo.observe().await;
        if is_reached(&demo.seen) {
            let (at, took) = (demo.live.time(Timestamp::now()), begun.elapsed());
            demo.print(&format!("{at}{step} (+{:.2} s)\n", took.as_secs_f64()))?;
            return Ok(());
        }
        if begun.elapsed() > STEP_TIMEOUT {
            demo.print_changes()?;
            let seconds = STEP_TIMEOUT.as_secs();
            bail!("this step was not reached within {seconds} s: {step}");
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn show_variables(demo: &Demo) -> anyhow::Result<()> {
    for (pod, printed) in &demo.seen.printed {
        demo.print(&format!("           {pod} printed:\n"))?;
        let is_plain = |key: &str| !key.chars().rev().take(6).all(|c| c.is_ascii_hexdigit());
        for (key, value) in printed.iter().filter(|(key, _)| is_plain(key)) {
            demo.print(&format!("             {key}={value}\n"))?;
        }
    }
    Ok(())
}
