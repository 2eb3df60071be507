package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/api/reason"
)

// order is that of the layers on the way: what fails first is the cause.
var order = []Step{Pods, Export, Import, DNS, TCP, UDP, Withdrawal, NameGone}

// Judge names the first step that failed in any pair, and where it failed. A step that fails only from one member, or
// only to one, points at that member.
func Judge(checks []Check) Verdict {
	worked, skipped := 0, ""
	for _, c := range checks {
		switch c.Mark {
		case OK:
			worked++
		case Skipped:
			skipped = c.Evidence
		}
	}
	text := fmt.Sprintf("%d checks of %d pairs of members worked", worked, pairs(checks))
	for _, step := range order {
		var failed []Check
		for _, c := range checks {
			if c.Step == step && c.Mark == Failed {
				failed = append(failed, c)
			}
		}
		if len(failed) > 0 {
			return fault(failed, pairs(checks))
		}
	}
	e := reason.Describe(reason.Verified)
	if skipped != "" {
		e = reason.Describe(reason.Unverified)
		text = fmt.Sprintf("%s (%s): %s", e.Meaning, text, skipped)
	}
	return Verdict{Code: e.Code, Sentence: sentence(text), Remedy: e.Remedy}
}

func fault(failed []Check, of int) Verdict {
	first := failed[0]
	e := reason.Describe(first.Code)
	v := Verdict{Code: first.Code, Layer: layers[first.Step], From: first.From, To: first.To, Remedy: e.Remedy}
	for _, c := range failed {
		if c.From != v.From {
			v.From = ""
		}
		if c.To != v.To {
			v.To = ""
		}
	}
	where := fmt.Sprintf("%d of %d pairs of members", pairs(failed), of)
	switch {
	case v.From != "" && v.To != "":
		where = fmt.Sprintf("only from %s to %s", v.From, v.To)
	case v.From != "":
		where += ", all from " + v.From
	case v.To != "":
		where += ", all to " + v.To
	}
	v.Sentence = fmt.Sprintf("%s (%s): %s", strings.TrimSuffix(sentence(e.Meaning), "."), where, sentence(first.Evidence))
	return v
}

func pairs(checks []Check) int {
	var all [][2]string
	for _, c := range checks {
		if p := [2]string{c.From, c.To}; !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return len(all)
}

// sentence ends a phrase. It begins with a capital letter if the phrase begins with an ASCII letter.
func sentence(phrase string) string {
	if phrase == "" {
		return ""
	}
	return strings.ToUpper(phrase[:1]) + strings.TrimSuffix(phrase[1:], ".") + "."
}
