package cause

import (
	"fmt"

	"github.com/clusterset-dns/clusterset/api/reason"
)

// Mark is the result of one step.
type Mark string

// The marks.
const (
	OK      Mark = "ok"
	Wrong   Mark = "wrong"   // the cause
	Warning Mark = "warning" // wrong, and not the cause by itself
	Unknown Mark = "unknown" // it could not be read
	Skipped Mark = "skipped" // not looked at: why
)

// Step is one step of the chain.
type Step struct {
	Name     string      `json:"name"`
	Mark     Mark        `json:"mark"`
	Code     reason.Code `json:"code,omitempty"` // with Wrong and Warning
	Evidence string      `json:"evidence"`       // one line
	answers  bool        // the name has an address, even if the step is wrong
}

// chain is what the checks add to.
type chain struct{ steps []Step }

func (c *chain) add(s Step, format string, args ...any) {
	s.Evidence = fmt.Sprintf(format, args...)
	c.steps = append(c.steps, s)
}

func (c *chain) ok(name, format string, args ...any) {
	c.add(Step{Name: name, Mark: OK}, format, args...)
}

// wrong adds a fault that explains by itself that there is no answer.
func (c *chain) wrong(name string, code reason.Code, format string, args ...any) {
	c.add(Step{Name: name, Mark: Wrong, Code: code}, format, args...)
}

// fault adds a fault. With partial, something else has to be wrong if there is no answer.
func (c *chain) fault(partial bool, name string, code reason.Code, format string, args ...any) {
	s := Step{Name: name, Mark: Wrong, Code: code}
	if partial {
		s.Mark = Warning
	}
	c.add(s, format, args...)
}

func (c *chain) unknown(name, why string) { c.add(Step{Name: name, Mark: Unknown}, "%s", why) }

func (c *chain) skip(name, why string) { c.add(Step{Name: name, Mark: Skipped}, "%s", why) }

// hasCause reports whether a cause was found.
func (c *chain) hasCause() bool { return c.first(Wrong) >= 0 }

// first returns the position of the first step with a mark, -1 if no step has it.
func (c *chain) first(m Mark) int {
	for i := range c.steps {
		if c.steps[i].Mark == m {
			return i
		}
	}
	return -1
}
