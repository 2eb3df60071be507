package admin

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// GatherOptions are the options of [Gather]. Start from [GatherDefaults].
type GatherOptions struct {
	Namespace    string        // of the controller in each member
	DNSNamespace string        // of the DNS server of each member
	Timeout      time.Duration // of each request
	Since        time.Duration // age of the oldest log lines
	LogLines     int64         // of each container, the newest
	Version      string        // of this program
	Now          func() time.Time
	Progress     func(string) // called with one phrase for each cluster; may be nil
}

// GatherDefaults returns the default options.
func GatherDefaults() GatherOptions {
	return GatherOptions{
		Namespace: wellknown.ControllerNamespace, DNSNamespace: metav1.NamespaceSystem,
		Timeout: 20 * time.Second, Since: 24 * time.Hour, LogLines: 100_000, Now: time.Now,
	}
}

// A GatherCluster is an API server to read.
type GatherCluster struct {
	Name   string // of the folder in the archive
	Role   read.Role
	Config *rest.Config
}

// A GatherIndex describes an archive. It is its first file, index.json.
type GatherIndex struct {
	Version  string           `json:"version"` // of the program that has made the archive
	Time     time.Time        `json:"time"`
	Clusters []GatheredServer `json:"clusters"`
}

// Missing returns what could not be had, with the name of the cluster.
func (i GatherIndex) Missing() (all []string) {
	for _, c := range i.Clusters {
		for _, m := range c.Missing {
			all = append(all, c.Name+": "+m)
		}
	}
	return all
}

// Files returns how many files of clusters the archive has.
func (i GatherIndex) Files() (n int) {
	for _, c := range i.Clusters {
		n += c.Files
	}
	return n
}

// A GatheredServer is the part of an archive about a cluster.
type GatheredServer struct {
	Name       string    `json:"name"`
	Role       read.Role `json:"role"`
	Kubernetes string    `json:"kubernetes,omitempty"` // version; empty if the API server did not answer
	Files      int       `json:"files"`
	Missing    []string  `json:"missing"` // what could not be had, and why
}
