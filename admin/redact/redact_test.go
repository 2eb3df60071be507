package redact

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const testJWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"

// Texts without credentials stay unchanged: people who look for a fault need them.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"token: " + testJWT:                                                         "token: <redacted>",
		`{"token":"abc","name":"x"}`:                                                `{"token":<redacted>,"name":"x"}`,
		`--password=hunter2 --v=2`:                                                  `--password=<redacted> --v=2`,
		`run --password hunter2 now`:                                                `run --password <redacted> now`,
		`got "` + testJWT + `" from x`:                                              `got "<redacted>" from x`,
		"Authorization: Basic dXNlcjpwYXNz":                                         "Authorization: <redacted>",
		"sent Bearer abc.def-ghi to it":                                             "sent Bearer <redacted> to it",
		`body {\"password\":\"hunter2\",\"name\":\"x\"}`:                            `body {\"password\":<redacted>,\"name\":\"x\"}`,
		"https://admin:hun@ter2@broker:6443/api":                                    "https://<redacted>@broker:6443/api",
		"https://admin:hunter2@broker:6443/api":                                     "https://<redacted>@broker:6443/api",
		"AWS_SECRET_ACCESS_KEY=abcd/efgh":                                           "AWS_SECRET_ACCESS_KEY=<redacted>",
		"id AKIAABCDEFGHIJKLMNOP, bootstrap abcdef.0123456789abcdef":                "id <redacted>, bootstrap <redacted>",
		"-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nend": "<redacted>\nend",
		"-----BEGIN PRIVATE KEY-----\nMIIB cut":                                     "<redacted>",
		"client-key-data: LS0tLS1CRUdJTi":                                           "client-key-data: <redacted>",
		strings.Repeat("aB3/", 12):                                                  "<redacted>",
		"the known one is planted-value here":                                       "the known one is <redacted> here",

		"a:\n  password: |\n    hunter2 x\n\n    hunter2\n  b: c\n": "a:\n  password: <redacted>\n  b: c\n",
		"- token: >- # x\r\n    hunter2\r\n- b: c":                  "- token: <redacted>\n- b: c",
		"password: |2\n  hunter2\nlog: |\n  kept":                   "password: <redacted>\nlog: |\n  kept",

		"exported shop/db to the broker in 20ms":                                                 "",
		"image sha256:" + strings.Repeat("0a", 32):                                               "",
		"broker https://10.0.0.1:6443: the server rejects the credential (401)":                  "",
		`secrets "clusterset-broker" is forbidden: User "a" cannot get resource "secrets"`:       "",
		`coredns_clusterset_rejected_objects_total{server="dns://:1053",reason="bad address"} 3`: "",
		"uid 11111111-2222-3333-4444-555555555555 of kube-system":                                "",
	} {
		if want == "" {
			want = in
		}
		if got := Known("planted-value", "short").Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCorefile(t *testing.T) {
	in := ".:53 {\n  kubernetes cluster.local\n  route53 example.org.:Z1 {\n    aws_access_key AKID hunter2\n  }\n  etcd {\n    credentials user hunter2\n  }\n  tsig {\n    secret key. hunter2=\n  }\n  forward . /etc/resolv.conf\n}\n"
	got := Redactor{}.Corefile(in)
	if strings.Contains(got, "hunter2") || !strings.Contains(got, "forward . /etc/resolv.conf\n}") ||
		strings.Count(got, "\n") != strings.Count(in, "\n") {
		t.Errorf("Corefile = %s", got)
	}
}

const objects = `
- kind: Secret
  metadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"stringData":{"x":"hunter2"}}'}, managedFields: [{manager: kubectl}]}
  data: {token: aHVudGVyMg==}
  stringData: {other: hunter2}
- kind: ConfigMap
  metadata: {name: b, annotations: {example.org/api-token: hunter2, objectset.rio.cattle.io/applied: hunter2, note: "password=hunter2"}}
  data: {plain: hunter2, kubeconfig: "users: [{name: a, user: {token: hunter2}}]", Corefile: ". {\n  etcd {\n    credentials a hunter2\n  }\n}\n", x.override: "secret hunter2"}
  binaryData: {x: aHVudGVyMg==}
- kind: Pod
  metadata: {name: c}
  spec:
    containers:
    - name: c
      env: [{name: PLAIN, value: hunter2}, {name: REF, valueFrom: {secretKeyRef: {name: a, key: token}}}]
      args: [--password=hunter2, --token, hunter2, --v=2, "https://u:hunter2@h/"]
      command: [sh, -c, "run --secret hunter2"]
      livenessProbe:
        httpGet: {path: /, httpHeaders: [{name: X, value: hunter2}]}
        exec: {command: [x, --api-key, hunter2]}
      volumeMounts: [{name: broker, mountPath: /etc/clusterset/broker}]
    volumes: [{name: broker, secret: {secretName: clusterset-broker, defaultMode: 288}}]
    serviceAccountName: clusterset-controller
`

// docs/spec/operations.md 4: in each place the credential is redacted, and everything else stays.
func TestObject(t *testing.T) {
	var all []map[string]any
	if err := yaml.Unmarshal([]byte(objects), &all); err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		Redactor{}.Object(o)
	}
	content, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	got := string(content)
	for _, secret := range []string{"hunter2", "aHVudGVyMg", "managedFields"} {
		if strings.Contains(got, secret) {
			t.Errorf("%s stays:\n%s", secret, got)
		}
	}
	for _, kept := range []string{"token: <redacted, 12 octets>", "secretName: clusterset-broker", "defaultMode: 288",
		"--v=2", "mountPath: /etc/clusterset/broker",
		"serviceAccountName: clusterset-controller", "key: token", "name: PLAIN", "etcd {"} {
		if !strings.Contains(got, kept) {
			t.Errorf("%q is lost:\n%s", kept, got)
		}
	}
}

func TestValues(t *testing.T) {
	got := Values("users:\n- user:\n    token: hunter2\n    password: 'x y'\n")
	if want := []string{"hunter2", "x y"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Values = %q, want %q", got, want)
	}
}

// FuzzText: a JWT and a known value never stay, whatever is around them.
func FuzzText(f *testing.F) {
	f.Add("token: ", "\n")
	f.Add(`{"a":"`, `"}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		got := Known("planted-value").Text(before + " " + testJWT + " " + after + " planted-value " + before)
		if strings.Contains(got, "planted-value") || strings.Contains(got, "c2lnbmF0dXJl") {
			t.Errorf("Text kept a credential: %q", got)
		}
	})
}
