package plugin

import (
	"context"

	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/request"

	"github.com/clusterset-dns/clusterset/resolver"
)

// metadataOf has the value of each label for a name; local is the id of the local cluster.
var metadataOf = map[string]func(n *resolver.Name, local string) string{
	"kind": func(n *resolver.Name, _ string) string { return kindNames[n.Kind] },
	"service": func(n *resolver.Name, _ string) string {
		return serviceText(n, func() string { return n.Service.Name() })
	},
	"namespace": func(n *resolver.Name, _ string) string {
		return serviceText(n, func() string { return n.Service.Namespace() })
	},
	"cluster":       func(n *resolver.Name, _ string) string { return n.ClusterID() },
	"hostname":      func(n *resolver.Name, _ string) string { return n.HostLabel() },
	"port-name":     func(n *resolver.Name, _ string) string { return n.PortName },
	"protocol":      protocolOf,
	"local-cluster": func(_ *resolver.Name, local string) string { return local },
}

var kindNames = map[resolver.Kind]string{
	resolver.None: "none", resolver.Apex: "apex", resolver.NameServer: "apex", resolver.Version: "apex",
	resolver.Empty: "empty", resolver.Service: "service", resolver.Cluster: "cluster", resolver.Host: "host",
	resolver.Port: "port",
}

func serviceText(n *resolver.Name, text func() string) string {
	if n.Service == nil {
		return ""
	}
	return text()
}

func protocolOf(n *resolver.Name, _ string) string {
	if n.Kind != resolver.Port {
		return ""
	}
	return n.Proto.Label()[1:]
}

// Metadata implements metadata.Provider. A label costs nothing until a plugin reads it.
func (h *Handler) Metadata(ctx context.Context, r request.Request) context.Context {
	z := longestZone(h.zones, r.QName())
	if z == nil {
		return ctx
	}
	state := h.store.State()
	o := z.options
	// Another plugin may change the name in the message before a label is read.
	relative := z.relative(r.QName())
	for label, part := range metadataOf {
		metadata.SetValueFunc(ctx, Name+"/"+label, func() string {
			n := resolver.Find(state.Index, relative, &o)
			return part(&n, state.LocalCluster)
		})
	}
	return ctx
}
