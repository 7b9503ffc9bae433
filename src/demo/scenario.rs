//! Runs `petiole demo --once`: the scenario from the first packet to the last capacity entry, each step with its time.
use super::{
    plan::{Step, is_reached, is_removed},
    publisher::Sample,
    snapshot::Snapshot,
    state::Demo,
};
use anyhow::bail;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The time limit of a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which the state is compared with the next step.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the scenario. The error names the step that did not happen.
pub(super) async fn run(demo: &mut Demo) -> anyhow::Result<()> {
    let services = demo.publisher.services().iter();
    let samples: Vec<Sample> = services.map(|service| service.sample.clone()).collect();
    let devices: Vec<String> = samples.iter().map(Sample::fullname).collect();
    let Some((last, _)) = samples.split_last() else {
        bail!("the demo has no services")
    };
    println!(
        "petiole demo: three mDNS services on this machine, an agent, a kubelet, and a broker for each device"
    );
    println!(
        "(no cluster: Pods are plain processes; endpoint grace 5 s instead of 5 min, gracePeriodSeconds 5 instead of 60, free slots released after 2 s instead of 10)"
    );
    for sample in &samples {
        println!("           announced {}", sample.fullname());
    }
    for step in [
        Step::InstancesExist,
        Step::ResourcesOffered,
        Step::BrokersPrinted,
    ] {
        wait(demo, step, &devices, "").await?;
    }
    show_variables(demo);
    let gone = instance_of(demo, &last.fullname());
    println!("           goodbye from {}", last.fullname());
    demo.publisher.say_goodbye(samples.len() - 1)?;
    for step in [Step::Unhealthy, Step::InstanceGone, Step::CapacityGone] {
        wait(demo, step, &devices, &gone).await?;
    }
    println!("           restarting the kubelet");
    let before = demo.snapshot.kubelet_since;
    demo.restart_kubelet();
    wait_for(demo, Step::KubeletRestarted, |snapshot| {
        snapshot.kubelet_since != before && is_reached(Step::KubeletRestarted, &devices, snapshot)
    })
    .await?;
    println!("all steps are done; the demo has removed its files");
    Ok(())
}

async fn wait(demo: &mut Demo, step: Step, devices: &[String], gone: &str) -> anyhow::Result<()> {
    wait_for(demo, step, |snapshot| {
        is_reached(step, devices, snapshot) && is_removed(step, gone, snapshot)
    })
    .await
}

async fn wait_for(
    demo: &mut Demo,
    step: Step,
    is_reached: impl Fn(&Snapshot) -> bool,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        demo.observe().await;
        if is_reached(&demo.snapshot) {
            let (at, took) = (
                demo.started.elapsed().as_secs_f64(),
                begun.elapsed().as_secs_f64(),
            );
            println!("{at:>7.2} s  {} (+{took:.2} s)", step.title());
            return Ok(());
        }
        if begun.elapsed() > STEP_TIMEOUT {
            for event in &demo.events {
                println!("{:>7.2} s  {}", event.at.as_secs_f64(), event.text);
            }
            bail!(
                "this step was not reached within {} s: {}",
                STEP_TIMEOUT.as_secs(),
                step.title()
            );
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn show_variables(demo: &Demo) {
    for (pod, broker) in &demo.snapshot.brokers {
        println!("           {pod} printed:");
        let is_plain = |key: &str| !key.chars().rev().take(6).all(|c| c.is_ascii_hexdigit());
        for (key, value) in broker.printed.iter().filter(|(key, _)| is_plain(key)) {
            println!("             {key}={value}");
        }
    }
}

fn instance_of(demo: &Demo, device: &str) -> String {
    let instances = &demo.snapshot.instances;
    instances
        .iter()
        .find(|(_, i)| i.device == device)
        .map(|(name, _)| name.clone())
        .unwrap_or_default()
}
