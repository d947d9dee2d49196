{{- define "holdfast.name" -}}
{{- $release := .Release.Name -}}
{{- if not (contains "holdfast" $release) }}{{ $release = printf "%s-holdfast" $release }}{{ end -}}
{{- .Values.fullnameOverride | default $release | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "holdfast.labels" -}}
{app.kubernetes.io/name: holdfast, app.kubernetes.io/instance: {{ quote .Release.Name }}}
{{- end }}

{{- /* Of pods that are no nodes, which services and policies must not take for one. */ -}}
{{- define "holdfast.jobLabels" -}}
{app.kubernetes.io/name: holdfast-backup, app.kubernetes.io/instance: {{ quote .Release.Name }}}
{{- end }}

{{- /* The nodes that found a cluster together: further ones join it. */ -}}
{{- define "holdfast.initialCluster" -}}
{{- $name := include "holdfast.name" . -}}
{{- range $i := until (min 3 (int .Values.replicas) | int) -}}
{{ if $i }},{{ end }}{{ $name }}-{{ $i }}={{ $name }}-{{ $i }}.{{ $name }}-nodes:7379
{{- end -}}
{{- end }}

{{- define "holdfast.join" -}}
{{- regexReplaceAll "[^,=]+=" (include "holdfast.initialCluster" .) "" -}}
{{- end }}

{{- define "holdfast.secret" -}}
{{ .Values.auth.existingSecret | default (include "holdfast.name" .) }}
{{- end }}

{{- define "holdfast.tlsSecret" -}}
{{- if .Values.tls.existingSecret }}{{ .Values.tls.existingSecret }}
{{- else if .Values.tls.issuerRef }}{{ include "holdfast.name" . }}-tls{{ end -}}
{{- end }}

{{- define "holdfast.claim" -}}
{{ .Values.backup.existingClaim | default (printf "%s-backups" (include "holdfast.name" .)) }}
{{- end }}

{{- define "holdfast.size" -}}
resources:
  requests: {storage: {{ .size }}}
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "holdfast.pod" -}}
automountServiceAccountToken: false
# Variables of services would look like flags.
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- range $field := list "affinity" "nodeSelector" "tolerations" "priorityClassName" }}
{{- with index $.Values $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end }}

{{- define "holdfast.container" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end }}

{{- /* Where a node, and commands in any pod, find the password and certificates. */ -}}
{{- define "holdfast.clientEnv" -}}
- {name: HOLDFAST_PASSWORD_FILE, value: /etc/holdfast/password}
{{- if .Values.auth.users }}
- name: HOLDFAST_USER
  valueFrom: {secretKeyRef: {name: {{ include "holdfast.secret" . }}, key: username}}
{{- end }}
{{- if include "holdfast.tlsSecret" . }}
- {name: HOLDFAST_TLS_CERT, value: /etc/holdfast-tls/tls.crt}
- {name: HOLDFAST_TLS_KEY, value: /etc/holdfast-tls/tls.key}
- {name: HOLDFAST_TLS_CA, value: /etc/holdfast-tls/ca.crt}
{{- end }}
{{- end }}

{{- define "holdfast.secretMounts" -}}
- {name: secrets, mountPath: /etc/holdfast, readOnly: true}
{{- if include "holdfast.tlsSecret" . }}
- {name: tls, mountPath: /etc/holdfast-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "holdfast.secretVolumes" -}}
- name: secrets
  secret: {secretName: {{ include "holdfast.secret" . }}, defaultMode: 0440}
{{- with include "holdfast.tlsSecret" . }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
