{{/* The first part of every object's name. */}}
{{- define "petiole.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select a component's Pods. Call with (list . "agent"). */}}
{{- define "petiole.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/*
Labels of the Pods of a component, as "petiole.labels". The version of a chart that Flux takes from a Git branch changes with
every commit; Pods do not have it, because they would be replaced each time.
*/}}
{{- define "petiole.podLabels" -}}
{{- $root := index . 0 -}}
{{ include "petiole.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{/* The commands know the installation by it, also where the chart has another name as a part of one. */ -}}
app.kubernetes.io/part-of: petiole
{{- end -}}

{{/* Labels of every object of a component. Call with (list . "agent"). */}}
{{- define "petiole.labels" -}}
{{- $root := index . 0 -}}
{{ include "petiole.podLabels" . }}
helm.sh/chart: {{ printf "petiole-%s" $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Labels or annotations with those of the user, who cannot replace them. Call with (list $labels .Values.agent.podLabels). */}}
{{- define "petiole.with" -}}
{{ toYaml (merge (fromYaml (index . 0)) (default dict (index . 1))) }}
{{- end -}}

{{/* Refuses what the schema could refuse only without saying why. */}}
{{- define "petiole.validate" -}}
{{- range .Values.resourcePrefixes -}}
{{- if or (hasSuffix "kubernetes.io" .) (hasPrefix "requests." .) -}}
{{- fail (printf "resourcePrefixes: %q is Kubernetes' own, and a kubelet takes no device plugin with it. Use a domain of yours, such as devices.example.com" .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.udev.enabled (not .Values.udev.subsystems) -}}
{{- fail "udev.subsystems is empty: name the subsystems whose devices Configurations may offer, such as [tty, video4linux]; [\"*\"] allows all, disks and memory of the nodes among them" -}}
{{- end -}}
{{- if and (has .Values.agent.http.metrics.host (list "0.0.0.0" "[::]")) (or .Values.agent.http.metrics.enabled .Values.monitor.kind) (not .Values.isolateDiscovery) -}}
{{- fail "agent.http.metrics.host: 0.0.0.0 and [::] contain 127.0.0.1, where the agent serves its health on the same port. Name an address of the node, such as $(NODE_IP)" -}}
{{- end -}}
{{- if and .Values.dra.enabled (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "dra.enabled needs Kubernetes 1.36, where each device of a ResourceSlice may name its nodes; this is %s" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.probe.enabled (not .Values.probe.networks) -}}
{{- fail "probe.networks is empty: name the networks whose hosts Configurations may have asked, such as [10.1.2.0/24]" -}}
{{- end -}}
{{- if and .Values.probe.enabled (not .Values.probe.clusterNetworks) -}}
{{- fail "probe.clusterNetworks is empty: name the networks of the cluster's Pods and Services, such as [10.244.0.0/16, 10.96.0.0/12], so that their addresses are not asked" -}}
{{- end -}}
{{- if and .Values.deviceServices.networks (not .Values.deviceServices.clusterNetworks) -}}
{{- fail "deviceServices.clusterNetworks is empty: name the networks of the cluster's Pods and Services, such as [10.244.0.0/16, 10.96.0.0/12], so that no device has an address of theirs" -}}
{{- end -}}
{{- end -}}

{{/* Whom the handler probe may ask. */}}
{{- define "petiole.probe.env" -}}
- {name: PETIOLE_PROBE_NETWORKS, value: {{ join "," .Values.probe.networks | quote }}}
- {name: PETIOLE_PROBE_CLUSTER_NETWORKS, value: {{ join "," .Values.probe.clusterNetworks | quote }}}
{{- end -}}

{{/* The handlers that run as processes of their own with isolateDiscovery: those that need the network of the node. */}}
{{- define "petiole.isolatedHandlers" -}}
zeroconf,onvif,opcua,mqtt {{- if .Values.udev.enabled }},udev{{ end }}{{ if .Values.probe.enabled }},probe{{ end }}
{{- end -}}

{{/* The folder of the nodes with a folder for each of these processes. The agent has it in the folder of its state. */}}
{{- define "petiole.isolatedDir" -}}
{{- printf "%s/isolated" (clean .Values.agent.stateDir) -}}
{{- end -}}

{{/* Where the kubelet asks an agent. Call with (list . "/healthz"). */}}
{{- define "petiole.agentProbe" -}}
{{- with index . 0 }}{ {{- if not .Values.isolateDiscovery }}host: 127.0.0.1, {{ end }}path: {{ index $ 1 }}, port: {{ .Values.agent.http.port }}}{{ end -}}
{{- end -}}

{{- define "petiole.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* Environment that every subcommand reads. */}}
{{- define "petiole.env" -}}
- {name: PETIOLE_LOG, value: {{ .Values.log.level | quote }}}
- {name: PETIOLE_LOG_FORMAT, value: {{ .Values.log.format | quote }}}
- {name: PETIOLE_RESOURCE_PREFIXES, value: {{ join "," .Values.resourcePrefixes | quote }}}
{{- with .Values.watchNamespaces }}
- {name: PETIOLE_WATCH_NAMESPACES, value: {{ join "," . | quote }}}
{{- end }}
{{- end -}}

{{/* What the `restricted` Pod Security level asks of a container. */}}
{{- define "petiole.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The kubelet's root folder, for its pod resources. */}}
{{- define "petiole.kubeletDir" -}}
{{- get (dict "k0s" "/var/lib/k0s/kubelet" "microk8s" "/var/snap/microk8s/common/var/lib/kubelet" "k3s" "/var/lib/kubelet" "" "/var/lib/kubelet") .Values.kubelet.distribution -}}
{{- end -}}

{{- define "petiole.devicePluginDir" -}}
{{- default "/var/lib/kubelet/device-plugins" .Values.kubelet.devicePluginDir -}}
{{- end -}}

{{- define "petiole.podResourcesDir" -}}
{{- default (printf "%s/pod-resources" (include "petiole.kubeletDir" .)) .Values.kubelet.podResourcesDir -}}
{{- end -}}

{{/* Annotations of what is there only while `helm uninstall` runs. Helm creates the lower weight first. */}}
{{- define "petiole.uninstallHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/*
Rights on namespaced kinds: a ClusterRole or, with watchNamespaces, a Role in each of them.
Call with (dict "root" . "component" "agent" "name" "petiole-agent" "rules" "the name of a template"); `roleAnnotations`
and `bindingAnnotations` are optional.
*/}}
{{- define "petiole.namespacedRights" -}}
{{- $namespaces := default (list "") .root.Values.watchNamespaces -}}
{{- range $namespace := $namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" (ne $namespace "") }}
metadata:
  name: {{ $.name }}-objects
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "petiole.labels" (list $.root $.component) | nindent 4 }}
  {{- with $.roleAnnotations }}
  annotations: {{- . | nindent 4 }}
  {{- end }}
rules:
  {{- include $.rules $.root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" (ne $namespace "") }}
metadata:
  name: {{ $.name }}-objects
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "petiole.labels" (list $.root $.component) | nindent 4 }}
  {{- with $.bindingAnnotations }}
  annotations: {{- . | nindent 4 }}
  {{- end }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ ternary "Role" "ClusterRole" (ne $namespace "") }}, name: {{ $.name }}-objects}
subjects:
  - {kind: ServiceAccount, name: {{ $.name }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end -}}

{{/*
Rights on kinds of the whole cluster. Call as "petiole.namespacedRights".
*/}}
{{- define "petiole.clusterRights" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels: {{- include "petiole.labels" (list .root .component) | nindent 4 }}
  {{- with .roleAnnotations }}
  annotations: {{- . | nindent 4 }}
  {{- end }}
rules:
  {{- include .rules .root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels: {{- include "petiole.labels" (list .root .component) | nindent 4 }}
  {{- with .bindingAnnotations }}
  annotations: {{- . | nindent 4 }}
  {{- end }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
{{- end -}}

{{/*
Events about objects of the whole cluster (Nodes, CustomResourceDefinitions) are in the namespace `default`; with
watchNamespaces without it, that needs a Role there.
*/}}
{{- define "petiole.eventRights" -}}
{{- if and .root.Values.watchNamespaces (not (has "default" .root.Values.watchNamespaces)) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}-events
  namespace: default
  labels: {{- include "petiole.labels" (list .root .component) | nindent 4 }}
rules:
  - {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}-events
  namespace: default
  labels: {{- include "petiole.labels" (list .root .component) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}-events}
subjects:
  - {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}
{{- end -}}

{{- define "petiole.crdRule" -}}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [configurations.akri.sh, instances.akri.sh, nodedevices.akri.sh]
  verbs: [get]
{{- end -}}

{{/* Binds a policy of ours. Call with (dict "root" . "name" "agent-reports" "component" "agent"). */}}
{{- define "petiole.policyBinding" -}}
{{- $name := printf "%s-%s" (include "petiole.fullname" .root) .name -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels: {{- include "petiole.labels" (list .root .component) | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end -}}
