//! Checks that each Configuration on a page has the fields of a Configuration, and that its handler accepts its details.
use super::page::{Block, pages};
use petiole::{
    api::configuration::Configuration,
    discovery::{Properties, handlers::builtin},
};
use serde_json::Value;

/// Returns the manifests of a block: the block itself, or what its commands pass to `kubectl apply`.
fn manifests(block: &Block) -> Vec<String> {
    match block.language.as_str() {
        "yaml" => vec![block.lines.join("\n")],
        "sh" => {
            let text = block.lines.join("\n");
            let parts = text.split("<<'X'\n").skip(1);
            let ended = parts.filter_map(|part| part.split_once("\nX"));
            ended.map(|(manifest, _)| manifest.to_owned()).collect()
        }
        _ => vec![],
    }
}

/// Returns an error if the manifest is a Configuration that its handler refuses.
fn refusal(manifest: &str) -> Option<String> {
    if !manifest.contains("\nkind: Configuration\n") || !manifest.contains("akri.sh/v0") {
        return None;
    }
    let written: Value = match serde_saphyr::from_str(manifest) {
        Ok(written) => written,
        Err(e) => return Some(e.to_string()),
    };
    let configuration: Configuration = match serde_json::from_value(written) {
        Ok(configuration) => configuration,
        Err(e) => return Some(e.to_string()),
    };
    let info = &configuration.spec.discovery_handler;
    let handlers = builtin();
    let handler = handlers.iter().find(|h| h.name() == info.name)?; // or one of the reader's own
    let refused = handler
        .prepare(&info.discovery_details, &Properties::new())
        .err()?;
    Some(refused.to_string())
}

#[test]
fn every_configuration_of_a_page_is_accepted_by_its_handler() {
    let mut found = 0;
    for page in pages() {
        for block in page.blocks() {
            for manifest in manifests(&block) {
                found += usize::from(manifest.contains("\nkind: Configuration\n"));
                let refused = refusal(&manifest);
                assert_eq!(refused, None, "{}:{}", page.path, block.line);
            }
        }
    }
    assert!(found >= 6, "{found}");
}

#[test]
fn a_configuration_that_its_handler_refuses_is_named() {
    let manifest = |details: &str| {
        format!(
            "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {{name: a}}\nspec:\n  \
             discoveryHandler: {{name: zeroconf, discoveryDetails: \"{details}\"}}\n"
        )
    };
    assert_eq!(refusal(&manifest("kind: _http._tcp")), None);
    assert!(refusal(&manifest("knid: _http._tcp")).is_some());
}
