package exporter

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/vip"
)

// maxQuarantine is how many addresses are saved: the election writes the Lease every 2 seconds, with all that it holds.
const maxQuarantine = 200

// A quarantine is that of the clusterset IPs as it outlives an instance: an annotation of the Lease of the leader election, one line for
// each address. That Lease exists while an instance leads, and the rights of the controller allow it no other object for this.
type quarantine struct {
	member    *member.Cluster
	namespace string
}

// load returns what an instance before this one saved. A line that is not of that form is left out.
func (q quarantine) load(ctx context.Context) ([]vip.Freed, error) {
	l, err := q.lease(ctx)
	if l == nil || err != nil {
		return nil, err
	}
	return parseQuarantine(l.Annotations[wellknown.AnnotationQuarantine]), nil
}

// save replaces what is saved. If the election writes the Lease meanwhile, that is a conflict: try again. Its own writes take the
// annotation along, and it reads the Lease again when it meets a conflict.
func (q quarantine) save(ctx context.Context, all []vip.Freed) error {
	l, err := q.lease(ctx)
	if l == nil || err != nil {
		return err
	}
	text := formatQuarantine(all)
	if l.Annotations[wellknown.AnnotationQuarantine] == text {
		return nil
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, wellknown.AnnotationQuarantine, text)
	return q.member.Client().Update(ctx, l, wellknown.ManagerExporter)
}

// lease returns the Lease, nil if there is none.
func (q quarantine) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	switch err := q.member.Client().Get(ctx, l, q.namespace, wellknown.ControllerLease); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return l, nil
}

// formatQuarantine writes lines such as "243.0.0.4 2026-03-01T09:10:00Z shop/db".
func formatQuarantine(all []vip.Freed) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s %s %s\n", f.Addr, f.Until.UTC().Format(time.RFC3339), f.Service)
	}
	return b.String()
}

func parseQuarantine(text string) (all []vip.Freed) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		until, err := time.Parse(time.RFC3339, fields[1])
		if err != nil {
			continue
		}
		namespace, name, _ := strings.Cut(fields[2], "/")
		all = append(all, vip.Freed{Addr: addr, Until: until, Service: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	return all
}
