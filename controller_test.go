package clusterset

import (
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

// controllerConfigOf returns the controller settings of a block.
func controllerConfigOf(t *testing.T, block string) *controller.Config {
	t.Helper()
	config := controller.Defaults()
	c := blockOf(block)
	parsed, _, err := plugin.Parse(c, directives(&config)...)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := storeConfigOf(parsed)
	if err != nil {
		t.Fatal(err)
	}
	completeConfig(c, &config, spec.REST)
	return &config
}

// TestControllerDirectives: each directive sets the option of its name, and is rejected without a broker.
func TestControllerDirectives(t *testing.T) {
	in := files(t)
	block := "clusterset {\nkubeconfig {kubeconfig}\nbroker {dir}/broker\n"
	plain := controllerConfigOf(t, in.Replace(block+"}"))
	if want := in.Replace("{dir}/broker"); plain.Broker != want || plain.Local.Host != "https://127.0.0.1:1" {
		t.Errorf("broker: got %q, local %q, want %q and that of the block", plain.Broker, plain.Local.Host, want)
	}
	lines := map[string]string{
		"broker": "", "cluster_id": "west", "controller_namespace": "dns", "vip": "cidr 243.1.0.0/16",
		"endpoints":    "service_ip",
		"service_cidr": "10.96.0.0/16 fd00:10:96::/108", "lease": "5s 20s", "on_expiry": "keep", "merge": "first",
		"import_namespaces": "shop bank",
		"legacy_conditions": "on", "aggregate_view": "on", "controller_qps": "50", "status_page": "127.0.0.1:9155",
		"affinity": "local 5s", "exported_affinity": "off",
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
		if got := plain.Difference(controllerConfigOf(t, in.Replace(block+line+"\n}"))); got != o.Name {
			t.Errorf("%s: differs in %q, want %q", line, got, o.Name)
		}
		_, _, err := plugin.Parse(blockOf("clusterset {\n"+line+"\n}"), directives(new(controller.Config))...)
		if want := "Testfile:2 - Error during parsing: " + o.Name + " without broker: want both"; errorText(err) != want {
			t.Errorf("%s alone: got %q, want %q", line, errorText(err), want)
		}
	}
}

// TestControllerRejects: the error for a bad value has the directive, the value and the wanted form.
func TestControllerRejects(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		{"broker f\nvip none 243.0.0.0/8", `Testfile:3 - Error during parsing: vip "243.0.0.0/8" after none: want a network only after cidr`},
		{"broker f\nlease 10s 20s", `lease "20s": want a duration from three times 10s to 1h0m0s`},
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

// TestOneController: blocks must have the same controller settings, and a reload that does not change them leaves the
// controller running.
func TestOneController(t *testing.T) {
	in := files(t)
	block := "clusterset {\nkubeconfig {kubeconfig}\nbroker {dir}/broker\n"
	config := func(lines string) *controller.Config { return controllerConfigOf(t, in.Replace(block+lines+"\n}")) }
	p := instances{ctx: t.Context()}

	first := p.create()
	for _, tt := range []struct{ lines, want string }{
		{"ttl 1", ""}, {"ttl 2", ""}, {"vip none", "vip differs from that of another block"},
	} {
		if got := errorText(first.setController(config(tt.lines))); tt.want == "" && got != "" ||
			!strings.Contains(got, tt.want) {
			t.Errorf("setController(%s): got %q, want %q", tt.lines, got, tt.want)
		}
	}
	if p.controller != nil {
		t.Error("a controller runs before the server started")
	}
	p.start(first)
	active := p.controller
	if active == nil {
		t.Fatal("no controller runs")
	}
	reload := func(from *instance, lines string) *instance {
		t.Helper()
		p.restart(from)
		next := p.create()
		if lines != "none" {
			if err := next.setController(config(lines)); err != nil {
				t.Fatal(err)
			}
		}
		p.start(next)
		return next
	}

	active.cancel()
	<-active.done
	ended := active
	p.reconcileController()
	if active = p.controller; active == ended || active.hasEnded() {
		t.Error("a controller that ended by itself was not started again")
	}
	second := reload(first, "ttl 3")
	p.release(first)
	if p.controller != active || active.hasEnded() {
		t.Error("a reload that does not concern the controller ended it")
	}
	third := reload(second, "vip none")
	if p.controller == active || p.controller.config.VIP != "none" {
		t.Errorf("a reload with another setting left the controller at %q", p.controller.config.VIP)
	}
	// The reload fails: the instance before answers on, with its own settings.
	p.release(third)
	if p.controller.config.VIP != "derived" {
		t.Errorf("a reload that failed left the controller at %q", p.controller.config.VIP)
	}
	active = p.controller
	fourth := reload(second, "none")
	p.release(second)
	if p.controller != nil {
		t.Error("a controller that no block asks for goes on")
	}
	<-active.done
	p.release(fourth)
}
