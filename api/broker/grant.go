package broker

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// The annotations of a broker namespace that bound the tokens of its member. Members cannot write them; the admission
// policy of the broker enforces them (docs/spec/controller.md 2.4).
const (
	AnnotationCredentialLife = GroupName + "/credential-life" // as time.Duration prints it
	AnnotationAudiences      = GroupName + "/token-audiences" // joined by commas
)

// DefaultCredentialLife is how long a token lives if the join did not say otherwise.
const DefaultCredentialLife = 7 * 24 * time.Hour

// A Grant bounds the tokens that a member may request for itself.
type Grant struct {
	Life      time.Duration // at most; 0 if the broker namespace does not say
	Audiences []string      // nil if the broker namespace does not say
}

// GrantOf reads the annotations of a broker namespace. Missing and invalid values are zero.
func GrantOf(annotations map[string]string) Grant {
	var g Grant
	if life, err := time.ParseDuration(annotations[AnnotationCredentialLife]); err == nil {
		g.Life = max(life, 0)
	}
	if list := annotations[AnnotationAudiences]; list != "" {
		g.Audiences = strings.Split(list, ",")
	}
	return g
}

// Annotations is the inverse of [GrantOf].
func (g Grant) Annotations() map[string]string {
	a := make(map[string]string)
	if g.Life > 0 {
		a[AnnotationCredentialLife] = g.Life.String()
	}
	if len(g.Audiences) > 0 {
		a[AnnotationAudiences] = strings.Join(slices.Sorted(slices.Values(g.Audiences)), ",")
	}
	return a
}

// Request is the life to ask for in place of a token that had one: that of the grant. A namespace of an old join has no
// grant; the policy then allows the default.
func (g Grant) Request(had time.Duration) time.Duration {
	if g.Life > 0 {
		return g.Life
	}
	return min(had, DefaultCredentialLife)
}

// Lasts is how long a token of this grant may be valid after the last one was issued. A namespace without a grant may
// have one of the default life.
func (g Grant) Lasts() time.Duration { return cmp.Or(g.Life, DefaultCredentialLife) }
