package cause

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/reason"
)

// Report is the result. The JSON form is stable: fields are only added.
type Report struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Verdict  Verdict  `json:"verdict"`
	Expected []string `json:"expected,omitempty"` // values of the records that the objects of the cluster have
	Chain    []Step   `json:"chain"`
}

// Verdict is the cause, or [reason.Resolves].
type Verdict struct {
	Code     reason.Code `json:"code"`
	Sentence string      `json:"sentence"`
	Remedy   string      `json:"remedy"`
	Resolves bool        `json:"resolves"` // the name has an answer in spite of the cause, as far as that could be seen
}

// Found reports whether a cause was found.
func (v Verdict) Found() bool { return v.Code != reason.Resolves && v.Known() }

// Known reports whether the cause could be found.
func (v Verdict) Known() bool {
	return v.Code != reason.NotReadable && v.Code != reason.Unexplained && v.Code != reason.APIUnreachable &&
		v.Code != reason.APIRejectsUser
}

// checks are the steps below the name, in the order of a change on its way to an answer.
var checks = []func(*walk){
	checkKinds, checkNamespace, checkMembership, checkController, checkBroker, checkFrozen, checkOwnExport, checkRecords,
	checkConflicts, checkHeartbeats,
	checkImport, checkEndpoints, checkSelection, checkQuestion, checkServers, checkReplicas, checkResolvers, checkPods,
}

// Find walks the chain.
func Find(in Input) Report {
	in.Zone = strings.ToLower(strings.Trim(in.Zone, "."))
	t, bad := parse(in.Name, in.Zone)
	if bad == nil {
		bad = t.CheckType(in.Type)
	}
	w := newWalk(&in, t)
	const name = "name"
	switch {
	case bad != nil:
		w.wrong(name, bad.Code, "%s", bad.Text)
	case t.Service == "":
		w.ok(name, "it stands above the services of the zone")
		checkServers(w)
		checkReplicas(w)
		checkResolvers(w)
	default:
		w.ok(name, "service %s in namespace %s of zone %s", t.Service, t.Namespace, in.Zone)
		for _, check := range checks {
			check(w)
		}
	}
	r := Report{Name: strings.TrimSuffix(in.Name, "."), Type: dns.TypeToString[in.Type], Expected: w.expected.values}
	r.Verdict = w.verdict()
	r.Chain = w.shownSteps()
	return r
}

func (w *walk) verdict() Verdict {
	at := w.first(Wrong)
	resolves := at < 0 && (w.hasAnswer() || w.serversAgree())
	if at < 0 {
		at = w.first(Warning)
	}
	switch unread := w.first(Unknown); {
	case at >= 0:
		s := w.steps[at]
		e := reason.Describe(s.Code)
		return Verdict{Code: s.Code, Sentence: capitalized(e.Meaning) + ": " + s.Evidence + ".", Remedy: e.Remedy,
			Resolves: resolves}
	case resolves:
		return Verdict{Code: reason.Resolves, Sentence: "The name resolves as it should.",
			Remedy: reason.Describe(reason.Resolves).Remedy, Resolves: true}
	case unread >= 0:
		return Verdict{Code: reason.NotReadable, Sentence: capitalized(reason.Describe(reason.NotReadable).Meaning) + ": " +
			w.steps[unread].Evidence + ".", Remedy: reason.Describe(reason.NotReadable).Remedy}
	}
	return Verdict{Code: reason.Unexplained, Sentence: capitalized(reason.Describe(reason.Unexplained).Meaning) + ".",
		Remedy: reason.Describe(reason.Unexplained).Remedy}
}

// serversAgree reports whether servers gave answers that nothing speaks against.
func (w *walk) serversAgree() bool {
	for i := range w.in.Servers {
		s := &w.in.Servers[i]
		if w.serverFault(s).code != "" || w.target.Service != "" && len(s.UDP.Values)+len(s.TCP.Values) == 0 {
			return false
		}
	}
	return len(w.in.Servers) > 0 || w.target.Service == "" && !w.hasCause()
}

// shownSteps returns the chain up to the cause. Later steps follow from it, or may.
func (w *walk) shownSteps() []Step {
	at := w.first(Wrong)
	if at < 0 {
		return w.steps
	}
	shown := w.steps[:at+1]
	if later := len(w.steps) - at - 1; later > 0 {
		shown = append(shown, Step{Name: "the rest", Mark: Skipped, Evidence: fmt.Sprintf("%d steps after the cause", later)})
	}
	return shown
}

func capitalized(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
