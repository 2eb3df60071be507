package cause

import (
	"fmt"
	"strings"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/resolver"
	"github.com/clusterset-dns/clusterset/resolver/denial"
)

// A Target is what a name asks for. The zero Target is that of a name above all services.
type Target = denial.Name

func badShape(code reason.Code, format string, args ...any) (Target, *denial.Fault) {
	return Target{}, &denial.Fault{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Locate returns what a name of a zone asks for; ok is false if no service can have it.
func Locate(name, zone string) (_ Target, ok bool) {
	t, bad := parse(name, zone)
	return t, bad == nil && t.Service != ""
}

// parse takes a fully qualified name apart.
func parse(name, zone string) (Target, *denial.Fault) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > resolver.MaxOwner {
		return badShape(reason.NameTooLong, "%.40s... has %d octets", name, len(name))
	}
	if bad := denial.CheckLabels(name); bad != nil {
		return Target{}, bad
	}
	if strings.HasSuffix(name, ".in-addr.arpa") || strings.HasSuffix(name, ".ip6.arpa") {
		return badShape(reason.NameReverse, "%s is a reverse name", name)
	}
	if name == zone {
		return Target{}, nil
	}
	relative, ok := strings.CutSuffix(name, "."+zone)
	if !ok {
		below, _, _ := strings.Cut(name, ".svc.")
		like := below + ".svc." + zone
		if _, isService := Locate(like, zone); isService {
			return badShape(reason.NameOutsideZone, "%s is not below %s; did you mean %s", name, zone, like)
		}
		return badShape(reason.NameOutsideZone, "%s is not below %s", name, zone)
	}
	return denial.Parse(relative)
}
