#!/usr/bin/env python3
"""Tries to write every field of every object of ours with a stolen token: a foreign value, a foreign key, and 256 KiB.

The fields are those of the schemas that the API server publishes, so that a new field is tried, too. Every request is a dry
run: policies and RBAC decide about it, and nothing is changed. A try counts if the administrator may do the same: then it is
not the schema that refuses it. What a token may write is in `MAY`, with the reason.

    stolen_fields.py KUBECONFIG TOKENS

KUBECONFIG   the administrator's, as JSON with everything in it: kubectl config view --raw --minify -o json
TOKENS       JSON: {"agent": …, "new agent": …, "controller": …}: of the Nodes leaf-1 and leaf-3, and of the controller. The
             chart is installed as `petiole` in the namespace petiole, and no controller runs.

Needs the standard library alone. Ends with 1, and a line for each wrong answer.
"""
import base64
import copy
import fnmatch
import http.client
import json
import ssl
import sys
import tempfile
import urllib.parse

BIG = 256 * 1024
# What the API server itself decides about, in the metadata of every object.
SERVERS = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
           "deletionGracePeriodSeconds", "selfLink", "generateName", "managedFields")
# What the schema lets nobody change.
FIXED = ("spec.discoveryHandler.name",)
# as, target, field, kind of try: why it may be written. A pattern that nothing matches is an error.
MAY = [
    ("agent", "own instance", "spec.deviceUsage", "removed", "its own slots"),
    ("agent", "own report", "spec.configurations*", "*", "what its own node sees; the controller takes of it the node's own slots"),
    ("new agent", "new report", "spec.configurations*", "*", "what its own node sees; the controller takes of it the node's own slots"),
    ("agent", "own report", "spec.leftOut.*", "*", "why its own node leaves out Configurations, which is reported in its name"),
    ("new agent", "new report", "spec.leftOut.*", "*", "why its own node leaves out Configurations, which is reported in its name"),
    ("agent", "new event", "*", "*", "Events in its own node's name say anything"),
    ("controller", "configuration", "metadata.finalizers", "removed", "Akri's finalizers"),
    ("controller", "configuration status", "status.*", "*", "the status is the controller's"),
    ("controller", "*instance*", "*", "*", "the controller makes Instances of all nodes' reports"),
]


class Server:
    """The API server, as a user sees it."""

    def __init__(self, kubeconfig, token=None):
        self.url = urllib.parse.urlsplit(kubeconfig["clusters"][0]["cluster"]["server"])
        user = kubeconfig["users"][0]["user"]
        self.context = ssl._create_unverified_context()
        self.headers = {"Accept": "application/json"}
        if token or "token" in user:
            self.headers["Authorization"] = "Bearer " + (token or user["token"])
        else:
            pair = []
            for part in ("client-certificate-data", "client-key-data"):
                with tempfile.NamedTemporaryFile(delete=False) as file:
                    file.write(base64.b64decode(user[part]))
                pair.append(file.name)
            self.context.load_cert_chain(*pair)
        self.connection = None

    def ask(self, method, path, body=None, kind="application/json"):
        for _ in range(2):
            self.connection = self.connection or http.client.HTTPSConnection(self.url.netloc, context=self.context, timeout=60)
            try:
                text = None if body is None else json.dumps(body)
                self.connection.request(method, path, text, dict(self.headers, **{"Content-Type": kind}))
                answer = self.connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (http.client.HTTPException, OSError):
                self.connection = None
        raise SystemExit("no answer to %s %s" % (method, path))

    def write(self, target, body):
        separator = "&" if "?" in target["path"] else "?"
        path = target["path"] + separator + "dryRun=All&fieldValidation=Strict"
        if target["verb"] == "create":
            return self.ask("POST", path, body)
        return self.ask("PATCH", path, body, "application/merge-patch+json")


def resolved(schema, schemas):
    """The schema without references."""
    while True:
        parts = schema.get("allOf", []) + ([{"$ref": schema["$ref"]}] if "$ref" in schema else [])
        if not parts:
            return schema
        rest = {k: v for k, v in schema.items() if k not in ("allOf", "$ref")}
        for part in parts:
            name = part.get("$ref", "").rsplit("/", 1)[-1]
            rest = {**(schemas[name] if name else part), **rest}
        schema = rest


def value(schema, schemas, text="foreign"):
    """A valid value that nobody has written there."""
    schema = resolved(schema, schemas)
    if "oneOf" in schema or "anyOf" in schema:
        return text
    kind = schema.get("type")
    if kind == "string":
        return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" and text == "foreign" else text
    if kind in ("integer", "number"):
        return max(7, schema.get("minimum", 7))
    if kind == "boolean":
        return True
    if kind == "array":
        return [value(schema["items"], schemas, text)]
    if "additionalProperties" in schema and schema["additionalProperties"] is not True:
        return {"foreign": value(schema["additionalProperties"], schemas, text)}
    required = {name: value(schema["properties"][name], schemas) for name in schema.get("required", [])}
    return required or {"foreign": text}


def fields(schema, schemas, target, before, path=""):
    """Each field that has no fields itself, as (its path, its schema, a function that wraps a value into the whole)."""
    given = target.get("with", {})
    schema = resolved(schema, schemas)
    for name, inner in sorted(schema.get("properties", {}).items()):
        here = path + "." + name if path else name
        if here in ("apiVersion", "kind"):
            continue
        inner = resolved(inner, schemas)
        at = lambda v, name=name: {name: v}
        items = resolved(inner.get("items", {}), schemas)
        if inner.get("type") == "array" and items.get("properties"):
            beside = {n: value(items["properties"][n], schemas) for n in items.get("required", [])}
            beside.update({k[len(here) + 3:]: v for k, v in given.items() if k.startswith(here + "[].")})
            for deeper, leaf, wrap in fields(items, schemas, target, before, here + "[]"):
                yield deeper, leaf, lambda v, w=wrap, a=at, b=beside: a([merged(b, w(v))])
        elif inner.get("properties"):
            is_new = not found(before, here)
            beside = {n: value(inner["properties"][n], schemas) for n in inner.get("required", []) if is_new}
            for deeper, leaf, wrap in fields(inner, schemas, target, before, here):
                yield deeper, leaf, lambda v, w=wrap, a=at, b=beside: a(merged(b, w(v)))
        else:
            yield here, inner, at


def merged(old, new):
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{k: merged(old.get(k), v) for k, v in new.items()}}


def found(where, path):
    """What an object has at the path of a field."""
    for part in path.split("."):
        where = where.get(part.removesuffix("[]"), {}) if isinstance(where, dict) else {}
    return where


def tries(schema, schemas, target, before):
    """Each try: its field, its kind, and the body of its request."""
    for path, leaf, wrap in fields(schema, schemas, target, before):
        if path == "metadata.managedFields[].fieldsV1":
            many = [{**wrap({})["metadata"]["managedFields"][0], "manager": str(n), "operation": "Update", "apiVersion": before["apiVersion"],
                     "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:annotations": {"f:" + "x" * (BIG // 4): {}}}}} for n in range(4)]
            yield path, "256 KiB", {"metadata": {"managedFields": many}}
            continue
        if path == "spec.configurations[].name":
            # Each value is within its bound, their sum is not.
            devices = [{"id": "!%d" % n, "properties": {"A": "x" * 60000}} for n in range(24)]
            yield path, "256 KiB in many entries", {"spec": {"configurations": [{"namespace": "default", "name": "fields", "devices": devices}]}}
        is_map = leaf.get("type") == "object" or not leaf.get("type")
        plain = target.get("with", {}).get(path) or value(leaf, schemas)
        yield path, "value", wrap(plain)
        big = value(leaf, schemas, "x" * BIG)
        if big != plain:
            yield path, "256 KiB", wrap(big)
        if is_map and isinstance(plain, dict):
            key = next(iter(plain))
            yield path, "256 KiB as a key", wrap({"x" * BIG: plain[key]})
            has = found(before, path)
            for key in sorted(has)[:1] if isinstance(has, dict) else []:
                other = has[key] + 1 if isinstance(has[key], int) else "foreign"
                yield path, "existing", wrap({key: other})
                if target["verb"] == "patch":
                    yield path, "removed", wrap({key: None})
        elif target["verb"] == "patch" and not isinstance(found(before, path), dict):
            yield path, "removed", wrap(None)


def schema_of(server, path):
    """The schema of the objects at a path, and all that it refers to."""
    parts = path.strip("/").split("/")
    group = "/".join(parts[:2] if parts[0] == "api" else parts[:3])
    _, api = server.ask("GET", "/openapi/v3/" + group)
    schemas = api["components"]["schemas"]
    name = [p for p in parts[len(group.split("/")):] if p != "status"]
    plural = name[2] if name[0] == "namespaces" and len(name) > 2 else name[0]
    for full in schemas:
        kind = full.rsplit(".", 1)[-1]
        if plural in (kind.lower(), kind.lower() + "s") and "metadata" in schemas[full].get("properties", {}):
            return schemas[full], schemas
    raise SystemExit("no schema of %s" % path)


def changes(before, after, path, body):
    """Whether a try has an effect. Of its own fields the server takes what is tried, or takes no notice."""
    if path.startswith("metadata.") and path.split(".")[1].removesuffix("[]") in SERVERS:
        field = ".".join(path.split(".")[:2]).removesuffix("[]")
        if field == "metadata.managedFields":
            return len(json.dumps(found(after, field))) > BIG
        return found(after, field) != found(before, field) and found(after, field) == found(body, field) and field != "metadata.resourceVersion"
    before, after = copy.deepcopy([before, after])
    for answer in (before, after):
        for field in SERVERS:
            answer.get("metadata", {}).pop(field, None)
    return before != after


def judge(admin, token, target, used):
    """The wrong answers about one target, and how many tries counted."""
    schema, schemas = schema_of(admin, target["path"])
    is_creation = target["verb"] == "create"
    base = target.get("object", {})
    code, before = admin.write(target, base) if is_creation else admin.ask("GET", target["path"])
    if code >= 300:
        return ["%s: %s" % (target["what"], before.get("message"))], 0
    if is_creation:
        code, answer = token.write(target, base)
        if (target.get("only") != "refused") != (code < 300):
            return ["%s: %s makes %s: %s" % (code, target["as"], target["what"], answer.get("message"))], 1
    wrong, counted = [], 0
    for path, kind, body in tries(schema, schemas, target, before) if "only" not in target else []:
        body = merged(base, body) if is_creation else body
        code, answer = token.write(target, body)
        if code == 403 and "cannot " in answer["message"] and "ValidatingAdmissionPolicy" not in answer["message"]:
            return wrong, counted + 1  # RBAC does not look at fields
        if "/nodes/" in target["path"]:
            # The control plane writes to Nodes, too, such as a taint of one whose kubelet is silent.
            before = admin.ask("GET", target["path"])[1]
        may, outcome = admin.write(target, body)
        label = "%s, %s, %s, %s" % (target["as"], target["what"], path, kind)
        if may >= 300 or not changes(before, outcome, path, body):
            # The server refuses it to everybody, or takes no notice of it.
            is_ours = "akri.sh" in target["path"] and not kind.startswith(("256", "removed", "existing"))
            last = path.split(".")[1].removesuffix("[]") if path.startswith("metadata.") else path
            is_status = path.startswith("status") != target["path"].endswith("/status")
            if is_ours and may >= 300 and last not in SERVERS + FIXED and not is_status:
                wrong.append("not tried, the schema refuses it: %s: %s" % (label, outcome.get("message", "")[:300]))
            if code < 300 and may >= 300:
                wrong.append("accepted, but not of the administrator: " + label)
            continue
        counted += 1
        reasons = [m for m in MAY if all(fnmatch.fnmatchcase(t, p.replace("[", "[[]")) for t, p in
                                         zip((target["as"], target["what"], path, kind), m))]
        used.update(m[:4] for m in reasons if code < 300)
        if code < 300 and not reasons:
            wrong.append("accepted: " + label)
        elif code < 300 and kind.startswith("256 KiB") and target["as"] != "controller":
            wrong.append("accepted: " + label)
        elif code >= 300 and code != 403 and not kind.startswith("256 KiB"):
            wrong.append("refused with %s, not by a policy: %s: %s" % (code, label, answer.get("message", "")[:300]))
    return wrong, max(counted, 1)


def instance(name, uid, nodes, **spec):
    digest = name.rsplit("-", 1)[-1]
    owner = {"apiVersion": "akri.sh/v0", "kind": "Configuration", "name": "fields", "uid": uid, "controller": True}
    return {
        "apiVersion": "akri.sh/v0", "kind": "Instance",
        "metadata": {
            "name": name, "namespace": "default", "annotations": {"akri.sh/device-id": name, "told.akri.sh/0": "abc"},
            "labels": {"node.akri.sh/" + node: "" for node in nodes or ["leaf-2"]}, "ownerReferences": [owner],
        },
        "spec": {
            "configurationName": "fields", "cdiName": "akri.sh/fields=" + digest, "capacity": 3, "nodes": nodes,
            "brokerProperties": {"A": "b"}, "deviceUsage": {name + "-0": (nodes or ["leaf-2"])[0]}, **spec,
        },
    }


def named(version, kind, name, namespace="default", **rest):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **rest}


def report(node):
    device = {"id": "camera", "properties": {"A": "b"}, "usage": {"fields-1-0": node}}
    seen = {"namespace": "default", "name": "fields", "devices": [device]}
    return {"apiVersion": "akri.sh/v0", "kind": "NodeDevices", "metadata": {"name": node}, "spec": {"configurations": [seen]}}


def event(controller, node):
    about = {"apiVersion": "akri.sh/v0", "kind": "Configuration", "name": "fields", "namespace": "default"}
    return named("events.k8s.io/v1", "Event", "fields", eventTime="2026-01-01T00:00:00.000000Z", reportingController=controller,
                 reportingInstance=node, action="Test", reason="Test", type="Normal", regarding=about)


def owned(made, kind="Instance", uid="4b1e0c1f-0000-4000-8000-000000000000"):
    owner = {"apiVersion": "akri.sh/v0", "kind": kind, "name": "fields-00dd44", "uid": uid, "controller": True}
    made = copy.deepcopy(made)
    made["metadata"]["ownerReferences"] = [owner]
    return made


AKRI, CORE = "/apis/akri.sh/v0/namespaces/default/", "/api/v1/"
PODS = {"containers": [{"name": "a", "image": "a"}]}
WORKLOADS = {
    "pods": (CORE, named("v1", "Pod", "fields", spec=PODS)),
    "services": (CORE, named("v1", "Service", "fields", spec={"ports": [{"port": 80}]})),
    "jobs": ("/apis/batch/v1/", named("batch/v1", "Job", "fields", spec={"template": {"spec": {**PODS, "restartPolicy": "Never"}}})),
}
OTHERS = {
    "leases": ("/apis/coordination.k8s.io/v1/", named("coordination.k8s.io/v1", "Lease", "fields", spec={"holderIdentity": "a"})),
    "secrets": (CORE, named("v1", "Secret", "fields", data={"a": "YQ=="})),
    "configmaps": (CORE, named("v1", "ConfigMap", "fields", data={"a": "b"})),
}


def collection(group, plural, namespace="default"):
    return "%snamespaces/%s/%s" % (group, namespace, plural)


def objects(admin):
    """What is there, each with the path of its collection: made by the administrator."""
    uid = admin.ask("GET", AKRI + "configurations/fields")[1]["metadata"]["uid"]
    instances = AKRI + "instances"
    yield instances, instance("fields-00aa11", uid, ["leaf-1"], shared=False)
    yield instances, instance("fields-00bb22", uid, ["leaf-2"], shared=False)
    yield instances, instance("fields-00cc33", uid, [], shared=False)
    yield instances, instance("fields-00dd44", uid, ["leaf-2"], shared=True)
    yield instances, instance("fields-00ee55", uid, ["leaf-2", "leaf-1"], shared=True)
    for node in ("leaf-1", "leaf-2"):
        yield "/apis/akri.sh/v0/nodedevices", report(node)
    for plural, (group, made) in {**WORKLOADS, **OTHERS}.items():
        yield collection(group, plural), made


def targets(uid):
    """What is tried: as whom, a name for it, verb, path, and more."""
    def patches(who, what, path, status=True, health="leaf-2"):
        given = {"status.nodes[].name": health, "spec.resourceName": "akri.sh/foreign", "spec.containerDevices.mode": "0666",
                 "spec.containerDevices.path": "/dev/foreign", "spec.whenGone": "Evict", "spec.allocation": "DRA"}
        yield {"as": who, "what": what, "verb": "patch", "path": path, "with": given}
        if status:
            yield {"as": who, "what": what + " status", "verb": "patch", "path": path + "/status", "with": given}

    def creates(who, what, path, made, only=None):
        yield {"as": who, "what": what, "verb": "create", "path": path, "object": made, **({"only": only} if only else {})}

    instances, reports = AKRI + "instances", "/apis/akri.sh/v0/nodedevices"
    for who in ("agent", "controller"):
        yield from patches(who, "configuration", AKRI + "configurations/fields")
        own = {"agent": "own instance", "controller": "instance of one node"}[who]
        yield from patches(who, own, instances + "/fields-00aa11", health="leaf-1")
        yield from patches(who, "instance of another", instances + "/fields-00bb22")
        yield from patches(who, "instance of a node that is not ready", instances + "/fields-00cc33")
        yield from patches(who, "shared instance of others", instances + "/fields-00dd44")
        yield from patches(who, "shared instance", instances + "/fields-00ee55")
        yield from patches(who, "own report" if who == "agent" else "report of leaf-1", reports + "/leaf-1", False)
        yield from patches(who, "report of another", reports + "/leaf-2", False)
        for node in ("leaf-1", "leaf-2"):
            yield from patches(who, "node " + node, CORE + "nodes/" + node)
        for plural, (group, _) in {**WORKLOADS, **OTHERS}.items():
            yield from patches(who, plural, collection(group, plural) + "/fields", plural in WORKLOADS)
        for plural, (group, made) in OTHERS.items():
            there = named(made["apiVersion"], made["kind"], "fields-2", "petiole")
            yield from creates(who, "%s of petiole" % plural, collection(group, plural, "petiole"), there, "refused")
        for plural, (group, made) in WORKLOADS.items():
            made = {**made, "metadata": {"name": "fields-2"}}
            at = collection(group, plural)
            yield from creates(who, "%s of nobody" % plural, at, made, "refused")
            for kind in ("Instance", "Configuration"):
                yield from creates(who, "%s of an %s" % (plural, kind), at, owned(made, kind), "accepted" if who == "controller" else "refused")
            for namespace in ("kube-system", "petiole"):
                yield from creates(who, "%s in %s" % (plural, namespace), collection(group, plural, namespace), owned(made), "refused")
    new = instance("fields-00ff66", uid, ["leaf-1"], shared=False)
    yield from creates("agent", "new instance", instances, new, "refused")
    yield from creates("new agent", "new report", reports, report("leaf-3"))
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    yield from creates("agent", "new event", events, event("petiole-agent", "leaf-1"))
    yield from creates("agent", "event of another", events, event("petiole-agent", "leaf-2"), "refused")
    yield from creates("controller", "event of an agent", events, event("petiole-agent", "leaf-1"), "refused")
    yield from creates("controller", "event of its own", events, event("petiole-controller", "a"), "accepted")
    yield from creates("controller", "new instance", instances, instance("fields-00ff66", uid, ["leaf-1"], shared=True))


def main():
    with open(sys.argv[1]) as file:
        kubeconfig = json.load(file)
    with open(sys.argv[2]) as file:
        users = {user: Server(kubeconfig, token) for user, token in json.load(file).items()}
    admin, used, wrong, counted, made = Server(kubeconfig), set(), [], 0, []

    def make(path, body):
        code, answer = admin.ask("POST", path, body)
        if code >= 300:
            raise SystemExit("%s: %s" % (path, answer.get("message")))
        made.append(path + "/" + body["metadata"]["name"])
        return answer

    try:
        configuration = named("akri.sh/v0", "Configuration", "fields", spec={"discoveryHandler": {"name": "none"}, "capacity": 3})
        configuration["metadata"].update(finalizers=["node-1"], labels={"a": "b"}, annotations={"a": "b"})
        uid = make(AKRI + "configurations", configuration)["metadata"]["uid"]
        for path, body in objects(admin):
            make(path, body)
        for target in targets(uid):
            failures, number = judge(admin, users[target["as"]], target, used)
            wrong += failures
            counted += number
            print("%5d tries: %s, %s %s" % (number, target["as"], target["verb"], target["what"]))
    finally:
        admin.ask("PATCH", AKRI + "configurations/fields", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        for path in reversed(made):
            admin.ask("DELETE", path + "?propagationPolicy=Background")
    wrong += ["nothing needs this exception: %s" % (m,) for m in MAY if m[:4] not in used]
    print("\n".join(wrong))
    print("%d tries, %d wrong answers" % (counted, len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
