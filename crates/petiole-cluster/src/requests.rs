//! Helps with requests to the API server: those that kube does not have, complete lists, and the meaning of errors.
use hyper::{Request, header::CONTENT_TYPE};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PatchParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{error::Error, fmt::Debug, time::Duration};
use tower::timeout::error::Elapsed;

/// The time limit of a request. A server behind a broken network never answers, and a connection to it may stay open for
/// a quarter of an hour.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of objects in one page of a list.
const PAGE: u32 = 500;

/// Lists all objects of an `Api`, page by page.
pub async fn list_all<K>(api: &Api<K>) -> kube::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    list_selected(api, ListParams::default()).await
}

/// Lists the selected objects of an `Api`, page by page.
pub async fn list_selected<K>(api: &Api<K>, selection: ListParams) -> kube::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut objects = vec![];
    let mut page = selection.limit(PAGE);
    loop {
        let list = api.list(&page).await?;
        objects.extend(list.items);
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            Some(_) | None => return Ok(objects),
        }
    }
}

/// Returns the parameters of a creation by this field manager.
pub fn created_by(manager: &str) -> PostParams {
    PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    }
}

/// Returns the parameters of a patch by this field manager.
pub fn patched_by(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    }
}

/// Returns the object without the managed fields of server-side apply, which are larger than the rest.
pub fn without_fields<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// Returns the parameters that delete nothing but the object with this uid, in this version if one is given.
pub fn deletion_of(uid: impl Into<Option<String>>, version: Option<&str>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid: uid.into(),
        resource_version: version.map(str::to_owned),
    })
}

/// Posts an object as it is: kube creates objects without `fieldValidation`, and writes the preconditions of evictions under a name that
/// the API server does not know.
pub async fn post<K: DeserializeOwned>(
    client: &Client,
    uri: String,
    object: &Value,
) -> kube::Result<K> {
    let sent = Request::post(uri).header(CONTENT_TYPE, "application/json");
    let sent = sent.body(object.to_string().into_bytes());
    client.request(sent.map_err(kube::Error::HttpError)?).await
}

/// Returns the status code if the API server rejected the request.
pub fn code(error: &kube::Error) -> Option<u16> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    Some(status.code)
}

/// Returns the reason of a failed request, in the API server's words if it answered.
pub fn reason(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        format!("{} ({})", status.message, status.code)
    } else if let kube::Error::Service(e) = error
        && e.is::<Elapsed>()
    {
        format!("no answer within {REQUEST_TIMEOUT:?}")
    } else {
        let cause = innermost(error).to_string();
        let error = error.to_string();
        if error.contains(&cause) {
            error
        } else {
            format!("{error}: {cause}")
        }
    }
}

/// Returns why `action` failed, for the person who asked for it: the right that is missing, or the reason. `action` names
/// verb, resource and namespace, such as `list pods in all namespaces`.
pub fn cannot(action: &str, error: &kube::Error) -> String {
    match code(error) {
        Some(403) => format!("you may not {action}"),
        Some(_) | None => format!("cannot {action}: {}", reason(error)),
    }
}

/// Returns the first cause of an error, such as a CA that nobody knows.
fn innermost<'a>(mut error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

/// Returns whether the object does not exist.
pub fn is_not_found(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// Returns whether someone else was faster: the object exists already, or has changed since it was read.
pub fn is_conflict(error: &kube::Error) -> bool {
    code(error) == Some(409)
}

/// Returns whether a `test` of a JSON patch failed or the object would be invalid.
pub fn is_unprocessable(error: &kube::Error) -> bool {
    code(error) == Some(422)
}

/// Returns whether an error says what is wrong with the object: a `test` that failed says nothing of it.
pub fn has_causes(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    (status.details.as_ref()).is_some_and(|details| !details.causes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, Response};
    use kube::client::Body;
    use std::convert::Infallible;
    use tower::{Layer as _, service_fn, timeout::TimeoutLayer};

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_never_answered_ends_and_says_so() {
        let silent = service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let limited = TimeoutLayer::new(REQUEST_TIMEOUT).layer(silent);
        let client = kube::Client::new(limited, "default");
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
        let error = nodes.get("a").await.unwrap_err();
        assert_eq!(reason(&error), "no answer within 10s");
    }
}
