package plugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/resolver"
)

// Directives returns those of DNS, in the order of README.md.
func Directives() []Directive { return new(block).directives() }

// directives returns those of DNS, which set b.
func (b *block) directives() []Directive {
	return slices.Concat(b.objectDirectives(), b.answerDirectives(), b.operationDirectives())
}

// objectDirectives returns the directives about sources and filters.
func (b *block) objectDirectives() []Directive {
	return []Directive{
		{
			Name: "kubeconfig", Args: "FILE [CONTEXT]", Min: 1, Max: 2, Set: b.kubeconfig,
			Text: "reaches the API server by a kubeconfig, read again when it changes and when its credential is " +
				"rejected. Default: in-cluster.",
		},
		{
			Name: "manifests", Args: "PATH...", Min: 1, Max: -1, Set: b.manifests,
			Text: "reads the objects from files, or from the `.yaml`, `.yml` and `.json` files of a folder, and " +
				"checks them every second. A broken file, or an object given twice, stops the start; later the last " +
				"good state stays. Not with `kubeconfig`, `snapshot`, `apiserver_qps`.",
		},
		{
			Name: "namespaces", Args: "NAMESPACE...", Min: 1, Max: -1, Set: b.namespaces,
			Text: "serves these namespaces alone; default: all. Rights in these namespaces are enough. Not with " +
				"`namespace_labels`.",
		},
		{
			Name: "namespace_labels", Args: "SELECTOR", Min: 1, Max: -1,
			Set:  selector("namespace_labels", &b.NamespaceLabels),
			Text: "selects namespaces by their labels. It needs the right to list and watch Namespaces.",
		},
		{
			Name: "labels", Args: "SELECTOR", Min: 1, Max: -1, Set: selector("labels", &b.Labels),
			Text: "selects ServiceImports by their labels.",
		},
		{
			Name: "deny", Args: "CIDR...", Min: 1, Max: -1, Set: b.deny,
			Text: "rejects addresses in these networks.",
			Rare: "where others write the slices, against addresses such as that of a cloud's metadata service (`168.63.129.16/32`)",
		},
	}
}

// answerDirectives returns the directives about answers.
func (b *block) answerDirectives() []Directive {
	return []Directive{
		choice(Directive{
			Name: "cluster_names", Args: "on|off", Default: "on",
			Text: "serves the names `<clusterid>.<service>...`.",
			Rare: "`off` for KEP-1645 to the letter",
		}, &b.ClusterNames, true, false),
		choice(Directive{
			Name: "policy", Args: "local_first|round_robin|all|none", Default: "local_first",
			Text: "sets which of the [selected](docs/spec/selection.md) clusters answer for a ClusterSetIP service " +
				"without `spec.ips`: `local_first` the local one while it has a ready address, else one other; " +
				"`round_robin` one; `all` all; `none` none, so that the name exists without an address. Each client " +
				"gets one cluster a second, in turn.",
		}, &b.Policy, resolver.LocalFirst, resolver.RoundRobin, resolver.All, resolver.NoCluster),
		{
			Name: "topology", Args: topologyArgs, Min: 2, Max: 4, Set: b.topology,
			Text: "sets the location of this server, or a Node with labels for it. " +
				"Without it all slices are used. Not with `noendpoints`.",
		},
		{
			Name: "noendpoints", Set: func([]string) error { b.NoEndpoints = true; return nil },
			Text: "watches no EndpointSlices: only services with `spec.ips` have addresses. Not with `policy`, `topology`.",
			Rare: "where all services have clusterset IPs",
		},
		{
			Name: "ttl", Args: "SECONDS", Min: 1, Max: 1, Default: "5", Set: b.ttl,
			Text: "sets the TTL of all records except `dns-version`, 0 to 3600.",
		},
		{
			Name: "max_answers", Args: "N", Min: 1, Max: 1, Set: b.maxAnswers,
			Text: "limits A, AAAA and SRV answers to so many records, 1 to 4096, without TC. They differ by client " +
				"and second. Default: no limit.",
			Rare: "where headless services have hundreds of endpoints",
		},
		{
			Name: "udp_size", Args: "OCTETS", Min: 1, Max: 1, Default: "1232", Set: b.udpSize,
			Text: "limits answers over UDP, 512 to 65507: larger ones may be fragmented and lost.",
			Rare: "where the network takes larger datagrams, or drops smaller ones",
		},
		{
			Name: "ns", Args: "NAME [ADDRESS...]", Min: 1, Max: -1, Set: b.ns,
			Text: "sets the name server in SOA and NS records: a name outside of the zones, or `ns.dns.Z` with " +
				"addresses. Default: this server.",
			Rare: "where resolvers follow NS records and reach this server elsewhere than it listens, as behind a Service",
		},
		choice(Directive{
			Name: "explain_answers", Args: "on|off", Default: "off",
			Text: "adds a [code](docs/troubleshooting.md#codes-of-clusterset-explain) for the reason to negative answers.",
		}, &b.ExplainAnswers, true, false),
	}
}

// operationDirectives returns the directives about start, outages and other plugins.
func (b *block) operationDirectives() []Directive {
	return []Directive{
		choice(Directive{
			Name: "ready", Args: "shared|strict", Default: "shared",
			Text: "sets when *ready* reports this block ready ([Ready](#ready)).",
		}, &b.ReadyStrict, false, true),
		{
			Name: "startup_timeout", Args: "DURATION", Min: 1, Max: 1, Default: "5s",
			Set:  duration("startup_timeout", &b.StartupTimeout, 1, "above 0s, such as 5s"),
			Text: "bounds how long the start waits for the first lists, above 0s. All blocks of a Corefile share one wait.",
			Rare: "where the first lists take longer, and no other server answers meanwhile",
		},
		{
			Name: "stale_after", Args: "DURATION", Min: 1, Max: 1, Default: "1m",
			Set:  duration("stale_after", &b.StaleAfter, time.Second, "of at least 1s, such as 1m"),
			Text: "sets after how long without contact a watch makes answers stale, at least 1s.",
			Rare: "where clients or alerts use *Stale Answer* and a minute is too long",
		},
		{
			Name: "snapshot", Args: "FILE [MAX_AGE]", Min: 1, Max: 2, Set: b.snapshot,
			Text: "writes the state to **FILE**, and serves it after a start without API server or a list, " +
				"if not older than **MAX_AGE** (24h).",
		},
		{
			Name: "apiserver_qps", Args: "QPS [BURST]", Min: 1, Max: 2, Set: b.apiserverQPS,
			Text: "limits requests to the API server except lists and watches, both above 0. Default: 5 and 10.",
			Rare: "where an administrator of the API server asks for it",
		},
		{
			Name: "fallthrough", Args: "[ZONES...]", Max: -1, Set: b.fallthru,
			Text: "passes names that do not exist to the next plugin, in all zones or in **ZONES**; never NODATA, " +
				"never before the first sync.",
		},
	}
}

// defaults applies the default of each directive.
func (b *block) defaults() {
	for _, d := range b.directives() {
		if d.Default == "" {
			continue
		}
		if err := d.Set(strings.Fields(d.Default)); err != nil {
			panic(fmt.Sprintf("default of %s: %v", d.Name, err))
		}
	}
}
