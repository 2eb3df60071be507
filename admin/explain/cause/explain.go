package cause

import (
	"fmt"
	"slices"
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
	partly   bool        // the name resolves, and not all was read and asked
	wrong    bool        // the cause is no warning
}

// Problem reports whether the name does not resolve, or connections to its address fail.
func (v Verdict) Problem() bool { return v.Found() && (v.wrong || !v.Resolves) }

// Found reports whether a cause was found, if only for a warning.
func (v Verdict) Found() bool { return v.Code != reason.Resolves && (v.partly || v.Known()) }

// Known reports whether all was read that the verdict rests on.
func (v Verdict) Known() bool {
	return !v.partly && v.Code != reason.NotReadable && v.Code != reason.ObjectsOK && v.Code != reason.APIUnreachable &&
		v.Code != reason.APIRejectsUser
}

// checks are the steps below the name, in the order of a change on its way to an answer.
var checks = []func(*walk){
	checkKinds, checkNamespace, checkMembership, ours("controller", checkController), ours("broker", checkBroker),
	checkFrozen, ours("export here", checkOwnExport), ours("exports", checkRecords), checkConflicts,
	ours("heartbeats", checkHeartbeats), checkImport, checkEndpoints, checkSelection, checkQuestion, checkServing,
	checkResolvers, checkCluster, checkPods,
}

// ours skips a check where another implementation has made the import.
func ours(name string, check func(w *walk, name string)) func(*walk) {
	return func(w *walk) {
		if w.isForeign() {
			w.skip(name, "the import is not ours")
			return
		}
		check(w, name)
	}
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
		checkServing(w)
		checkResolvers(w)
		checkCluster(w)
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

// verdict never overrules a step that is wrong or unknown: only answers of all servers that were asked prove that a
// name resolves.
func (w *walk) verdict() Verdict {
	at := w.first(Wrong)
	answers := !slices.ContainsFunc(w.steps, func(s Step) bool { return s.Mark == Wrong && !s.answers })
	answered := answers && w.asked() && (w.target.Service == "" || w.hasReplies())
	if at < 0 {
		at = w.first(Warning)
	}
	switch unread := w.first(Unknown); {
	case at >= 0:
		v := verdictOf(w.steps[at].Code, w.steps[at].Evidence)
		v.Resolves = answered || !w.asked() && answers && w.hasAnswer()
		v.partly, v.wrong = v.Resolves && (unread >= 0 || !answered), w.steps[at].Mark == Wrong
		return v
	case unread >= 0:
		v := verdictOf(reason.NotReadable, w.steps[unread].Evidence)
		v.Resolves = answered
		return v
	case answered:
		v := verdictOf(reason.Resolves, "")
		v.Sentence, v.Resolves = "The name resolves as it should.", true
		return v
	case !w.asked() && (w.hasAnswer() || w.target.Service == ""):
		return verdictOf(reason.ObjectsOK, w.unasked())
	}
	return verdictOf(reason.Unexplained, "")
}

func verdictOf(code reason.Code, evidence string) Verdict {
	e := reason.Describe(code)
	v := Verdict{Code: code, Sentence: capitalized(e.Meaning) + ".", Remedy: e.Remedy}
	if evidence != "" {
		v.Sentence = capitalized(e.Meaning) + ": " + strings.TrimSuffix(evidence, ".") + "."
	}
	return v
}

// hasReplies reports whether servers replied with records. Without a fault, all of them did that replied at all.
func (w *walk) hasReplies() bool {
	return slices.ContainsFunc(w.in.Servers, func(s Server) bool { return len(s.UDP.Values)+len(s.TCP.Values) > 0 })
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
