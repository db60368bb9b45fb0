{{/* The command line of a component, as a YAML list. Takes a dict of root and component. */}}
{{- define "fleetgate.arguments" -}}
{{- $values := .root.Values }}
{{- $all := eq .component "all-in-one" }}
{{- $dns := or (eq .component "dns") (and $all $values.dns.enabled) }}
{{- $gateway := or (eq .component "gateway") (and $all $values.gateway.enabled) }}
{{- if $all }}
- serve
- --hub
{{- else }}
- {{ .component }}
{{- end }}
- --namespace={{ .root.Release.Namespace }}
- --sources={{ include "fleetgate.sources" . | fromJsonArray | join "," }}
{{- if ne .component "dns" }}
{{- with $values.certificates.namespaces }}
- --certificates={{ join "," . }}
{{- end }}
{{- end }}
{{- if $dns }}
- --dns={{ $values.listenAddress }}:5353
- --dns-rate-limit={{ $values.dns.rateLimit | int64 }}
{{- with $values.dns.identity }}
- {{ printf "--dns-identity=%s" . | quote }}
{{- end }}
{{- end }}
{{- if $gateway }}
- --apiserver={{ $values.listenAddress }}:6443
- --sni={{ $values.listenAddress }}:8443
{{- if $values.gateway.http.enabled }}
- --http={{ $values.listenAddress }}:8080
# Hosts of Ingresses end here, names of clusters pass through.
- --https={{ $values.listenAddress }}:8443
- --https-port={{ $values.gateway.service.sniPort | int64 }}
{{- end }}
- --drain={{ $values.gateway.drainSeconds | int64 }}s
{{- with $values.gateway.trustedProxies }}
- --trusted-proxies={{ join "," . }}
{{- end }}
{{- if $values.gateway.keepDisallowed }}
- --keep-disallowed
{{- end }}
{{- end }}
{{- if and (has .component (list "controller" "all-in-one")) $values.admission.enabled }}
- --admission={{ $values.listenAddress }}:9633
- --admission-failure-policy={{ lower $values.admission.failurePolicy }}
{{- end }}
{{- if and $dns (include "fleetgate.resolver" .root) }}
- --resolver={{ $values.listenAddress }}:{{ $values.resolver.ports }}
{{- with $values.resolver.upstreams }}
- --resolver-upstream={{ join "," . }}
{{- end }}
{{- end }}
{{- if and (has .component (list "controller" "all-in-one")) (include "fleetgate.resolver" .root) }}
- --resolver-service=fleetgate-resolver
- --resolver-ports={{ $values.resolver.ports }}
{{- if $values.admission.enabled }}
- --admission-pods-failure-policy={{ lower $values.resolver.podsFailurePolicy }}
{{- end }}
{{- end }}
{{- if and (ne .component "gateway") (include "fleetgate.resolver" .root) }}
- --resolver-hub-domain={{ $values.resolver.hubDomain }}
{{- end }}
{{- if include "fleetgate.agents" . }}
- --agents={{ $values.listenAddress }}:8444
{{- end }}
{{- if and $gateway (include "fleetgate.links" .root) }}
{{- if not $all }}
- --agents={{ $values.listenAddress }}:8444
{{- end }}
- --relay={{ $values.listenAddress }}:9637
{{- if $values.tunnel.egress.enabled }}
- --egress={{ $values.listenAddress }}:9638
{{- end }}
{{- end }}
{{- if has .component (list "controller" "all-in-one") }}
- --peers={{ $values.listenAddress }}:9634
- --peers-accounts={{ include "fleetgate.accounts" . | fromJsonArray | join "," }}
- --peers-link-accounts={{ include "fleetgate.name" (dict "root" .root "component" "gateway") }}
{{- end }}
{{- if ne .component "controller" }}
- --data=/var/lib/fleetgate
{{- if and (ne .component "dns") (include "fleetgate.dataKey" .root) }}
- --data-key=/etc/fleetgate/data-key/key
{{- end }}
{{- end }}
- --metrics={{ $values.listenAddress }}:9631
# For `kubectl exec ... -- fleetgate get`.
- --admin=127.0.0.1:9630
{{- if include "fleetgate.adminCredential" . }}
- --admin-credential=/etc/fleetgate/admin/credential
{{- end }}
{{- end }}

{{/* What a component listens on. */}}
{{- define "fleetgate.ports" -}}
{{- $all := eq .component "all-in-one" }}
{{- if or (eq .component "dns") (and $all .root.Values.dns.enabled) }}
- {name: dns-udp, containerPort: 5353, protocol: UDP}
- {name: dns-tcp, containerPort: 5353, protocol: TCP}
{{- end }}
{{- if or (eq .component "gateway") (and $all .root.Values.gateway.enabled) }}
- {name: apiserver, containerPort: 6443, protocol: TCP}
- {name: sni, containerPort: 8443, protocol: TCP}
{{- if .root.Values.gateway.http.enabled }}
- {name: http, containerPort: 8080, protocol: TCP}
{{- end }}
{{- end }}
{{- if and (has .component (list "controller" "all-in-one")) .root.Values.admission.enabled }}
- {name: admission, containerPort: 9633, protocol: TCP}
{{- end }}
{{- if include "fleetgate.agents" . }}
- {name: agents, containerPort: 8444, protocol: TCP}
{{- end }}
{{- if and (include "fleetgate.links" .root) (or (eq .component "gateway") (and $all .root.Values.gateway.enabled)) }}
{{- if not $all }}
- {name: agents, containerPort: 8444, protocol: TCP}
{{- end }}
- {name: relay, containerPort: 9637, protocol: TCP}
{{- if .root.Values.tunnel.egress.enabled }}
- {name: egress, containerPort: 9638, protocol: TCP}
{{- end }}
{{- end }}
{{- if has .component (list "controller" "all-in-one") }}
- {name: peers, containerPort: 9634, protocol: TCP}
{{- end }}
- {name: metrics, containerPort: 9631, protocol: TCP}
{{- end }}
