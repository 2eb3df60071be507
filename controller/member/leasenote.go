package member

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// A LeaseNote is an annotation of the Lease of the leader election: what outlives an instance, or what others shall know of it. That Lease
// exists while an instance leads, and the rights of the controller allow it no other object for this.
type LeaseNote struct {
	Cluster   *Cluster
	Namespace string // of the controller
	Key       string
}

// Load returns the text; it is "" on a Lease without the note, and without a Lease.
func (n LeaseNote) Load(ctx context.Context) (string, error) {
	l, err := n.lease(ctx)
	if l == nil || err != nil {
		return "", err
	}
	return l.Annotations[n.Key], nil
}

// Save replaces the text; "" removes the annotation. If the election writes the Lease meanwhile, that is a conflict: try again. Its own
// writes take the annotation along, and it reads the Lease again when it meets a conflict.
func (n LeaseNote) Save(ctx context.Context, text, manager string) error {
	l, err := n.lease(ctx)
	if l == nil || err != nil || l.Annotations[n.Key] == text {
		return err
	}
	if text == "" {
		delete(l.Annotations, n.Key)
	} else {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, n.Key, text)
	}
	return n.Cluster.Client().Update(ctx, l, manager)
}

// lease returns the Lease, or nil if it does not exist.
func (n LeaseNote) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	switch err := n.Cluster.Client().Get(ctx, l, n.Namespace, wellknown.ControllerLease); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return l, nil
}
