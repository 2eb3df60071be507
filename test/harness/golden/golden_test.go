package golden

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const file = `# What is shown.
-- objects --
ServiceImport  shop/db  Headless
-- answers --
; a. A       <- a note
NOERROR aa
a. 5 IN A 10.0.0.1
or
a. 5 IN A 10.0.0.2

; b. SRV
NOERROR aa
any 1 of
b. 5 IN SRV 0 50 1 x.
b. 5 IN SRV 0 50 1 y.
additional: x. 5 IN A 10.0.0.3
additional: y. 5 IN A 10.0.0.4

; c. MX
NXDOMAIN aa
authority: . 5 IN SOA ns. root. 7 1 2 3 4
`

func reply(text string) Reply {
	w, err := parseWant(text)
	if err != nil {
		panic("golden: " + err.Error())
	}
	return Reply{Head: w.Head, Sections: w.Forms[0]}
}

func TestPermits(t *testing.T) {
	f, err := Parse("x/file.txtar", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		c     int
		reply string
		want  bool
	}{
		{"one form", 0, "NOERROR aa\na. 5 IN A 10.0.0.1", true},
		{"other form", 0, "NOERROR aa\na. 5 IN A 10.0.0.2", true},
		{"both forms", 0, "NOERROR aa\na. 5 IN A 10.0.0.1\na. 5 IN A 10.0.0.2", false},
		{"no records", 0, "NOERROR aa", false},
		{"not authoritative", 0, "NOERROR\na. 5 IN A 10.0.0.1", false},
		{"truncated", 0, "NOERROR aa tc\na. 5 IN A 10.0.0.1", false},
		{"other case", 0, "NOERROR aa\nA. 5 IN A 10.0.0.1", false},
		{"other ttl", 0, "NOERROR aa\na. 6 IN A 10.0.0.1", false},
		{"a part with its glue", 1, "NOERROR aa\nb. 5 IN SRV 0 50 1 y.\nadditional: y. 5 IN A 10.0.0.4", true},
		{"a part with the glue of another", 1, "NOERROR aa\nb. 5 IN SRV 0 50 1 y.\nadditional: x. 5 IN A 10.0.0.3", false},
		{"a part without glue", 1, "NOERROR aa\nb. 5 IN SRV 0 50 1 y.", false},
		{"more than the part", 1, "NOERROR aa\nb. 5 IN SRV 0 50 1 x.\nb. 5 IN SRV 0 50 1 y.", false},
		{"the serial does not matter", 2, "NXDOMAIN aa\nauthority: . 5 IN SOA ns. root. 99 1 2 3 4", true},
		{"the rest of the SOA does", 2, "NXDOMAIN aa\nauthority: . 5 IN SOA ns. root. 99 1 2 3 5", false},
		{"other rcode", 2, "NOERROR aa\nauthority: . 5 IN SOA ns. root. 99 1 2 3 4", false},
		{"the SOA is in another section", 2, "NXDOMAIN aa\n. 5 IN SOA ns. root. 99 1 2 3 4", false},
	} {
		if got := f.Cases[tt.c].Want.Permits(reply(tt.reply)); got != tt.want {
			t.Errorf("%s: %s permits %q: %t, want %t", tt.name, f.Cases[tt.c].Question, tt.reply, got, tt.want)
		}
	}
}

func TestUpdateKeepsWhatIsRight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.txtar")
	f, err := Parse(path, []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	changed, err := Seen([]Reply{reply("NOERROR\nb. 5 IN SRV 0 50 1 x."), reply("NOERROR\nb. 5 IN SRV 0 50 1 x.")})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Update([]Want{f.Cases[0].Want, changed, f.Cases[2].Want}); err != nil {
		t.Fatal(err)
	}
	from := strings.Index(file, "NOERROR aa\nany")
	to := strings.Index(file, "; c. MX")
	want := file[:from] + "NOERROR\nb. 5 IN SRV 0 50 1 x.\n\n" + file[to:]
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("Update wrote\n%s\n%v, want\n%s", got, err, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, answers, want string }{
		{"no question", "", "no question"},
		{"a name that is not fully qualified", "; a A\nNOERROR\n", "ends with a dot"},
		{"an unknown type", "; a. FOO\nNOERROR\n", "known type"},
		{"a line that is no record", "; a. A\nNOERROR\nrubbish\n", "want a record"},
		{"any of several forms", "; a. A\nNOERROR\nany 1 of\na. 5 IN A 10.0.0.1\nor\na. 5 IN A 10.0.0.2\n", "want one"},
	} {
		_, err := Parse("x.txtar", []byte("-- objects --\n-- answers --\n"+tt.answers))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Parse = %v, want an error with %q", tt.name, err, tt.want)
		}
	}
	if _, err := Parse("x.txtar", []byte("-- object --\n")); err == nil {
		t.Error("Parse of an unknown part: no error")
	}
}

func TestParseDig(t *testing.T) {
	const output = `;; Got answer:
;; WARNING: .local is reserved for Multicast DNS
;; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 11497
;; flags: qr aa tc rd; QUERY: 1, ANSWER: 1, AUTHORITY: 0, ADDITIONAL: 2

;; OPT PSEUDOSECTION:
; EDNS: version: 0, flags:; udp: 4096
;; ANSWER SECTION:
a. 5	IN	SRV	0 50 1 x.

;; ADDITIONAL SECTION:
x. 5	IN	AAAA	::0.2.0.3

;; ->>HEADER<<- opcode: QUERY, status: REFUSED, id: 2
;; flags: qr rd; QUERY: 1, ANSWER: 0, AUTHORITY: 0, ADDITIONAL: 0
`
	got, err := ParseDig(output)
	if err != nil {
		t.Fatal(err)
	}
	want := "NOERROR aa tc\na. 5 IN SRV 0 50 1 x.\nadditional: x. 5 IN AAAA ::2:3\n|REFUSED\n"
	if len(got) != 2 || got[0].String()+"|"+got[1].String() != want {
		t.Errorf("ParseDig = %v, want %q", got, want)
	}
}

func TestExpand(t *testing.T) {
	got, err := Expand([]string{
		"ServiceImport  shop/db  Headless  v1alpha1  ports: pg/TCP/5432 /UDP/  labels: a=b",
		"EndpointSlice  shop/db  cluster: east  for-zone: z  db-0=10.1.0.7,10.1.0.8(not-ready,serving) 10.1.0.9",
		"EndpointSlice  shop/db  service: none  ports: none  fd00::1",
		"ClusterProperty  cluster.clusterset.k8s.io  east",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\nmetadata:\n  labels:\n    a: b\n  name: db\n  namespace: shop\n" +
			"spec:\n  ports:\n  - name: pg\n    port: 5432\n    protocol: TCP\n  - protocol: UDP\n  type: Headless\n",
		"addressType: IPv4\napiVersion: discovery.k8s.io/v1\nendpoints:\n- addresses:\n  - 10.1.0.7\n  - 10.1.0.8\n" +
			"  conditions:\n    ready: false\n    serving: true\n  hostname: db-0\n- addresses:\n  - 10.1.0.9\n",
		"    endpointslice.kubernetes.io/for-zone: z\n    multicluster.kubernetes.io/service-name: db\n" +
			"    multicluster.kubernetes.io/source-cluster: east\n  name: sdb-1\n",
		"addressType: IPv6\napiVersion: discovery.k8s.io/v1\nendpoints:\n- addresses:\n  - fd00::1\nkind: EndpointSlice\nmetadata:\n" +
			"  name: sdb-2\n  namespace: shop\nports: []\n",
		"apiVersion: about.k8s.io/v1beta1\nkind: ClusterProperty\nmetadata:\n  name: cluster.clusterset.k8s.io\nspec:\n  value: east\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("Expand:\n%s\nwant in it\n%s", got, want)
		}
	}
	for _, line := range []string{"Service  shop/db", "ServiceImport  shop/db  Headless  rubbish",
		"ServiceImport  shop/db  Headless  ports: 80"} {
		if _, err := Expand([]string{line}); err == nil {
			t.Errorf("Expand(%q): no error", line)
		}
	}
}

func TestMalformedIsReproducible(t *testing.T) {
	of := func(seed uint64) []string { return Malformed(rand.New(rand.NewPCG(seed, 0)), 10) }
	if !slices.Equal(of(1), of(1)) || slices.Equal(of(1), of(2)) {
		t.Error("Malformed: want the same objects for the same seed, and others for another")
	}
	if _, err := Expand(of(1)); err != nil {
		t.Error(err)
	}
}
