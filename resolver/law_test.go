package resolver_test

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
	"github.com/clusterset-dns/clusterset/test/harness/tier"

	"github.com/miekg/dns"
)

// cases is the number of random sets of objects that a law is checked on; the fuzz targets try any others.
var cases = tier.Size(75, 300)

// eachCase checks a law on random objects. A failure has the seed. Calls for each question do without t.Helper, which
// would take half of the time.
func eachCase(t *testing.T, law func(t *testing.T, objs objects)) {
	for seed := range uint64(cases) {
		objs := newObjects(randomEntropy(seed, 40+int(seed%300)))
		law(t, objs)
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, objs)
		}
	}
}

// fuzz checks a law on objects that the fuzzer generates.
func fuzz(f *testing.F, law func(t *testing.T, objs objects)) {
	f.Add([]byte{})
	for seed := range uint64(20) {
		f.Add(randomEntropy(seed, 30+int(seed)*15))
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		if len(octets) > 600 {
			return // A failure needs fewer objects.
		}
		objs := newObjects(octets)
		law(t, objs)
		if t.Failed() {
			t.Logf("\n%s", objs)
		}
	})
}

var qtypes = []uint16{
	dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeMX, dns.TypeANY, dns.TypeDS, dns.TypeHTTPS, dns.TypeSOA,
	dns.TypeNS,
}

// text renders the records of an answer in the order in which they are sent.
func text(a resolver.Answer) (records []string) {
	for i := range a.Addresses.Len() {
		addr, ok := netip.AddrFromSlice([]byte(a.Addresses.At(i)))
		if !ok {
			panic("reference: an address is 4 or 16 octets")
		}
		records = append(records, dns.TypeToString[a.Type]+" "+addr.String())
	}
	for i := range a.Services.Len() {
		number, to := a.Services.At(i)
		records = append(records, fmt.Sprintf("SRV 0 %d %d %s", a.Services.Weight(), number, to.AppendName(nil)))
	}
	return records
}

// set is an answer without its order; it fails t if a record is there twice (RFC 2181 section 5).
func set(t *testing.T, a resolver.Answer) rrset {
	all := rrset{}
	for _, record := range text(a) {
		if all[record] {
			t.Errorf("record %q twice in one answer", record)
		}
		all[record] = true
	}
	return all
}

func isOneOf(got rrset, forms []rrset) bool {
	return slices.ContainsFunc(forms, func(form rrset) bool { return maps.Equal(got, form) })
}

// docs/spec/dns.md 4.3: a port has one number if the clusters that can answer have one, whatever a cluster has that is
// not selected or not local.
func TestNumbersOfClustersThatAnswer(t *testing.T) {
	for _, ofWest := range []uint16{80, 81} {
		objs := objects{build: index.Options{ClusterNames: true},
			imports: []importObject{{namespace: "shop", name: "web", typ: index.ClusterSetIP}}}
		for i, id := range []string{"east", "north", "west"} {
			objs.imports[0].slices = append(objs.imports[0].slices, sliceObject{
				cluster: id, hidden: id == "north", endpoints: []index.Endpoint{{Addrs: pool4[i : i+1]}},
				ports: []index.Port{{Name: "http", Proto: index.TCP, Number: []uint16{80, 82, ofWest}[i]}},
			})
		}
		for _, local := range []string{"", "east", "west"} {
			objs.serve = resolver.Options{ClusterNames: true, LocalCluster: local}
			matchesReference(t, objs)
		}
	}
}

// matchesReference is the law that each question gets an answer that the reference permits, and over the rotation all
// of them.
func matchesReference(t *testing.T, objs objects) {
	ref, x := newReference(objs), newIndex(objs)
	asked := map[string]bool{}
	ask := func(name string) {
		if limit := objs.serve.MaxName; !asked[name] && (limit == 0 || len(name) <= limit) {
			asked[name] = true
			for _, qtype := range qtypes {
				checkQuestion(t, objs, ref, x, name, qtype)
			}
		}
	}
	for name := range ref {
		ask(name)
		for _, near := range nearMisses(name) {
			ask(near)
		}
	}
}

// nearMisses are names similar to one that exists: some exist, most do not.
func nearMisses(name string) []string {
	near := []string{"x", "pod", "_tcp", "_http._tcp", "1.0.0.svc"}
	for _, prefix := range []string{
		"x", "_", "x.", "*.", "_.", "_tcp.", "_udp.", "_._tcp.", "_http.", "_http._tcp.", "http._tcp.", "_http.tcp.",
		"_http._tcp._tcp.", "_a._udp.", "_tcp._tcp.", "a.", "b.", "east.", "a.b.", "web.", "10-0-0-1.", `x\.`, `\046.`, "x.y.z.",
	} {
		near = append(near, prefix+name)
	}
	labels := strings.Split(name, ".")
	for i, label := range labels {
		for _, other := range []string{label + "x", "_" + label, strings.TrimPrefix(label, "_"), label[:len(label)/2],
			"x." + label} {
			if other == "" {
				continue
			}
			near = append(near, strings.Join(slices.Concat(labels[:i], []string{other}, labels[i+1:]), "."))
		}
		near = append(near, strings.Join(slices.Concat(labels[:i], labels[i+1:]), "."))
		if i > 0 {
			swapped := slices.Clone(labels)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			near = append(near, strings.Join(swapped, "."),
				strings.Join(labels[:i], ".")+`\.`+strings.Join(labels[i:], "."))
		}
	}
	return slices.DeleteFunc(near, func(n string) bool { return strings.Contains("."+n+".", "..") && n != "" })
}

func checkQuestion(t *testing.T, objs objects, ref reference, x *index.Index, name string, qtype uint16) {
	own, exists := ref[name]
	forms := own[qtype]
	shown := make([]bool, len(forms))
	turns := uint64(3)
	if len(forms) > 1 {
		turns = 24 // docs/spec/dns.md 3: one cluster a second, each in its turn
		if len(objs.imports[0].weights)+len(objs.imports[len(objs.imports)-1].weights) > 0 {
			turns *= 3 // at most 3
		}
	}
	for rotation := range turns {
		q := resolver.Question{Name: name, Type: qtype, Rotation: rotation * 7, ClientRotation: rotation}
		a := resolver.Resolve(x, q, &objs.serve)
		got := set(t, a)
		want := resolver.NXDomain
		switch {
		case exists && (len(forms) > 0 || qtype == dns.TypeANY && len(own) > 0):
			want = resolver.Found
		case exists:
			want = resolver.NoData
		}
		permitted := forms
		if qtype == dns.TypeANY && want == resolver.Found {
			permitted = own[a.Type] // RFC 8482 section 4.1: one RRset of the name
		}
		if a.Outcome != want || len(permitted) > 0 && !isOneOf(got, permitted) || want != resolver.Found && len(got) > 0 {
			t.Errorf("Resolve(%q %s rotation %d) = %d %v, want %d, one of %v",
				name, dns.TypeToString[qtype], rotation, a.Outcome, got, want, permitted)
			return
		}
		for i, form := range forms {
			shown[i] = shown[i] || maps.Equal(form, got)
		}
		checkName(t, a, name)
	}
	if slices.Contains(shown, false) {
		t.Errorf("Resolve(%q %s): in %d seconds of %v it shows %v", name, dns.TypeToString[qtype], turns, forms, shown)
	}
}

// checkName is the law that the name of an answer is that of the question.
func checkName(t *testing.T, a resolver.Answer, name string) {
	parts := []string{}
	switch a.Name.Kind {
	case resolver.Host:
		parts = append(parts, a.Name.HostLabel(), a.Name.ClusterID())
	case resolver.Cluster:
		parts = append(parts, a.Name.ClusterID())
	case resolver.Port:
		parts = append(parts, "_"+a.Name.PortName, a.Name.Proto.Label())
		if a.Name.ClusterID() != "" {
			parts = append(parts, a.Name.ClusterID())
		}
	case resolver.Service:
	default:
		return
	}
	parts = append(parts, a.Name.Service.Name(), a.Name.Service.Namespace(), "svc")
	if got := strings.Join(parts, "."); got != name {
		t.Errorf("the parts of the name of the answer for %q are %q", name, got)
	}
	if got := string(a.Name.AppendName(nil)); got != name {
		t.Errorf("AppendName of the answer for %q = %q", name, got)
	}
}

// docs/spec/dns.md 2, docs/spec/dns.md 3, docs/spec/dns.md 4: which names exist, and what they own.
func TestResolveMatchesReference(t *testing.T) { eachCase(t, matchesReference) }

func FuzzResolveMatchesReference(f *testing.F) { fuzz(f, matchesReference) }

// FuzzFind finds any name: it exists if the reference has it, and Find does not panic.
func FuzzFind(f *testing.F) {
	for seed := range uint64(10) {
		octets := randomEntropy(seed, 120)
		for name := range newReference(newObjects(octets)) {
			f.Add(octets, name)
		}
	}
	f.Add([]byte{}, ".web.shop.svc")
	f.Add([]byte{}, "..svc")
	f.Fuzz(func(t *testing.T, octets []byte, name string) {
		objs := newObjects(octets)
		n := resolver.Find(newIndex(objs), name, &objs.serve)
		_, exists := newReference(objs)[name]
		tooLong := objs.serve.MaxName > 0 && len(name) > objs.serve.MaxName
		if strings.Contains("."+name+".", "..") && name != "" || tooLong {
			return // no name, or too long for a message
		}
		if got := n.Kind != resolver.None; got != exists {
			t.Errorf("Find(%q) exists: %v, want %v\n%s", name, got, exists, objs)
		}
	})
}

// transferIsUnion is the law of docs/spec/dns.md 8: a transfer and the answers have the same records; where clusters
// answer in rotation, the union.
func transferIsUnion(t *testing.T, objs objects) {
	x := newIndex(objs)
	objs.serve.MaxAnswers = 1 // never caps a transfer (docs/spec/dns.md 5)
	got := map[string]rrset{}
	for a := range resolver.RRsets(x, &objs.serve) {
		key := string(a.Name.AppendName(nil)) + " " + dns.TypeToString[a.Type]
		if got[key] != nil {
			t.Errorf("RRsets yields %s twice", key)
		}
		got[key] = set(t, a)
	}
	want := map[string]rrset{}
	for name, own := range newReference(objs) {
		for qtype, forms := range own {
			for _, form := range forms {
				for record := range form {
					key := name + " " + dns.TypeToString[qtype]
					if want[key] == nil {
						want[key] = rrset{}
					}
					want[key][record] = true
				}
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("RRsets = %v, want %v", got, want)
	}
}

func TestTransferIsUnion(t *testing.T) { eachCase(t, transferIsUnion) }

func FuzzTransferIsUnion(f *testing.F) { fuzz(f, transferIsUnion) }

// targetsResolve is the law of docs/spec/dns.md 4: each target resolves, to the addresses of its glue.
func targetsResolve(t *testing.T, objs objects) {
	x := newIndex(objs)
	for name := range newReference(objs) {
		for rotation := range uint64(6) {
			a := resolver.Resolve(x, resolver.Question{Name: name, Type: dns.TypeSRV, ClientRotation: rotation}, &objs.serve)
			for i := range a.Services.Len() {
				_, to := a.Services.At(i)
				found := false
				for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
					q := resolver.Question{Name: string(to.AppendName(nil)), Type: qtype, Rotation: rotation, ClientRotation: rotation}
					glue, asked := resolver.Answer{Name: to}, resolver.Resolve(x, q, &objs.serve)
					glue.Ask(&q, &objs.serve)
					found = found || asked.Outcome == resolver.Found
					if !reflect.DeepEqual(text(glue), text(asked)) || glue.Outcome != asked.Outcome {
						t.Errorf("glue of %s is %v, but its answer %v", q.Name, text(glue), text(asked))
					}
				}
				if !found {
					t.Errorf("target %s of %s does not resolve", to.AppendName(nil), name)
				}
			}
		}
	}
}

func TestTargetsResolve(t *testing.T) { eachCase(t, targetsResolve) }

// capShowsAll are the laws of max_answers (docs/spec/dns.md 5): a capped answer is a part of a permitted one, as large
// as the cap allows, and over the seconds it shows each record.
func capShowsAll(t *testing.T, objs objects) {
	x := newIndex(objs)
	for name, own := range newReference(objs) {
		for qtype, forms := range own {
			if len(forms) != 1 || len(forms[0]) < 2 {
				continue // where clusters answer in rotation, the selection depends on it
			}
			for limit := 1; limit <= len(forms[0]) && limit < 4; limit++ {
				o := objs.serve
				o.MaxAnswers = limit
				shown := rrset{}
				for second := range uint64(2000) {
					q := resolver.Question{Name: name, Type: qtype, ClientRotation: second, Rotation: second * second}
					part := set(t, resolver.Resolve(x, q, &o))
					if len(part) != limit {
						t.Errorf("%s %d max_answers %d: %d records", name, qtype, limit, len(part))
					}
					maps.Copy(shown, part)
					if len(shown) == len(forms[0]) {
						break
					}
				}
				if !maps.Equal(shown, forms[0]) {
					t.Errorf("%s %d max_answers %d shows %v over time, want %v", name, qtype, limit, shown, forms[0])
				}
			}
		}
	}
}

func TestCapShowsAll(t *testing.T) { eachCase(t, capShowsAll) }

// rotationShowsAll is the law of docs/spec/dns.md 5 that the order rotates: a truncated answer is not always the same
// prefix, and over enough queries any prefix shows each record. A window does not move with the rotation.
func rotationShowsAll(t *testing.T, objs objects) {
	x := newIndex(objs)
	for name, own := range newReference(objs) {
		for qtype, forms := range own {
			if len(forms) != 1 || len(forms[0]) < 2 {
				continue
			}
			for _, stride := range []uint64{1, 2, 3, 1000} {
				first := rrset{}
				for rotation := range uint64(1000) {
					q := resolver.Question{Name: name, Type: qtype, Rotation: rotation * stride}
					first[text(resolver.Resolve(x, q, &objs.serve))[0]] = true
					if len(first) == len(forms[0]) {
						break
					}
				}
				if !maps.Equal(first, forms[0]) {
					t.Errorf("%s %d in steps of %d begins with %v over 1000 queries, want %v", name, qtype, stride, first, forms[0])
				}
			}
			o := objs.serve
			o.MaxAnswers = 2
			window := set(t, resolver.Resolve(x, resolver.Question{Name: name, Type: qtype}, &o))
			for rotation := range uint64(20) {
				got := set(t, resolver.Resolve(x, resolver.Question{Name: name, Type: qtype, Rotation: rotation}, &o))
				if !maps.Equal(got, window) {
					t.Errorf("%s %d at one second: rotation %d shows %v, rotation 0 %v", name, qtype, rotation, got, window)
				}
			}
		}
	}
}

func TestTurnsShowAll(t *testing.T) { eachCase(t, rotationShowsAll) }

// buildIsPure are the laws of Build: the order of slices, endpoints, addresses and ports does not matter, and a query
// does not change the result.
func buildIsPure(t *testing.T, objs objects) {
	queried, untouched, shuffled := newIndex(objs), newIndex(objs), newIndex(shuffle(objs))
	for name := range newReference(objs) {
		for _, qtype := range qtypes {
			for rotation := range uint64(3) {
				q := resolver.Question{Name: name, Type: qtype, Rotation: rotation, ClientRotation: rotation}
				a := resolver.Resolve(queried, q, &objs.serve)
				if other := resolver.Resolve(shuffled, q, &objs.serve); !reflect.DeepEqual(text(a), text(other)) {
					t.Errorf("%s %d rotation %d: %v, in another order %v", name, qtype, rotation, text(a), text(other))
				}
			}
		}
	}
	for range resolver.RRsets(queried, &objs.serve) {
		continue
	}
	if !reflect.DeepEqual(queried, untouched) {
		t.Error("queries changed the index")
	}
	if !reflect.DeepEqual(shuffled.All(), untouched.All()) {
		t.Error("the order of the input shows in the index")
	}
	if shuffled.Digest() != untouched.Digest() {
		t.Errorf("digest %x, in another order %x", untouched.Digest(), shuffled.Digest())
	}
	for i, s := range shuffled.All() {
		if !index.Equal(s, untouched.All()[i]) {
			t.Errorf("%s: not Equal in another order", s.Key())
		}
	}
}

// shuffle changes each order that has no meaning, in the same way for the same objs.
func shuffle(objs objects) objects {
	objs.imports = reversed(objs.imports)
	for i := range objs.imports {
		imp := &objs.imports[i]
		imp.ips, imp.ports, imp.slices = reversed(imp.ips), reversed(imp.ports), reversed(imp.slices)
		imp.weights = reversed(imp.weights)
		for j := range imp.slices {
			sl := &imp.slices[j]
			sl.ports, sl.endpoints = reversed(sl.ports), reversed(sl.endpoints)
			for k := range sl.endpoints {
				sl.endpoints[k].Addrs = reversed(sl.endpoints[k].Addrs)
			}
		}
	}
	return objs
}

func reversed[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func TestBuildIsPure(t *testing.T) { eachCase(t, buildIsPure) }

func FuzzBuildIsPure(f *testing.F) { fuzz(f, buildIsPure) }
