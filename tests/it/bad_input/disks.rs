//! Tests of folders and files in an unexpected state.
use super::*;

#[tokio::test]
async fn a_claim_that_cannot_be_written_is_refused_with_the_path_and_leaves_the_old_file_whole() {
    let (node, door) = at_work().await;
    let file = format!("default_{door}.yaml");
    let folder = node.state().join("instances");
    let before = fs::read_to_string(folder.join(&file)).unwrap();
    // A folder is in the place of the temporary file.
    let obstacle = folder.join(format!(".{file}.tmp"));
    fs::create_dir_all(&obstacle).unwrap();
    let refusal = node
        .allocate(&door, &[&format!("{door}-1")])
        .await
        .unwrap_err();
    assert!(refusal.message().contains(&file), "{refusal}");
    assert!(refusal.message().contains("Is a directory"), "{refusal}");
    assert_eq!(fs::read_to_string(folder.join(&file)).unwrap(), before);
    fs::remove_dir(&obstacle).unwrap();
    still_works(&node, &door).await;
}

#[tokio::test]
async fn an_instance_that_cannot_be_written_is_tried_again() {
    let (node, door) = at_work().await;
    let roof = instance_name("good", "roof");
    let folder = node.state().join("instances");
    // A folder is in the place of the file.
    let obstacle = folder.join(format!("default_{roof}.yaml"));
    fs::create_dir_all(obstacle.join("full")).unwrap();
    node.devices.see("good", [device("door"), device("roof")]);
    node.until("it is said which file", async || {
        let log = node.agent_log();
        log.contains("what this node reports cannot be written")
            .then_some(())?;
        log.contains(&obstacle.display().to_string()).then_some(())
    })
    .await;
    assert_eq!(node.counts(&roof).await, None);
    fs::remove_dir_all(&obstacle).unwrap();
    node.until_counts(&roof, 2, 2).await;
    still_works(&node, &door).await;
}

#[tokio::test]
async fn a_state_folder_that_is_gone_ends_nothing_and_is_filled_again_when_it_is_back() {
    let (node, door) = at_work().await;
    let folder = node.state().join("instances");
    let away = node.root().join("away");
    fs::rename(&folder, &away).unwrap();
    let refusal = node
        .allocate(&door, &[&format!("{door}-1")])
        .await
        .unwrap_err();
    assert!(
        refusal.message().contains(&folder.display().to_string()),
        "{refusal}"
    );
    assert_eq!(node.counts(&door).await, Some((2, 2)));
    fs::rename(&away, &folder).unwrap();
    still_works(&node, &door).await;
}

#[tokio::test]
async fn an_instance_file_that_is_half_a_file_costs_its_device_nothing_but_its_age() {
    let (mut node, door) = at_work().await;
    node.stop_agent().await;
    let path = node.state().join(format!("instances/default_{door}.yaml"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    node.start_agent();
    node.until_counts(&door, 2, 2).await;
    assert_eq!(node.restarts("broker").await, Some(0));
}

#[tokio::test]
async fn a_plugin_folder_that_is_replaced_is_used_again() {
    let (mut node, door) = at_work().await;
    node.stop_kubelet().await;
    // The folder is renamed first, because the agent may create a new socket in a folder that is being removed.
    let folder = node.agent_settings.plugin_folder.clone();
    let away = folder.with_extension("away");
    fs::rename(&folder, &away).unwrap();
    fs::remove_dir_all(&away).unwrap();
    node.start_kubelet();
    node.until_counts(&door, 2, 2).await;
}

#[tokio::test]
async fn a_folder_too_deep_for_sockets_is_named_and_tried_again() {
    // The kubelet's own sockets just fit.
    let mut node = TestNode::in_folder(&"d".repeat(60));
    node.start_kubelet();
    node.start_agent();
    node.configure("cam", "capacity: 1");
    node.devices.see("cam", [device("door")]);
    let door = instance_name("cam", "door");
    node.instance(&door).await;
    let folder = node.agent_settings.plugin_folder.display().to_string();
    let message = format!("{folder}: the path is too long for sockets");
    node.until("it is said twice which folder", async || {
        let log = node.agent_log();
        let of_door = log
            .lines()
            .filter(|l| l.contains(&door) && l.contains(&message));
        (of_door.count() >= 2).then_some(())
    })
    .await;
    node.assert_all_run();
}
