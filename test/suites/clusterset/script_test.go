package clusterset

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A script is a file of testdata: changes in the members, in their order, and what users see then. Its sections:
//
//	options          directives of all controllers, one per line; the defaults if it is absent
//	east, all        objects that are created or updated in that member, or in each; "-" before the kind deletes one
//	tick             waits for the next second, the resolution of creation times
//	import           all imports, the same in every member, with derived Services and slices; "import east" reads only that member
//	exports          conditions of all ServiceExports
//	conflict events  Events of their condition Conflict
//	validity events  Events of their condition Valid, for scripts that create an export long before or after its Service
//	view             imports on the broker (aggregate_view), by the member that published them
//	rejected         rejected exports on the broker, by the member that published them
//	dns              questions to the CoreDNS of west, and the answers
//
// Objects are in a namespace with the name of the file, which exists in every member unless a script deletes it. Within
// sections that are compared, west is the cluster ID of 63 octets, vip4 and vip6 are addresses from the member's API
// server, 10.1n.x.x in a slice is an address from the API server of the n-th member, and 243.n.x.x and fd17::n:x are in
// the VIP CIDRs of the member that joined after n others.
type script struct {
	namespace string
	archive   *txtar.Archive
	services  map[string]*corev1.Service // by member and name, as put last
}

// load returns the scripts of testdata by their options.
func load(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts: %v, %v", files, err)
	}
	byOptions := make(map[string][]string)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var options string
		if len(archive.Files) > 0 && archive.Files[0].Name == "options" {
			options = strings.TrimSpace(string(archive.Files[0].Data))
		}
		byOptions[options] = append(byOptions[options], file)
	}
	return byOptions
}

// TestScripts plays the files of testdata, those with the same options at once: each has a namespace of its own, and
// mostly waits. The controllers are started once for each set of options.
func TestScripts(t *testing.T) {
	byOptions := load(t)
	for options, files := range byOptions {
		t.Run(cmp.Or(strings.ReplaceAll(options, " ", "_"), "defaults"), func(t *testing.T) {
			var lines []string
			if options != "" {
				lines = strings.Split(options, "\n")
			}
			runAll(t, lines...)
			for _, file := range files {
				t.Run(filepath.Base(file), func(t *testing.T) {
					t.Parallel()
					play(t, file)
				})
			}
		})
	}
}

// TestIPFamilies has members of its own: east with both IP families, north with IPv4 alone and west with IPv6 alone.
func TestIPFamilies(t *testing.T) {
	tier.All(t)
	all, e, n, w, s := clusters, east, north, west, server
	stop, err := startClusters(t.Context(),
		map[string]corev1.IPFamily{northID: corev1.IPv4Protocol, longID: corev1.IPv6Protocol})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		clusters, east, north, west, server = all, e, n, w, s
	})
	if err != nil {
		t.Fatal(err)
	}
	runAll(t)
	play(t, "testdata/families/one-each.txtar")
}

// play runs a script and then withdraws all exports, after which nothing may be left.
func play(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{
		namespace: strings.TrimSuffix(filepath.Base(file), ".txtar"), archive: archive,
		services: make(map[string]*corev1.Service),
	}
	for _, m := range clusters.Members {
		m.Put(t, testclusterset.Namespace(s.namespace))
	}
	defer s.withdraw(t)
	for i := range archive.Files {
		s.step(t, &archive.Files[i])
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *script) step(t *testing.T, f *txtar.File) {
	t.Helper()
	name, arguments, _ := strings.Cut(f.Name, " ")
	if arguments == "events" {
		s.compare(t, f, func(ctx context.Context) (string, error) { return s.events(ctx, name == "conflict") })
		return
	}
	in := members(t, strings.Fields(arguments)...)
	switch name {
	case "options":
	case "tick":
		tick(t)
	case "import":
		s.compare(t, f, func(ctx context.Context) (string, error) { return s.imports(ctx, in) })
	case "exports":
		s.compare(t, f, func(ctx context.Context) (string, error) { return s.exports(ctx, in) })
	case "view":
		s.compare(t, f, s.views)
	case "rejected":
		s.compare(t, f, s.rejected)
	case "dns":
		s.compare(t, f, func(ctx context.Context) (string, error) { return s.answers(ctx, string(f.Data)) })
	case "all":
		for _, m := range clusters.Members {
			s.change(t, m, string(f.Data))
		}
	default:
		s.change(t, members(t, name)[0], string(f.Data))
	}
}

// members returns the members with these names; all members if there are none.
func members(t *testing.T, names ...string) []*testclusterset.Member {
	t.Helper()
	if len(names) == 0 {
		return clusters.Members
	}
	var found []*testclusterset.Member
	for _, name := range names {
		at := slices.IndexFunc(clusters.Members, func(m *testclusterset.Member) bool { return scriptName(m) == name })
		if at < 0 {
			t.Fatalf("section %q: want one that is listed at type script", name)
		}
		found = append(found, clusters.Members[at])
	}
	return found
}

// called is the name of a member in scripts.
func scriptName(m *testclusterset.Member) string {
	return map[*testclusterset.Member]string{east: "east", north: "north", west: "west"}[m]
}

// tick waits until the next export has a later creation time than all before.
func tick(t *testing.T) {
	t.Helper()
	now := time.Now().Unix()
	until.OK(t, "the clock", func(context.Context) error {
		if time.Now().Unix() == now {
			return fmt.Errorf("it is still %d", now)
		}
		return nil
	})
}

// compare waits until the objects are those of the section. With -update it writes the objects into the section, when
// they have not changed for a while.
func (s *script) compare(t *testing.T, f *txtar.File, look func(context.Context) (string, error)) {
	t.Helper()
	var last string
	var since time.Time
	until.OK(t, "section "+f.Name, func(ctx context.Context) error {
		got, err := look(ctx)
		switch {
		case err != nil:
			return err
		case *update:
			if got != last {
				last, since = got, time.Now()
			}
			if time.Since(since) < 1500*time.Millisecond {
				return fmt.Errorf("it changes still: %s", got)
			}
			f.Data = []byte(got)
		case got != string(f.Data):
			return fmt.Errorf("got\n%swant\n%s", got, f.Data)
		}
		return nil
	})
}

// change puts objects into a member, or takes them away.
func (s *script) change(t *testing.T, m *testclusterset.Member, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "-"); ok {
			m.Drop(t, s.object(t, m, rest))
			continue
		}
		m.Put(t, s.object(t, m, line))
	}
}

// object reads one line: kind, name, and the fields that differ from the defaults.
func (s *script) object(t *testing.T, m *testclusterset.Member, line string) runtime.Object {
	t.Helper()
	kind, rest, _ := strings.Cut(line, " ")
	name, text, _ := strings.Cut(rest, " ")
	if strings.HasPrefix(name, "{") {
		text = rest
	}
	read := func(into any) {
		if err := yaml.UnmarshalStrict([]byte(text), into); text != "" && err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	switch kind {
	case "Namespace":
		ns := testclusterset.Namespace(s.namespace)
		read(&ns.Annotations)
		return ns
	case "Service":
		svc := testclusterset.Service(s.namespace, name)
		read(&svc.Spec)
		if svc.Spec.ClusterIP == corev1.ClusterIPNone && svc.Spec.IPFamilyPolicy == nil {
			svc.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack) // as with a selector
		}
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			if p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
			if p.TargetPort == (intstr.IntOrString{}) {
				p.TargetPort = intstr.FromInt32(8000 + p.Port)
			}
		}
		s.services[m.ID+"/"+name] = svc
		return svc
	case "Endpoints":
		return s.slice(t, m, name, strings.Fields(text))
	case "Export":
		exp := testclusterset.Export(s.namespace, name)
		var further struct {
			mcsv1beta1.ServiceExportSpec
			Annotations map[string]string `json:"annotations"`
		}
		read(&further)
		exp.Spec, exp.Annotations = further.ServiceExportSpec, further.Annotations
		return exp
	}
	t.Fatalf("%s: want Namespace, Service, Endpoints or Export", line)
	return nil
}

// slice reads "web-1 10.21.0.1 db-0=10.21.0.2 !10.21.0.3 10.21.0.4@a": the slice 1 of service web, with a host name,
// one not ready, and one in zone a. "for-zone:a" and "for-region:r" are labels of the slice (KEP-2030).
func (s *script) slice(t *testing.T, m *testclusterset.Member, name string, fields []string) runtime.Object {
	t.Helper()
	of, _, _ := strings.Cut(name, "/")
	svc := s.services[m.ID+"/"+of]
	if svc == nil {
		t.Fatalf("endpoints %s: want the Service before", name)
	}
	var endpoints []testclusterset.Endpoint
	topology := make(map[string]string)
	for _, field := range fields {
		if label, value, ok := strings.Cut(field, ":"); ok && strings.HasPrefix(label, "for-") {
			topology["endpointslice.kubernetes.io/"+label] = value
			continue
		}
		address, notReady := strings.CutPrefix(field, "!")
		e := testclusterset.Endpoint{Address: address, NotReady: notReady}
		if host, address, ok := strings.Cut(e.Address, "="); ok {
			e.Hostname, e.Address = host, address
		}
		e.Address, e.Zone, _ = strings.Cut(e.Address, "@")
		endpoints = append(endpoints, e)
	}
	slice := testclusterset.Slice(svc, strings.ReplaceAll(name, "/", "-"), endpoints...)
	maps.Copy(slice.Labels, topology)
	return slice
}

// answers sends the question at the begin of each line.
func (s *script) answers(ctx context.Context, lines string) (string, error) {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return "", fmt.Errorf("%q: want name, type and answer", line)
		}
		name := s.namespace
		if fields[0] != "@" {
			name = fields[0] + "." + name
		}
		answer, err := server.Ask(ctx, strings.ReplaceAll(name, "west", longID), dns.StringToType[fields[1]])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s %s %s\n", fields[0], fields[1], normal(west, answer))
	}
	return b.String(), nil
}

// withdraw deletes all exports, and waits until nothing is left of the imports.
func (s *script) withdraw(t *testing.T) {
	t.Helper()
	for _, m := range clusters.Members {
		exports, err := list[mcsv1beta1.ServiceExport](t.Context(), m, "multicluster.x-k8s.io/v1beta1", "serviceexports",
			s.namespace)
		if err != nil {
			t.Error(err)
		}
		for i := range exports {
			m.Drop(t, testclusterset.Export(s.namespace, exports[i].Name))
		}
	}
	until.OK(t, "after the last export", func(ctx context.Context) error {
		left, err := s.imports(ctx, clusters.Members)
		if err == nil && left != "" {
			err = fmt.Errorf("there is still\n%s", left)
		}
		return err
	})
}
