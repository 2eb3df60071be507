{{- /* The parts of the manifests. They use only Go's own template functions, "dict", "mul", "replace" and "toJson":
package deploy renders them, too. */ -}}

{{- /* The label that says what has installed an object; manifests to apply by hand have none. */ -}}
{{- define "clusterset.managed" }}
{{- if .Release.Service }}
  labels:
{{- template "clusterset.managed-by" . }}
{{- end }}
{{- end }}

{{- define "clusterset.managed-by" }}
{{- if .Release.Service }}
    app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- end }}

{{- /* What all Pods have. */ -}}
{{- define "clusterset.pod" }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ .name }}
      securityContext:
        runAsNonRoot: true
        {{- if not .top.Values.openshift }}
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        {{- end }}
        seccompProfile:
          type: RuntimeDefault
      {{- with .top.Values }}
      {{- range $field, $value := dict "priorityClassName" .priorityClassName "imagePullSecrets" .imagePullSecrets "affinity" .affinity
        "nodeSelector" .nodeSelector "tolerations" .tolerations }}
      {{- if $value }}
      {{ $field }}: {{ toJson $value }}
      {{- end }}
      {{- end }}
      {{- end }}
{{- end }}

{{- /* Annotations, if there are any. */ -}}
{{- define "clusterset.annotations" }}
{{- if . }}
  annotations: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* What all containers have. */ -}}
{{- define "clusterset.container" }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
{{- end }}

{{- /* What the container may take, at the end of its environment. The values of the chart have "Mi" or "Gi". */ -}}
{{- define "clusterset.resources" }}
            # At most 90 % of the limit, so that garbage is collected before the kernel ends the process.
            - {name: GOMEMLIMIT, value: {{ mul 921 (replace "Mi" "" (replace "Gi" "000Mi" .limits.memory)) }}KiB}
          resources: {{ toJson . }}
{{- end }}

{{- define "clusterset.quota" }}
{{- if .top.Values.priorityClassName }}
---
# Some clusters, such as GKE, admit Pods of this priority class only under a quota that names it: this one. It limits nothing.
apiVersion: v1
kind: ResourceQuota
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  {{- template "clusterset.managed" .top }}
spec:
  hard:
    pods: 1G
  scopeSelector:
    matchExpressions:
      - {scopeName: PriorityClass, operator: In, values: [{{ .top.Values.priorityClassName }}]}
{{- end }}
{{- end }}

{{- /* For the Prometheus operator: it reads the metrics of each Pod through the Service. */ -}}
{{- define "clusterset.monitor" }}
{{- if .top.Values.serviceMonitor.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  labels:
    app.kubernetes.io/name: {{ .name }}
    {{- template "clusterset.managed-by" .top }}
    {{- range $name, $value := .top.Values.serviceMonitor.labels }}
    {{ $name }}: {{ toJson $value }}
    {{- end }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  endpoints:
    - port: metrics
{{- end }}
{{- end }}

{{- /* The arguments of an option of the controller. YAML reads the words on and off as booleans. */ -}}
{{- define "clusterset.arguments" }}
{{- $text := print . }}
{{- if eq $text "true" }}on{{ else if eq $text "false" }}off{{ else }}{{ $text }}{{ end }}
{{- end }}

{{- /* A DNS server: with "broker", the controller runs in the same process. */ -}}
{{- define "clusterset.server" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  {{- template "clusterset.managed" .top }}
data:
  Corefile: |
    {{ replace " " ":1053 " .top.Values.zone }}:1053 {
        errors
        # Bounds what slow and idle TCP clients hold.
        timeouts {
            read 5s
            write 5s
            idle 20s
            maxtcpqueries 1000
        }
        # The most that fits a datagram on all networks.
        bufsize 1232
        # Drops queries that the socket cannot answer in time.
        shed
        # Keeps answering while the Service still sends queries here.
        health {
            lameduck 5s
        }
        ready
        prometheus :9153
        clusterset {
            # A rollout stops before it replaces good Pods by such that lack a right.
            ready strict
            # The Service below: ns.dns of the zone would be the Pod, at a port that is not 53. Put in the domain of your cluster.
            ns {{ .name }}.{{ .top.Release.Namespace }}.svc.{{ .top.Values.clusterDomain }}
            {{- if .broker }}
            # DNS neither waits for the controller nor depends on it.
            broker /etc/clusterset/broker/kubeconfig
            controller_namespace {{ .top.Release.Namespace }}
            vip {{ .top.Values.vip }}
            endpoints {{ .top.Values.endpoints }}
            {{- $create := .top.Values.createNamespaces }}
            {{- if and $create (not (and .top.Values.controllerOptions (index .top.Values.controllerOptions "import_namespaces"))) }}
            import_namespaces create
            {{- end }}
            {{- range $name, $value := .top.Values.controllerOptions }}
            {{ $name }} {{ if and $create (eq $name "import_namespaces") }}create {{ end }}{{ template "clusterset.arguments" $value }}
            {{- end }}
            {{- end }}
        }
        # Loads a new Corefile without a restart.
        reload
        loadbalance
    }
    {{- if .top.Values.serverBlocks }}
    {{ replace "\n" "\n    " .top.Values.serverBlocks }}
    {{- end }}
{{- template "clusterset.quota" . }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  labels:
    app.kubernetes.io/name: {{ .name }}
    {{- template "clusterset.managed-by" .top }}
spec:
  replicas: {{ .top.Values.replicas }}
  strategy:
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ .name }}
      {{- if .top.Values.podAnnotations }}
      annotations: {{ toJson .top.Values.podAnnotations }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: true
      # Not the DNS server of the cluster, which forwards queries here.
      dnsPolicy: Default
      # Longer than the lameduck of the Corefile.
      terminationGracePeriodSeconds: 30
      {{- template "clusterset.pod" . }}
      containers:
        - name: coredns
          # Build it from the Dockerfile and push it to a registry of yours.
          image: {{ .top.Values.image }}
          args: [-conf, /etc/coredns/Corefile]
          ports:
            - {name: dns, containerPort: 1053, protocol: UDP}
            - {name: dns-tcp, containerPort: 1053, protocol: TCP}
            - {name: metrics, containerPort: 9153, protocol: TCP}
          livenessProbe:
            httpGet: {path: /health, port: 8080}
            timeoutSeconds: 5
            failureThreshold: 5
          readinessProbe:
            httpGet: {path: /ready, port: 8181}
            periodSeconds: 5
          env:
            # Each answer becomes garbage as soon as it is sent, while the live heap is small: collecting less often saves a
            # tenth to a fifth of the CPU time for some memory (docs/performance.md).
            - {name: GOGC, value: "400"}
            {{- template "clusterset.resources" .resources }}
          {{- template "clusterset.container" }}
          volumeMounts:
            - name: corefile
              mountPath: /etc/coredns
              readOnly: true
            {{- if .broker }}
            - name: broker
              mountPath: /etc/clusterset/broker
              readOnly: true
            {{- end }}
      volumes:
        - name: corefile
          configMap:
            name: {{ .name }}
        {{- if .broker }}
        # The whole folder, so that the kubelet updates a renewed credential. Before the cluster joins and after it left,
        # the Secret does not exist; DNS works without it.
        - name: broker
          secret:
            secretName: clusterset-broker
            optional: true
            defaultMode: 0440
        {{- end }}
---
# "clusterset dns apply{{ if .broker }} --service {{ .top.Release.Namespace }}/{{ .name }}{{ end }}" has the DNS server of the cluster forward the zone here.
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  labels:
    app.kubernetes.io/name: {{ .name }}
    {{- template "clusterset.managed-by" .top }}
spec:
  {{- with .top.Values.service.ipFamilies }}
  ipFamilies: {{ toJson . }}
  {{- if gt (len .) 1 }}
  ipFamilyPolicy: RequireDualStack
  {{- end }}
  {{- end }}
  selector:
    app.kubernetes.io/name: {{ .name }}
  ports:
    - {name: dns, port: 53, targetPort: dns, protocol: UDP}
    - {name: dns-tcp, port: 53, targetPort: dns-tcp, protocol: TCP}
    - {name: metrics, port: 9153, targetPort: metrics, protocol: TCP}
{{- template "clusterset.monitor" . }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  {{- template "clusterset.managed" .top }}
spec:
  # With minAvailable, a drain would wait for the only replica without end.
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
---
# Queries come from anywhere, metrics are read by anyone in the cluster; nothing else comes in, but what the node sends to probe.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  {{- template "clusterset.managed" .top }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  policyTypes: [Ingress]
  ingress:
    - ports:
        - {port: dns, protocol: UDP}
        - {port: dns-tcp, protocol: TCP}
    - from:
        - namespaceSelector: {}
      ports:
        - {port: metrics, protocol: TCP}
{{- end }}

{{- /* What a controller may do. */ -}}
{{- define "clusterset.rights" }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  {{- template "clusterset.managed" .top }}
  {{- template "clusterset.annotations" .top.Values.serviceAccountAnnotations }}
# Pods get a token only if they ask for it.
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  {{- template "clusterset.managed" .top }}
rules:
  # Which namespaces exist, which terminate, and from which clusters each of them imports.
  - apiGroups: [""]
    resources: [namespaces]
    {{- if .top.Values.createNamespaces }}
    # Those that imports lack are created, by "import_namespaces create". The policy below says which.
    verbs: [get, list, watch, create]
    {{- else }}
    # "import_namespaces create" needs the verb create, too.
    verbs: [get, list, watch]
    {{- end }}
  # Exported Services, and the Services derived from imports. RBAC cannot distinguish them: the policy below does.
  - apiGroups: [""]
    resources: [services]
    verbs: [get, list, watch, create, patch, delete]
  # With vip cidr the status of a derived Service has the clusterset IPs.
  - apiGroups: [""]
    resources: [services/status]
    verbs: [patch]
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices]
    verbs: [get, list, watch, create, patch, delete]
  # OpenShift asks for this where endpoints lie in the networks of a cluster. Elsewhere it has no effect.
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices/restricted]
    verbs: [create]
  - apiGroups: [multicluster.x-k8s.io]
    resources: [serviceimports]
    verbs: [get, list, watch, create, patch, delete]
  # Users write ServiceExports. The controller writes their status and one annotation, and makes and ends those of rules of Namespaces:
  # the policy below holds it to that.
  - apiGroups: [multicluster.x-k8s.io]
    resources: [serviceexports]
    verbs: [get, list, watch, create, patch, delete]
  - apiGroups: [multicluster.x-k8s.io]
    resources: [serviceimports/status, serviceexports/status]
    verbs: [patch]
  # Membership. The cluster id may be set at the first start; it is never changed from here.
  - apiGroups: [about.k8s.io]
    resources: [clusterproperties]
    verbs: [get, list, watch, create]
  # Other clusters may not export addresses of this cluster's own Services.
  - apiGroups: [networking.k8s.io]
    resources: [servicecidrs]
    verbs: [get, list, watch]
  # The controller checks their versions and fields.
  - apiGroups: [apiextensions.k8s.io]
    resources: [customresourcedefinitions]
    resourceNames:
      - serviceimports.multicluster.x-k8s.io
      - serviceexports.multicluster.x-k8s.io
      - clusterproperties.about.k8s.io
    verbs: [get]
  - apiGroups: [events.k8s.io]
    resources: [events]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  {{- template "clusterset.managed" .top }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .top.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  {{- template "clusterset.managed" .top }}
rules:
  # Leader election. RBAC cannot restrict a create to a name.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [clusterset-controller, clusterset-heartbeat, clusterset-members]
    verbs: [get, update]
  # The credential for the broker, which the controller renews. No other Secret.
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [clusterset-broker]
    verbs: [get, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
  {{- template "clusterset.managed" .top }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .top.Release.Namespace }}
---
# Users with the ClusterRole edit or admin in a namespace may export its Services.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .top.Values.fullnameOverride }}-edit
  labels:
    rbac.authorization.k8s.io/aggregate-to-edit: "true"
    rbac.authorization.k8s.io/aggregate-to-admin: "true"
    {{- template "clusterset.managed-by" .top }}
rules:
  - apiGroups: [multicluster.x-k8s.io]
    resources: [serviceexports]
    verbs: [create, update, patch, delete, deletecollection]
---
# Users with the ClusterRole view, edit or admin may read exports and imports.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .top.Values.fullnameOverride }}-view
  labels:
    rbac.authorization.k8s.io/aggregate-to-view: "true"
    rbac.authorization.k8s.io/aggregate-to-edit: "true"
    rbac.authorization.k8s.io/aggregate-to-admin: "true"
    {{- template "clusterset.managed-by" .top }}
rules:
  - apiGroups: [multicluster.x-k8s.io]
    resources: [serviceexports, serviceimports]
    verbs: [get, list, watch]
---
# RBAC cannot tell our Services and EndpointSlices from those of others, so this does. Adapt the account if it is another one.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  {{- template "clusterset.managed" .top }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: ["*"]
        resources: [services, services/status, namespaces]
        operations: [CREATE, UPDATE, DELETE]
      - apiGroups: [discovery.k8s.io]
        apiVersions: ["*"]
        resources: [endpointslices]
        operations: [CREATE, UPDATE, DELETE]
      - apiGroups: [multicluster.x-k8s.io]
        apiVersions: ["*"]
        resources: [serviceimports, serviceimports/status, serviceexports]
        operations: [CREATE, UPDATE, DELETE]
  matchConditions:
    - name: controller
      expression: request.userInfo.username == 'system:serviceaccount:{{ .top.Release.Namespace }}:{{ .name }}'
  variables:
    - name: kind
      expression: request.resource.resource
    - name: mark
      expression: >-
        variables.kind == 'endpointslices' ? 'endpointslice.kubernetes.io/managed-by' : 'app.kubernetes.io/managed-by'
    - name: labels
      expression: "object != null && has(object.metadata.labels) ? object.metadata.labels : {}"
    - name: carriesVIPs
      expression: >-
        object.spec.type == 'LoadBalancer' && has(object.spec.loadBalancerClass) && object.spec.loadBalancerClass == 'clusterset-dns.io/vip' &&
        has(object.spec.allocateLoadBalancerNodePorts) && !object.spec.allocateLoadBalancerNodePorts &&
        object.spec.ports.all(p, !has(p.nodePort) || p.nodePort == 0)
    - name: annotations
      expression: "object != null && has(object.metadata.annotations) ? object.metadata.annotations : {}"
    - name: oldAnnotations
      expression: "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
  validations:
    - expression: >-
        variables.kind == 'serviceexports' || [object, oldObject].all(o, o == null || has(o.metadata.labels) && variables.mark in o.metadata.labels &&
        o.metadata.labels[variables.mark] == 'controller.clusterset-dns.io')
      messageExpression: "'the controller writes only objects with the label ' + variables.mark + '=controller.clusterset-dns.io'"
      message: "the controller writes only objects with its own label"
    # What is there from before may still be deleted.
    - expression: >-
        request.operation == 'DELETE' || !request.namespace.matches('^(kube|openshift)-') ||
        namespaceObject != null && has(namespaceObject.metadata.annotations) &&
        'clusterset-dns.io/allowed-source-clusters' in namespaceObject.metadata.annotations &&
        namespaceObject.metadata.annotations['clusterset-dns.io/allowed-source-clusters'] != ''
      message: "the controller writes nothing in the namespaces kube-* and openshift-* without clusterset-dns.io/allowed-source-clusters"
    # A new Namespace carries nothing that other programs act on. RBAC grants only its creation.
    - expression: >-
        variables.kind != 'namespaces' || request.operation == 'CREATE' && object.metadata.name != 'default' &&
        !object.metadata.name.startsWith('clusterset-') && object.metadata.name != '{{ .top.Release.Namespace }}' &&
        !object.metadata.name.matches('^.*-[0-9a-f]{16}$') &&
        variables.labels.all(k, k in ['app.kubernetes.io/managed-by', 'kubernetes.io/metadata.name']) &&
        variables.annotations.all(k, k == 'clusterset-dns.io/created-for') &&
        !has(object.metadata.finalizers) && !has(object.metadata.ownerReferences)
      message: >-
        the controller creates only Namespaces with its own label and annotation, and never default, clusterset-*, its own namespace or one named like that of a broker member
    # ServiceExports are those of users, unless they have our label.
    - expression: >-
        variables.kind != 'serviceexports' || request.operation != 'UPDATE' &&
        [object, oldObject].all(o, o == null || has(o.metadata.labels) && variables.mark in o.metadata.labels &&
        o.metadata.labels[variables.mark] == 'controller.clusterset-dns.io' && (request.operation == 'DELETE' || o.metadata.labels.size() == 1 &&
        namespaceObject != null && has(namespaceObject.metadata.annotations) &&
        'clusterset-dns.io/export-selector' in namespaceObject.metadata.annotations &&
        (!has(o.spec) || !has(o.spec.exportedLabels) && !has(o.spec.exportedAnnotations)) && !has(o.metadata.annotations) && !has(o.metadata.finalizers) && !has(o.metadata.ownerReferences))) ||
        request.operation == 'UPDATE' &&
        has(object.spec) == has(oldObject.spec) && (!has(object.spec) || object.spec == oldObject.spec) &&
        variables.labels == (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}) &&
        has(object.metadata.finalizers) == has(oldObject.metadata.finalizers) &&
        (!has(object.metadata.finalizers) || object.metadata.finalizers == oldObject.metadata.finalizers) &&
        has(object.metadata.ownerReferences) == has(oldObject.metadata.ownerReferences) &&
        (!has(object.metadata.ownerReferences) || object.metadata.ownerReferences == oldObject.metadata.ownerReferences) &&
        variables.annotations.all(k, k == 'clusterset-dns.io/exported-to' ||
        k in variables.oldAnnotations && variables.annotations[k] == variables.oldAnnotations[k]) &&
        variables.oldAnnotations.all(k, k == 'clusterset-dns.io/exported-to' || k in variables.annotations)
      message: "the controller writes only the annotation clusterset-dns.io/exported-to of ServiceExports, and makes and ends those of rules, with its own label"
    # External IPs that others have set stay as they are.
    - expression: >-
        variables.kind != 'services' || object == null ||
        object.metadata.name.startsWith('derived-') && (object.spec.type == 'ClusterIP' || variables.carriesVIPs) &&
        (!has(object.spec.selector) || object.spec.selector.size() == 0) &&
        (!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0 ||
        oldObject != null && has(oldObject.spec.externalIPs) && object.spec.externalIPs == oldObject.spec.externalIPs)
      message: >-
        the controller writes only Services derived-* of type ClusterIP, or of the load balancer class clusterset-dns.io/vip without node ports, without
        selector and external IPs
    # The addresses that a status names take traffic from all over the cluster, so none of them is one that the internet uses.
    - expression: >-
        variables.kind != 'services' || object == null || !has(object.status.loadBalancer) || !has(object.status.loadBalancer.ingress) ||
        oldObject != null && object.status == oldObject.status ||
        variables.carriesVIPs && object.status.loadBalancer.ingress.all(i, has(i.ip) && !has(i.hostname) &&
        ['10.0.0.0/8', '100.64.0.0/10', '172.16.0.0/12', '192.168.0.0/16', '198.18.0.0/15', '240.0.0.0/4', 'fc00::/7'].exists(c, cidr(c).containsIP(i.ip)))
      message: "the controller writes only addresses of private or reserved networks into the status of a Service, as clusterset IPs"
    # kube-proxy sends the traffic of a Service to every slice with its name, whoever manages it.
    - expression: >-
        variables.kind != 'endpointslices' || !('kubernetes.io/service-name' in variables.labels) ||
        variables.labels['kubernetes.io/service-name'].startsWith('derived-')
      message: "the controller writes only slices of Services derived-*"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  {{- template "clusterset.managed" .top }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}
