{{/* The pod of a component. Takes a dict of root, component and settings. */}}
{{- define "fleetgate.pod" -}}
{{- $keeps := ne .component "controller" }}
{{- $doors := has .component (list "gateway" "all-in-one") }}
{{- $dataKey := ternary (include "fleetgate.dataKey" .root) "" $doors }}
{{- $emptyData := and $keeps (not (include "fleetgate.claims" .)) }}
{{- $adminCredential := include "fleetgate.adminCredential" . }}
metadata:
  labels:
    {{- include "fleetgate.labels" . | nindent 4 }}
  {{- with .settings.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "fleetgate.name" . }}
  # The accounts themselves give no token, so that nobody else gets one by mistake.
  automountServiceAccountToken: true
  enableServiceLinks: false
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .settings.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  # The pause of preStop, the time to drain, and some to write what is to be kept.
  terminationGracePeriodSeconds: {{ add 5 (ternary .root.Values.gateway.drainSeconds 0 $doors | int64) 15 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    # Volumes are its own.
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
  - name: fleetgate
    image: {{ include "fleetgate.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
    {{- include "fleetgate.arguments" . | trim | nindent 4 }}
    {{- range .settings.extraArgs }}
    - {{ . | quote }}
    {{- end }}
    env:
    - {name: FLEETGATE_LOG, value: {{ .root.Values.log.level | quote }}}
    - {name: FLEETGATE_LOG_FORMAT, value: {{ .root.Values.log.format | quote }}}
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    # What it is called among the others.
    - name: FLEETGATE_EDGE
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    {{- if has .component (list "controller" "all-in-one") }}
    # Where the others find it while it leads.
    - name: FLEETGATE_PEERS_ADDRESS
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- end }}
    {{- if and $doors (include "fleetgate.links" .root) }}
    # Where the others bring what is for clusters that are linked here.
    - name: FLEETGATE_RELAY_ADDRESS
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- end }}
    {{- if $adminCredential }}
    # For `kubectl exec ... -- fleetgate credential`.
    - {name: FLEETGATE_ADMIN_CREDENTIAL, value: /etc/fleetgate/admin/credential}
    {{- end }}
    ports:
    {{- include "fleetgate.ports" . | trim | nindent 4 }}
    # A fleet that starts is read whole before anything is answered.
    startupProbe:
      httpGet: {port: metrics, path: /healthz}
      periodSeconds: 2
      failureThreshold: 150
    livenessProbe:
      httpGet: {port: metrics, path: /healthz}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {port: metrics, path: /readyz}
      periodSeconds: 5
      timeoutSeconds: 5
    lifecycle:
      # Until load balancers have heard that the pod goes, they send it new connections and queries.
      preStop: {sleep: {seconds: 5}}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources:
      {{- toYaml .settings.resources | nindent 6 }}
    {{- if or $keeps $adminCredential }}
    volumeMounts:
    {{- if $keeps }}
    - {name: data, mountPath: /var/lib/fleetgate}
    {{- end }}
    {{- if $dataKey }}
    - {name: data-key, mountPath: /etc/fleetgate/data-key, readOnly: true}
    {{- end }}
    {{- if $adminCredential }}
    - {name: admin, mountPath: /etc/fleetgate/admin, readOnly: true}
    {{- end }}
    {{- end }}
  {{- if or $dataKey $emptyData $adminCredential }}
  volumes:
  {{- if $emptyData }}
  # Lasts as long as the pod, not only as its container.
  - {name: data, emptyDir: {sizeLimit: {{ .settings.persistence.size }}}}
  {{- end }}
  {{- if $dataKey }}
  - {name: data-key, secret: {secretName: {{ $dataKey | quote }}, defaultMode: 0440}}
  {{- end }}
  {{- if $adminCredential }}
  - name: admin
    secret:
      secretName: {{ $adminCredential | quote }}
      defaultMode: 0440
      # No other field of it, should it have more.
      items: [{key: credential, path: credential}]
  {{- end }}
  {{- end }}
  {{- with .settings.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .settings.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .settings.affinity }}
  affinity:
    {{- toYaml .settings.affinity | nindent 4 }}
  {{- else if ne .settings.kind "DaemonSet" }}
  affinity:
    podAntiAffinity:
      # Preferred, not required: a replica beside another is better than none.
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "fleetgate.selector" . | nindent 14 }}
  {{- end }}
  {{- if .settings.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml .settings.topologySpreadConstraints | nindent 4 }}
  {{- else if ne .settings.kind "DaemonSet" }}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "fleetgate.selector" . | nindent 8 }}
  {{- end }}
{{- end }}

{{/* Not empty where each replica has a volume of its own. */}}
{{- define "fleetgate.claims" -}}
{{- if and (eq .settings.kind "StatefulSet") .settings.persistence.enabled }}yes{{ end }}
{{- end }}
