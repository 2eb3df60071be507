package gather

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// Options are the options of [Run]. Start from [Defaults].
type Options struct {
	Namespace    string        // of the controller in each member
	DNSNamespace string        // of the DNS server of each member
	Timeout      time.Duration // of each request
	Since        time.Duration // age of the oldest log lines
	LogLines     int64         // of each container, the newest
	Version      string        // of this program
	Progress     func(string)  // called with one phrase for each part of a cluster
}

// Defaults returns the default options.
func Defaults() Options {
	return Options{
		Namespace: wellknown.ControllerNamespace, DNSNamespace: metav1.NamespaceSystem,
		Timeout: 20 * time.Second, Since: 24 * time.Hour, LogLines: 100_000, Progress: func(string) {},
	}
}

// A Cluster is an API server to read.
type Cluster struct {
	Name   string // of the folder in the archive
	Role   read.Role
	Config *rest.Config
	// Limited means that the configuration is the credential of a member: it may read a part of the broker.
	Limited bool
}

// A Index describes an archive. It is its first file, index.json.
type Index struct {
	Version  string    `json:"version"` // of the program that has made the archive
	Time     time.Time `json:"time"`
	Clusters []Server  `json:"clusters"`
}

// Missing returns a line for each failed read, and LeftOut one for each that the credential does not allow. Each begins
// with the name of the cluster.
func (i Index) Missing() []string { return i.lines(func(s *Server) []string { return s.Missing }) }

// LeftOut is described at [Index.Missing].
func (i Index) LeftOut() []string { return i.lines(func(s *Server) []string { return s.LeftOut }) }

func (i Index) lines(of func(*Server) []string) (all []string) {
	for k := range i.Clusters {
		for _, line := range of(&i.Clusters[k]) {
			all = append(all, i.Clusters[k].Name+": "+line)
		}
	}
	return all
}

// Files returns how many files of clusters the archive has.
func (i Index) Files() (n int) {
	for _, c := range i.Clusters {
		n += c.Files
	}
	return n
}

// A Server is the part of an archive about a cluster.
type Server struct {
	Name       string    `json:"name"`
	Role       read.Role `json:"role"`
	Kubernetes string    `json:"kubernetes,omitempty"` // version; empty if the API server did not answer
	Files      int       `json:"files"`
	Missing    []string  `json:"missing"`           // failed reads, with the error
	LeftOut    []string  `json:"leftOut,omitempty"` // reads that the credential of a member does not allow
}
