package member

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

var (
	earlier = metav1.NewTime(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	later   = metav1.NewTime(earlier.Add(time.Hour))
)

func condition(typ string, status metav1.ConditionStatus, reason string, at metav1.Time) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: "Because.", ObservedGeneration: 1,
		LastTransitionTime: at}
}

// docs/spec/controller.md 6: the time moves only with the status, and nothing is written that is there.
func TestNextConditions(t *testing.T) {
	valid := condition("Valid", metav1.ConditionTrue, "Valid", earlier)
	ready := condition("Ready", metav1.ConditionFalse, "Failed", earlier)
	set := func(c metav1.Condition, f func(*metav1.Condition)) metav1.Condition {
		c.LastTransitionTime = metav1.Time{}
		f(&c)
		return c
	}
	for _, tt := range []struct {
		name     string
		existing []metav1.Condition
		owned    []string
		want     metav1.Condition
		at       metav1.Time
		differ   bool
	}{
		{name: "new", want: set(valid, func(*metav1.Condition) {}), at: later, differ: true},
		{name: "the same", existing: []metav1.Condition{ready, valid}, want: set(valid, func(*metav1.Condition) {}),
			at: earlier},
		{name: "another status", existing: []metav1.Condition{valid}, at: later, differ: true,
			want: set(valid, func(c *metav1.Condition) { c.Status = metav1.ConditionFalse })},
		{name: "another reason", existing: []metav1.Condition{valid}, at: earlier, differ: true,
			want: set(valid, func(c *metav1.Condition) { c.Reason = "Other" })},
		{name: "another message", existing: []metav1.Condition{valid}, at: earlier, differ: true,
			want: set(valid, func(c *metav1.Condition) { c.Message = "Therefore." })},
		{name: "another generation", existing: []metav1.Condition{valid}, at: earlier, differ: true,
			want: set(valid, func(c *metav1.Condition) { c.ObservedGeneration = 2 })},
		{name: "one of ours is no longer wanted", existing: []metav1.Condition{valid, ready},
			owned: []string{"Ready", "Valid"},
			want:  set(valid, func(*metav1.Condition) {}), at: earlier, differ: true},
		{name: "one of ours went by itself", existing: []metav1.Condition{valid}, owned: []string{"Ready", "Valid"},
			want: set(valid, func(*metav1.Condition) {}), at: earlier},
	} {
		next := nextConditions(tt.existing, []metav1.Condition{tt.want}, later)
		if !next[0].LastTransitionTime.Equal(&tt.at) || !tt.want.LastTransitionTime.IsZero() {
			t.Errorf("%s: time = %s, want %s", tt.name, next[0].LastTransitionTime, tt.at)
		}
		if got := conditionsDiffer(tt.existing, tt.owned, next); got != tt.differ {
			t.Errorf("%s: differ = %t, want %t", tt.name, got, tt.differ)
		}
	}
	long := nextConditions(nil, []metav1.Condition{{Type: "Ready", Message: strings.Repeat("ü", maxMessage)}}, later)
	if n := len(long[0].Message); n > maxMessage || n < maxMessage-4 || !strings.HasSuffix(long[0].Message, "ü...") {
		t.Errorf("message of %d octets, want at most %d, cut behind a character", n, maxMessage)
	}
	const code = " [export-rejected]"
	long = nextConditions(nil, []metav1.Condition{{Type: "Ready", Message: strings.Repeat("ü", maxMessage) + code}}, later)
	if n := len(long[0].Message); n > maxMessage || !strings.HasSuffix(long[0].Message, "ü..."+code) {
		t.Errorf("message of %d octets, want at most %d, and the code", n, maxMessage)
	}
}

func TestOwnedConditions(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: "status",
			FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	const ours = `{"f:status":{"f:conditions":{"k:{\"type\":\"Valid\"}":{".":{},"f:status":{}},"k:{\"type\":\"Exported\"}":{}}}}`
	const theirs = `{"f:status":{"f:conditions":{"k:{\"type\":\"Conflict\"}":{".":{}}}}}`
	entries := []metav1.ManagedFieldsEntry{
		entry("us", apply, ours), entry("them", apply, theirs), entry("us", update, theirs), entry("us", apply, "{"),
		{Manager: "us", Operation: apply},
	}
	if got, want := ownedConditions(entries, "us"), []string{"Exported", "Valid"}; !slices.Equal(got, want) {
		t.Errorf("owned = %q, want %q", got, want)
	}
}

// A condition of ours of which another author owns a part stays: without our part it would be invalid.
func TestSharedConditions(t *testing.T) {
	const all = `".":{},"f:type":{},"f:status":{},"f:reason":{},"f:message":{},"f:lastTransitionTime":{}`
	valid := condition("Valid", metav1.ConditionTrue, "Valid", earlier)
	for name, tt := range map[string]struct {
		theirs string // what others own of it
		want   []metav1.Condition
		shared bool
	}{
		"others own all":          {theirs: all},
		"others own the key":      {theirs: `".":{},"f:type":{}`, shared: true},
		"others own a value":      {theirs: `"f:status":{}`, shared: true},
		"others own only an item": {shared: true},
		"it is wanted":            {theirs: `"f:status":{}`, want: []metav1.Condition{valid}},
	} {
		owner := func(manager, fields string) metav1.ManagedFieldsEntry {
			return metav1.ManagedFieldsEntry{
				Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: "status",
				FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Valid\"}":{` + fields + `}}}}`),
			}
		}
		exp := &mcsv1beta1.ServiceExport{}
		exp.Status.Conditions = []metav1.Condition{valid}
		exp.ManagedFields = []metav1.ManagedFieldsEntry{owner("us", all), owner("them", tt.theirs)}
		if got := sharedConditions(exp, "us", []string{"Valid"}, tt.want); (len(got) == 1 && got[0] == valid) != tt.shared ||
			len(got) > 1 {
			t.Errorf("%s: shared = %v, want %t", name, got, tt.shared)
		}
		exp.ManagedFields = exp.ManagedFields[:1]
		if got := sharedConditions(exp, "us", []string{"Valid"}, tt.want); got != nil {
			t.Errorf("%s: without others %v is shared, want nothing", name, got)
		}
	}
}

// docs/spec/controller.md 6.4: a change is written at once, what someone else overwrites ever more rarely.
func TestOverwritten(t *testing.T) {
	o := &Overwritten{}
	now := later.Time
	var waits []time.Duration
	for n := range 14 {
		wait := o.Wait("key", "ours", now)
		waits = append(waits, wait)
		now = now.Add(wait)
		if report := o.Wrote("key", "ours", now); report != (n == reportedOverwrites) {
			t.Errorf("write %d: reported = %t", n, report)
		}
	}
	want := []time.Duration{0}
	for n := range 12 {
		want = append(want, time.Second<<n)
	}
	if want = append(want, time.Hour); !slices.Equal(waits, want) {
		t.Errorf("waits = %v, want %v", waits, want)
	}
	if wait := o.Wait("key", "ours", now.Add(time.Hour)); wait != 0 {
		t.Errorf("after the wait: %s more, want none", wait)
	}
	if wait := o.Wait("key", "other", now); wait != 0 {
		t.Errorf("a change of ours waits %s, want none", wait)
	}
	if wait := o.Wait("another", "ours", now); wait != 0 {
		t.Errorf("another export waits %s, want none", wait)
	}
	o.Wrote("key", "other", now)
	if wait := o.Wait("key", "other", now); wait != time.Second {
		t.Errorf("after a change of ours the wait is %s, want the first", wait)
	}
	o.Forget("key")
	if wait := o.Wait("key", "other", now); wait != 0 {
		t.Errorf("what is forgotten waits %s, want none", wait)
	}
	again := &mcsv1beta1.ServiceExport{}
	again.UID = "2"
	conditions := []metav1.Condition{condition("Valid", metav1.ConditionTrue, "Valid", earlier)}
	if fingerprint(&mcsv1beta1.ServiceExport{}, conditions, nil) == fingerprint(again, conditions, nil) {
		t.Error("an export that was created again counts as overwritten")
	}
}

// A write that others steer happens a few times at once, whatever its value, and then once in an interval.
func TestWaitChange(t *testing.T) {
	var o Overwritten
	now := time.Now()
	write := func(asked string) time.Duration {
		wait := o.WaitChange("list", now)
		if wait == 0 {
			o.Wrote("list", asked, now)
		}
		return wait
	}
	for i := range changesAtOnce {
		if wait := write(fmt.Sprint(i % 2)); wait > 0 {
			t.Errorf("change %d waits %s, want none of the first to wait", i, wait)
		}
	}
	if wait := write("next"); wait != changeInterval {
		t.Errorf("the next one waits %s, want %s", wait, changeInterval)
	}
	if wait := o.WaitChange("another", now); wait > 0 {
		t.Errorf("another list waits %s, want none", wait)
	}
	now = now.Add(changeInterval)
	if wait := write("next"); wait > 0 {
		t.Errorf("after %s it waits %s more", changeInterval, wait)
	}
	if wait := write("last"); wait != changeInterval {
		t.Errorf("the one after it waits %s, want %s", wait, changeInterval)
	}
	o.Forget("list")
	if wait := write("of a new export"); wait > 0 {
		t.Errorf("of a new export it waits %s, want nothing", wait)
	}
}

func TestOtherWriters(t *testing.T) {
	const condition = `{"f:status":{"f:conditions":{"k:{\"type\":\"Valid\"}":{}}}}`
	exp := &mcsv1beta1.ServiceExport{}
	for _, e := range [][2]string{
		{"clusterset-exporter", condition}, {"lighthouse", condition}, {"lighthouse", condition}, {"agent", condition},
		{"kubectl", `{"f:spec":{}}`}, {"odd", "{"},
	} {
		exp.ManagedFields = append(exp.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: e[0], Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status",
			FieldsV1: metav1.NewFieldsV1(e[1]),
		})
	}
	trimmed, err := trim(exp)
	if got := OtherWriters(trimmed.(*mcsv1beta1.ServiceExport)); err != nil ||
		!slices.Equal(got, []string{"agent", "lighthouse"}) {
		t.Errorf("writers = %q, %v, want the two that wrote conditions", got, err)
	}
}
