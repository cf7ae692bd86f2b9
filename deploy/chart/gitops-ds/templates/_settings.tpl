{{- define "gitops-ds.settings" -}}
{{- $own := dict "listen" (dict "address" ":8080") "log" (dict "format" "json") -}}
{{- if .Values.repository }}{{ $_ := set $own "repository" .Values.repository }}{{ end -}}
{{- if ne .Release.Namespace "gitops-ds" }}{{ $_ := set $own "cluster" (dict "namespace" .Release.Namespace) }}{{ end -}}
{{- if eq .Values.scheduling "direct" }}{{ $_ := set $own "controller" (dict "powers" .Values.powers "scheduling" "direct") }}{{ end -}}
{{- mergeOverwrite $own .Values.settings | toYaml -}}
{{- end -}}
