{{/* Takes a dict of root and component, as the others below do. */}}
{{- define "fleetgate.selector" -}}
app.kubernetes.io/name: fleetgate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "fleetgate.labels" -}}
{{ include "fleetgate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The account and the workload of a component; all in one is simply fleetgate. */}}
{{- define "fleetgate.name" -}}
{{- if eq .component "all-in-one" }}fleetgate{{ else }}fleetgate-{{ .component }}{{ end }}
{{- end }}

{{/* Who answers DNS, or keeps the doors: takes a dict of root and role. */}}
{{- define "fleetgate.component" -}}
{{- if eq .root.Values.mode "allInOne" }}all-in-one{{ else }}{{ .role }}{{ end }}
{{- end }}

{{/* The components that run, as JSON. */}}
{{- define "fleetgate.components" -}}
{{- if eq .Values.mode "allInOne" }}
{{- list "all-in-one" | toJson }}
{{- else }}
{{- $components := list "controller" }}
{{- if .Values.dns.enabled }}{{ $components = append $components "dns" }}{{ end }}
{{- if .Values.gateway.enabled }}{{ $components = append $components "gateway" }}{{ end }}
{{- $components | toJson }}
{{- end }}
{{- end }}

{{/* The accounts of all components, as JSON. */}}
{{- define "fleetgate.accounts" -}}
{{- $root := .root }}
{{- $accounts := list }}
{{- range $component := include "fleetgate.components" $root | fromJsonArray }}
{{- $accounts = append $accounts (include "fleetgate.name" (dict "root" $root "component" $component)) }}
{{- end }}
{{- $accounts | toJson }}
{{- end }}

{{/* The settings of a component, as JSON. */}}
{{- define "fleetgate.settings" -}}
{{- if eq .component "all-in-one" }}
{{- merge (dict "kind" "StatefulSet") .root.Values.allInOne | toJson }}
{{- else if eq .component "controller" }}
{{- merge (dict "kind" "Deployment") .root.Values.controller | toJson }}
{{- else }}
{{- index .root.Values .component | toJson }}
{{- end }}
{{- end }}

{{- define "fleetgate.image" -}}
{{- $why := "image.repository is required: build an image with the Dockerfile, push it to a registry of yours and say where it is" }}
{{- $repository := required $why .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The namespaces from which a component reads what objects name, as JSON. */}}
{{- define "fleetgate.sources" -}}
{{- $sources := prepend .root.Values.sources .root.Release.Namespace }}
{{- if has .component (list "controller" "all-in-one") }}
{{- $sources = concat $sources .root.Values.kubeconfigs.namespaces }}
{{- end }}
{{- $sources | uniq | toJson }}
{{- end }}

{{/* Where the key of the gateway's volume is; empty without one. */}}
{{- define "fleetgate.dataKey" -}}
{{- if .Values.dataKey.existingSecret }}
{{- .Values.dataKey.existingSecret }}
{{- else if .Values.dataKey.create }}
{{- "fleetgate-data-key" }}
{{- end }}
{{- end }}

{{/* Not empty where a component has the agents' door: those that lead, as others write nothing. */}}
{{- define "fleetgate.agents" -}}
{{- if and .root.Values.agents.enabled (has .component (list "controller" "all-in-one")) }}yes{{ end }}
{{- end }}

{{/* Where the admin credential of a component is; empty without one, and for data planes, which have nothing to change. */}}
{{- define "fleetgate.adminCredential" -}}
{{- if has .component (list "controller" "all-in-one") }}{{ .root.Values.admin.credentialSecret }}{{ end }}
{{- end }}

{{/* Not empty where control planes have a resolver. */}}
{{- define "fleetgate.resolver" -}}
{{- if and .Values.resolver.enabled .Values.dns.enabled }}yes{{ end }}
{{- end }}

{{/* Not empty where gateways take links of agents. */}}
{{- define "fleetgate.links" -}}
{{- if and .Values.tunnel.enabled .Values.agents.enabled .Values.gateway.enabled }}yes{{ end }}
{{- end }}
