{{- define "howdah.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "howdah.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "howdah.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "howdah.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "howdah.selector" -}}
app.kubernetes.io/name: {{ include "howdah.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "howdah.labels" -}}
{{ include "howdah.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The Secret that has userlist.txt; nothing if there is none. */}}
{{- define "howdah.users" -}}
{{- if and .Values.users.existingSecret .Values.users.passwords }}
{{- fail "users: existingSecret has the users: leave passwords out" }}
{{- end }}
{{- if .Values.users.existingSecret }}{{ .Values.users.existingSecret }}
{{- else if .Values.users.passwords }}{{ include "howdah.fullname" . }}-users
{{- end }}
{{- end }}
