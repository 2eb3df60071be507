package resolver

// Policy is which clusters answer for a ClusterSetIP service without addresses in spec.ips (docs/spec/dns.md 3.2).
type Policy uint8

// The policies; the zero value is the default.
const (
	LocalFirst Policy = iota // the local cluster if it has ready addresses, else as RoundRobin
	RoundRobin               // one cluster for each client and second, in rotation
	All                      // every cluster
	NoCluster                // the service has no address
)

// Options are the settings of a zone that shape its answers.
type Options struct {
	ClusterNames bool // the names <cluster id>.<service> own records
	Policy       Policy
	LocalCluster string // id of the local cluster, "" if unknown
	MaxAnswers   int    // most A, AAAA or SRV records in an answer; 0 for no cap
	MaxName      int    // most octets of a relative name, so that the owner name has at most 253; 0 for no limit
	Limit        int    // the position of this limit in index.Options.MaxNames
}

// A Question is one query.
type Question struct {
	Name string // relative to the zone, lower case
	Type uint16

	Rotation uint64 // another number for each query: the order of the records
	// ClientRotation is the same for all types of a name that a client asks for at a time; it moves by one each second,
	// and differs by client. It selects the cluster that answers, and the part that is shown of a capped answer.
	ClientRotation uint64

	// Union asks for the records of all clusters that answer in rotation, without the cap: for a zone transfer.
	Union bool
}
