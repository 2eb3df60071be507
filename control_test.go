package clusterset

import (
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

// controlOf returns what a block makes of the controller.
func controlOf(t *testing.T, block string) *controller.Config {
	t.Helper()
	config := controller.Defaults()
	c := blockOf(block)
	parsed, _, err := plugin.Parse(c, directives(&config)...)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := storeConfig(parsed)
	if err != nil {
		t.Fatal(err)
	}
	finish(c, &config, spec.REST)
	return &config
}

// TestControllerDirectives: each reaches the controller under its own name, and none goes without a broker.
func TestControllerDirectives(t *testing.T) {
	in := files(t)
	block := "clusterset {\nkubeconfig {kubeconfig}\nbroker {dir}/broker\n"
	plain := controlOf(t, in.Replace(block+"}"))
	if want := in.Replace("{dir}/broker"); plain.Broker != want || plain.Local.Host != "https://127.0.0.1:1" {
		t.Errorf("broker: got %q, local %q, want %q and that of the block", plain.Broker, plain.Local.Host, want)
	}
	lines := map[string]string{
		"broker": "", "cluster_id": "west", "controller_namespace": "dns", "vip": "cidr 243.1.0.0/16", "endpoints": "service_ip",
		"service_cidr": "10.96.0.0/16 fd00:10:96::/108", "lease": "5s 20s", "on_expiry": "keep", "on_conflict": "withhold",
		"port_merge": "intersection", "type_conflict": "exclude", "precedence": "broker", "import_namespaces": "shop bank",
		"legacy_conditions": "on", "aggregate_view": "on", "controller_qps": "50",
	}
	for _, o := range controller.Options() {
		args, known := lines[o.Name]
		if !known {
			t.Errorf("directive %s is not tested", o.Name)
		}
		if o.Name == "broker" {
			continue
		}
		line := o.Name + " " + args
		if got := plain.Difference(controlOf(t, in.Replace(block+line+"\n}"))); got != o.Name {
			t.Errorf("%s: differs in %q, want %q", line, got, o.Name)
		}
		_, _, err := plugin.Parse(blockOf("clusterset {\n"+line+"\n}"), directives(new(controller.Config))...)
		if want := "Testfile:2 - Error during parsing: " + o.Name + " without broker: want both"; errorText(err) != want {
			t.Errorf("%s alone: got %q, want %q", line, errorText(err), want)
		}
	}
}

// TestControllerRefuses: a bad value is told with its directive and what is wanted.
func TestControllerRefuses(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		{"broker f\nvip none 243.0.0.0/8", `Testfile:3 - Error during parsing: vip "243.0.0.0/8" after none: want a network only after cidr`},
		{"broker f\nlease 10s 20s", `lease "20s": want a duration from three times 10s to 24h0m0s`},
		{"broker f\nlease 5", `lease "5": want 0, or two durations such as 10s 60s`},
		{"broker f\nendpoints ip", `endpoints "ip": want one of pod_ip, service_ip`},
		{"broker f\nimport_namespaces team=", ""},
		{"broker f\nimport_namespaces a,b=c,=", `import_namespaces "a,b=c,=": want names of namespaces, or a label selector`},
		{"broker f\nservice_cidr 10.0.0.1/8", `service_cidr CIDR "10.0.0.1/8": want a network`},
		{"broker f\nmanifests m", "broker beside manifests: want one of them"},
		{"broker", `broker: want KUBECONFIG [CONTEXT]`},
	} {
		_, _, err := plugin.Parse(blockOf("clusterset {\n"+tt.lines+"\n}"), directives(new(controller.Config))...)
		if got := errorText(err); !strings.Contains(got, tt.want) || tt.want == "" && err != nil {
			t.Errorf("%s: got %q, want %q", tt.lines, got, tt.want)
		}
	}
}

// TestOneController: blocks have to agree on the controller, and it outlives a reload that does not change it.
func TestOneController(t *testing.T) {
	in := files(t)
	block := "clusterset {\nkubeconfig {kubeconfig}\nbroker {dir}/broker\n"
	config := func(lines string) *controller.Config { return controlOf(t, in.Replace(block+lines+"\n}")) }
	r := registry{ctx: t.Context()}

	first := r.hold()
	for _, tt := range []struct{ lines, want string }{
		{"ttl 1", ""}, {"ttl 2", ""}, {"vip none", "vip differs from that of another block"},
	} {
		if got := errorText(first.agree(config(tt.lines))); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("agree(%s): got %q, want %q", tt.lines, got, tt.want)
		}
	}
	if r.active != nil {
		t.Error("a controller runs before the server started")
	}
	r.start(first)
	active := r.active
	if active == nil {
		t.Fatal("no controller runs")
	}
	reload := func(from *holding, lines string) *holding {
		t.Helper()
		r.restart(from)
		next := r.hold()
		if lines != "none" {
			if err := next.agree(config(lines)); err != nil {
				t.Fatal(err)
			}
		}
		r.start(next)
		return next
	}

	ended := &control{active.config, func() {}, make(chan struct{})}
	close(ended.done)
	active.cancel()
	<-active.done
	r.active = ended
	r.settle()
	if active = r.active; active == ended || over(active) {
		t.Error("a controller that ended by itself was not started anew")
	}
	second := reload(first, "ttl 3")
	r.release(first)
	if r.active != active || over(active) {
		t.Error("a reload that does not concern the controller ended it")
	}
	third := reload(second, "vip none")
	if r.active == active || r.active.config.VIP != "none" {
		t.Errorf("a reload with another setting left the controller at %q", r.active.config.VIP)
	}
	// The reload fails: the instance before goes on, with its own settings.
	r.release(third)
	if r.active.config.VIP != "derived" {
		t.Errorf("a reload that failed left the controller at %q", r.active.config.VIP)
	}
	active = r.active
	fourth := reload(second, "none")
	r.release(second)
	if !over(active) || r.active != nil {
		t.Error("a controller that no block wants goes on")
	}
	r.release(fourth)
}

// over tells whether c ended. Whoever waits for it in release must have seen it end.
func over(c *control) bool {
	select {
	case <-c.done:
		return true
	case <-time.After(10 * time.Millisecond):
		return false
	}
}
