// Package page renders the status page of the controller (docs/spec/operations.md 8). It is pure: what the controller
// knows in, HTML or JSON out.
//
//	Status  --Bound-->  Status, clean and short  --HTML-->  the page, with the map as SVG
//	                                             --JSON-->  the same for programs
//
// Much of a status was written by other members. Bound takes from each text what could disguise it and cuts it,
// html/template escapes it, and the page has neither scripts nor anything from elsewhere.
package page

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Status is the knowledge of one instance of the controller at a moment. Lists may be longer than the page shows.
type Status struct {
	At       time.Time `json:"at"`
	Instance string    `json:"instance"`
	Version  string    `json:"version,omitempty"`
	State    State     `json:"state"`

	// The rest is known to the leader alone.
	Cluster    string      `json:"cluster,omitempty"` // the id; "" if this cluster is not a member
	Broker     Link        `json:"broker"`
	DNS        *DNS        `json:"dns,omitempty"` // nil where this cluster has no Service of a DNS server of the clusterset
	Problems   []Problem   `json:"problems"`      // Bound fills it in
	Failed     []Service   `json:"failed"`        // with a failed export or import
	Counts     Counts      `json:"counts"`
	Frozen     []Freeze    `json:"frozen"`
	Members    []Member    `json:"members"`
	Conflicts  []Conflict  `json:"conflicts"`
	Selections []Selection `json:"selections"`
	Services   Services    `json:"services"`
}

// A State is what the instance does.
type State struct {
	Leads  bool      `json:"leads"`
	Detail string    `json:"detail"` // one sentence
	Since  time.Time `json:"since,omitzero"`
}

// A Link is the connection to the broker.
type Link struct {
	Connected  bool   `json:"connected"`
	Membership string `json:"membership"`
	Detail     string `json:"detail,omitempty"` // what is wrong

	CredentialExpires time.Time `json:"credentialExpires,omitzero"` // zero if it does not expire, or that is unknown
	CredentialEnds    bool      `json:"credentialEnds,omitempty"`   // soon: its renewal fails
}

// DNS is the Service of the DNS server of the clusterset in this cluster.
type DNS struct {
	Service string `json:"service"` // namespace/name
	Ready   int    `json:"ready"`   // endpoints
}

// A Problem is something that is not well.
type Problem struct {
	Text string `json:"text"`
	Run  string `json:"run"` // the command that explains or ends it
}

// Counts are of all that is known, however much of it is shown.
type Counts struct {
	Members    int `json:"members"`
	Expired    int `json:"expired"`
	Services   int `json:"services"`
	Exports    int `json:"exports"` // of this cluster
	Imports    int `json:"imports"`
	Failed     int `json:"failed"` // with a failed export or import
	Conflicts  int `json:"conflicts"`
	Selections int `json:"selections"`
}

// A Freeze is a freeze reason in force.
type Freeze struct {
	Reason   string    `json:"reason"`
	Code     string    `json:"code"` // of clusterset explain
	Detail   string    `json:"detail"`
	Suspends string    `json:"suspends"`
	Since    time.Time `json:"since"`
}

// A MemberState is the state in the heartbeat of a member.
type MemberState string

// The states of members.
const (
	Self        MemberState = "this cluster"
	Live        MemberState = "live"
	Expired     MemberState = "expired"
	NoHeartbeat MemberState = "no heartbeat"
)

// A Member is one cluster of the clusterset.
type Member struct {
	ID        string        `json:"id"`
	State     MemberState   `json:"state"`
	Since     time.Time     `json:"since,omitzero"`     // when it expired; zero if that was before this instance led
	Heartbeat time.Time     `json:"heartbeat,omitzero"` // when it was last seen to change
	TTL       time.Duration `json:"ttlNanoseconds,omitempty"`
	Version   string        `json:"version,omitempty"`
	Exports   int           `json:"exports"`  // services, on the broker
	Imported  int           `json:"imported"` // of these, in this cluster
	Offered   int           `json:"offered"`  // services of this cluster whose exports reach it
}

// A Conflict is a service with conflicting exports.
type Conflict struct {
	Service string `json:"service"`
	Reasons string `json:"reasons"`
	Detail  string `json:"detail"`
}

// A Selection is which clusters the traffic of a port goes to.
type Selection struct {
	Service  string    `json:"service"`
	Port     string    `json:"port"`
	Clusters []string  `json:"clusters"`
	Why      string    `json:"why"`
	Since    time.Time `json:"since,omitzero"` // zero if that was before this instance led
	Prefers  string    `json:"prefers"`        // the selectors
}

// Services are one page of the services.
type Services struct {
	Filter string    `json:"filter,omitempty"`
	Found  int       `json:"found"` // how many services match the filter
	Page   int       `json:"page"`  // from 1 on
	Pages  int       `json:"pages"`
	Rows   []Service `json:"rows"`
}

// A Service is one service that is exported or imported.
type Service struct {
	Name      string   `json:"name"` // namespace/name
	Type      string   `json:"type,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Exporters []string `json:"exporters"`
	Ready     int      `json:"readyEndpoints"`
	State     string   `json:"state"` // a word, or what is wrong
	OK        bool     `json:"ok"`
	Failed    bool     `json:"failed,omitempty"`
}

// How much is shown.
const (
	perPage       = 50
	maxFailed     = 10
	maxMembers    = 200
	maxConflicts  = 50
	maxSelections = 50
	maxNames      = 8 // of clusters and addresses in one row
	maxName       = 130
	maxText       = 600
	maxFilter     = 128
)

// A Query is what a request asks for.
type Query struct {
	Filter  string
	Page    int
	Refresh bool // load the page again every refreshSeconds
}

// ParseQuery reads the query of a URL. Unknown parameters are ignored.
func ParseQuery(v url.Values) Query {
	n, err := strconv.Atoi(v.Get("page"))
	if err != nil || n < 1 {
		n = 1
	}
	return Query{Filter: clean(strings.TrimSpace(v.Get("filter")), maxFilter), Page: n, Refresh: v.Get("refresh") == "on"}
}

// Path returns the address of a page of services, as q has it otherwise.
func (q Query) path(n int, refresh bool) string {
	v := url.Values{}
	if q.Filter != "" {
		v.Set("filter", q.Filter)
	}
	if n > 1 {
		v.Set("page", strconv.Itoa(n))
	}
	if refresh {
		v.Set("refresh", "on")
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// Select returns the services, "namespace/name" each and sorted, that a page shows, as Rows with a name alone.
func (q Query) Select(all []string) Services {
	s := Services{Filter: q.Filter, Rows: []Service{}}
	var found []string
	for _, name := range all {
		if strings.Contains(name, q.Filter) {
			found = append(found, name)
		}
	}
	s.Found = len(found)
	s.Pages = max(1, (len(found)+perPage-1)/perPage)
	s.Page = min(max(q.Page, 1), s.Pages)
	first := (s.Page - 1) * perPage
	for _, name := range found[first:min(first+perPage, len(found))] {
		s.Rows = append(s.Rows, Service{Name: name})
	}
	return s
}
