{{/* The objects of a kustomization, from the files that it names. Takes root, folder (such as "probes/"), and:
     namespace, for objects that name none; labels, to add; without, a list of files to leave out. */}}
{{- define "gameday.kustomization" -}}
{{- $call := . -}}
{{- $kustomization := include "gameday.file" (dict "root" .root "path" (print .folder "kustomization.yaml")) | fromYaml -}}
{{- range $kustomization.resources }}
{{- if not (has . ($call.without | default list)) }}
{{- include "gameday.manifest" (dict "root" $call.root "path" (print $call.folder .) "namespace" $call.namespace "labels" $call.labels) }}
{{- end }}
{{- end }}
{{- range $kustomization.configMapGenerator }}
{{- $data := dict }}
{{- range .files }}
{{- $_ := set $data . (include "gameday.file" (dict "root" $call.root "path" (print $call.folder .))) }}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ $call.root.Release.Namespace }}
  labels: {{- toYaml $kustomization.generatorOptions.labels | nindent 4 }}
data: {{- toYaml $data | nindent 2 }}
{{ end }}
{{- end }}

{{/* The text of a file of this folder. Takes root and path. */}}
{{- define "gameday.file" -}}
{{- required (print "the chart lacks the file " .path ", which a kustomization names") (.root.Files.Get .path) -}}
{{- end }}

{{/* The objects of a manifest with the release's image, namespace, Prefect server and runbooks, and what values add.
     Takes root, path, and perhaps namespace, for objects that name none, and labels. */}}
{{- define "gameday.manifest" -}}
{{- $call := . -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $text := include "gameday.file" . | replace "ghcr.io/gpu-gameday/agent:latest" (include "gameday.image" .root) -}}
{{- $server := .root.Values.prefect.url | default (printf "http://gameday-prefect.%s.svc:4200/api" $namespace) -}}
{{- $text = $text | replace "http://gameday-prefect.gameday.svc:4200/api" $server -}}
{{- $text = regexReplaceAll "(?m)^( *)namespace: gameday$" $text (print "${1}namespace: " $namespace) -}}
{{- $text = $text | replace "kubernetes.io/metadata.name: monitoring" (print "kubernetes.io/metadata.name: " (quote .root.Values.monitoring.namespace)) -}}
{{- with .root.Values.alerts.runbooks }}
{{- $text = $text | replace `{{ $externalURL }}/user/runbooks` (trimSuffix "/" .) -}}
{{- end }}
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml . }}
{{- if $object.Error }}{{ fail (print $call.path ": " $object.Error) }}{{ end }}
{{- if $call.namespace }}{{ $_ := set $object.metadata "namespace" $call.namespace }}{{ end }}
{{- if $call.labels }}{{ $_ := set $object.metadata "labels" (merge (dict) $call.labels $object.metadata.labels) }}{{ end }}
{{- if eq $call.path "cluster.yaml" }}{{ include "gameday.profile" (dict "root" $call.root "data" $object.data) }}{{ end }}
{{- $isWorker := and (eq $call.path "prefect/worker.yaml") (eq $object.kind "Deployment") }}
{{- if and $isWorker $call.root.Values.gameDayMetrics.enabled }}
{{- include "gameday.metricsContainer" (dict "root" $call.root "pod" $object.spec.template.spec) }}
{{- end }}
{{- if eq $call.path "rbac/namespace.yaml" }}
{{- $_ := set $object.metadata "name" $namespace }}
{{- /* The release's own record is in it. */}}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}

{{/* Put the profile's values into the ConfigMap's data. Takes root and data; returns nothing. */}}
{{- define "gameday.profile" -}}
{{- $data := .data -}}
{{- if ne .root.Release.Namespace "gameday" }}{{ $_ := set $data "GAMEDAY_NAMESPACE" .root.Release.Namespace }}{{ end -}}
{{- if .root.Values.gameDayMetrics.enabled }}
{{- range include "gameday.file" (dict "root" .root "path" "prefect/metrics/profile-patch.yaml") | fromYamlArray }}
{{- $_ := set $data (base .path) .value }}
{{- end }}
{{- end -}}
{{- range $key, $value := .root.Values.profile }}
{{- $_ := set $data $key (kindIs "string" $value | ternary $value (toJson $value)) }}
{{- end -}}
{{- end }}

{{/* Put the container that serves the timings beside the worker's. Takes root and pod; returns nothing. */}}
{{- define "gameday.metricsContainer" -}}
{{- $pod := .pod -}}
{{- $image := include "gameday.image" .root -}}
{{- range include "gameday.file" (dict "root" .root "path" "prefect/metrics/container-patch.yaml") | fromYamlArray }}
{{- $_ := set $pod "containers" (append $pod.containers (merge (dict "image" $image) .value)) }}
{{- end -}}
{{- end }}

{{- define "gameday.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end -}}
{{- end }}
