package member

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// A LeaseNote is an annotation of a Lease: data that outlives an instance, or is for others. The rights of the
// controller allow it no other object for this. On the Lease of the election it is written every few seconds, with the
// rest of the Lease. Without a key it is the Lease itself, for Read and Write alone.
type LeaseNote struct {
	Cluster   *Cluster
	Namespace string // of the controller
	Lease     string
	Key       string
}

// Load returns the text; it is "" on a Lease without the note, and without a Lease.
func (n LeaseNote) Load(ctx context.Context) (string, error) {
	l, err := n.Read(ctx)
	return l.Annotations[n.Key], err
}

// Await is [LeaseNote.Load], again and again until it succeeds, the right to it is missing, or ctx ends.
func (n LeaseNote) Await(ctx context.Context, log logging.Logger) (text string, err error) {
	var failing logging.Failure[bool]
	load := func(ctx context.Context) (done bool, _ error) {
		if text, err = n.Load(ctx); failing.Changed(err != nil, err) && err != nil && ctx.Err() == nil {
			log.Errorf("waiting: %v", err)
		}
		return err == nil || apierrors.IsForbidden(err), nil
	}
	if stopped := wait.PollUntilContextCancel(ctx, time.Second, true, load); stopped != nil {
		return "", stopped
	}
	return text, err
}

// Save replaces the text; "" removes the annotation. If another writes the Lease meanwhile, that is a conflict: try
// again. The election's own writes take the annotation along, and it reads the Lease again when it meets a conflict.
func (n LeaseNote) Save(ctx context.Context, text string) error {
	l, err := n.Read(ctx)
	if err != nil || l.Annotations[n.Key] == text {
		return err
	}
	if text == "" {
		delete(l.Annotations, n.Key)
	} else {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, n.Key, text)
	}
	return n.Write(ctx, l)
}

// Write creates a Lease that [LeaseNote.Read] did not find, or updates the one that it found.
func (n LeaseNote) Write(ctx context.Context, l *coordinationv1.Lease) error {
	if l.ResourceVersion == "" {
		return n.Cluster.Client().Create(ctx, l, wellknown.ManagerController)
	}
	return n.Cluster.Client().Update(ctx, l, wellknown.ManagerController)
}

// Read returns the Lease, without a version if it does not exist.
func (n LeaseNote) Read(ctx context.Context) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	err := n.Cluster.Client().Get(ctx, l, n.Namespace, n.Lease)
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Lease}}, nil
	}
	return l, err
}
