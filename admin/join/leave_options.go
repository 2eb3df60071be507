package join

import (
	"time"

	"github.com/clusterset-dns/clusterset/admin/write"
)

// LeaveOptions are the options of [Leave] and [Remove].
type LeaveOptions struct {
	write.Options

	Namespace string // of the controller in the member; [Remove] does not use it
	Prefix    string // of the broker namespace, used only if the Member no longer exists; "" is [DefaultPrefix]
	TakeOver  bool   // [Leave] removes the member although another cluster may renew its heartbeat
	// Force lets [Leave] clean up the member alone if the broker does not answer or is another one, and lets [Remove]
	// remove a member that renewed its heartbeat less than a minute ago.
	Force bool
	Now   func() time.Time // [time.Now] if nil
}

// now returns the time.
func (o LeaveOptions) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// LeaveResult is the result of [Leave] and [Remove].
type LeaveResult struct {
	ClusterID string   `json:"clusterID,omitempty"`
	Namespace string   `json:"namespace,omitempty"` // on the broker
	Warnings  []string `json:"warnings,omitempty"`  // what was not removed, and what to do about it
}
