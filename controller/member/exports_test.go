package member

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

// docs/spec/controller.md 3.2: deleted exports end, one or all; those deleted with their CRD go on.
func TestKeptExports(t *testing.T) {
	const many = 20
	begin := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	export := func(i int) *mcsv1beta1.ServiceExport {
		return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("s%02d", i), CreationTimestamp: metav1.NewTime(begin),
		}}
	}
	crd := func(created time.Time, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(mcscrd.ServiceExportCRD, &u.Object); err != nil {
			t.Fatal(err)
		}
		u.SetCreationTimestamp(metav1.NewTime(created))
		change(u)
		return u
	}
	same := func(*unstructured.Unstructured) {}
	terminating := func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: begin}) }
	notServed := func(u *unstructured.Unstructured) { delete(u.Object["spec"].(map[string]any), "versions") }
	for _, tt := range []struct {
		name       string
		definition *unstructured.Unstructured
		err        error
		ended      int
		kept       bool // the others go on for good
	}{
		{"deleted one by one", crd(begin.Add(-time.Hour), same), nil, many, false},
		{"created with the CRD", crd(begin, same), nil, many, false},
		{"another CRD", crd(begin.Add(time.Second), same), nil, 0, true},
		{"no CRD", nil, errors.New("not found"), 0, false},
		{"the CRD is about to go", crd(begin.Add(-time.Hour), terminating), nil, 0, false},
		{"no version", crd(begin.Add(-time.Hour), notServed), nil, 0, false},
	} {
		var log logtest.Recorder
		var ended []types.NamespacedName
		k := newKeptExports(&log, func(services []types.NamespacedName) { ended = append(ended, services...) })
		for i := range many + 1 {
			k.put(export(i))
		}
		for i := range many + 1 {
			k.deleted(export(i))
		}
		k.put(export(many)) // it is back before anything is decided
		if got := len(k.keys()); got != many+1 || len(ended) > 0 {
			t.Fatalf("%s: undecided: %d count, %v have ended; want all", tt.name, got, ended)
		}
		read := func() (*unstructured.Unstructured, error) { return tt.definition, tt.err }
		k.decide(read)
		k.decide(read)
		if got := len(k.keys()); got != many+1-tt.ended || len(ended) != tt.ended || k.waiting() != many-tt.ended {
			t.Errorf("%s: %d count, %d have ended, %d wait; want %d ended", tt.name, got, len(ended), k.waiting(), tt.ended)
		}
		if lines := strings.Count(log.String(), "stay exported"); (lines == 1) != (tt.ended == 0 && !tt.kept) {
			t.Errorf("%s: the log says why %d times:\n%s", tt.name, lines, &log)
		}
		k.decide(func() (*unstructured.Unstructured, error) { return crd(begin.Add(-time.Hour), same), nil })
		if kept := len(k.keys()) == many+1; kept != tt.kept {
			t.Errorf("%s, when the CRD is there: %d count, want all %t", tt.name, len(k.keys()), tt.kept)
		}
		// Deleting the Service ends a kept export. A new export is like any other.
		k.put(export(0))
		k.endKept(func(svc types.NamespacedName) bool { return svc.Name != "s01" })
		if got := k.keys(); slices.Contains(got, types.NamespacedName{Namespace: "shop", Name: "s01"}) ||
			k.get("shop/s00") == nil {
			t.Errorf("%s: %v count, want s00 but not s01", tt.name, got)
		}
	}
}

// The next read decides on an export that is created and deleted again during a read. Once ended, it is not restored
// from the broker.
func TestExportEndsByALaterRead(t *testing.T) {
	k := newKeptExports(nil, func([]types.NamespacedName) {})
	created := metav1.NewTime(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	exp := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db",
		CreationTimestamp: created}}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(mcscrd.ServiceExportCRD, &definition.Object); err != nil {
		t.Fatal(err)
	}
	definition.SetCreationTimestamp(created)
	k.put(exp)
	k.deleted(exp)
	k.decide(func() (*unstructured.Unstructured, error) {
		k.put(exp.DeepCopy())
		k.deleted(exp.DeepCopy())
		return definition, nil
	})
	if k.get("shop/db") == nil || k.waiting() != 1 {
		t.Errorf("deleted again during the read: %d wait, want that export", k.waiting())
	}
	before := created.Add(-time.Hour)
	if !k.goesOn("shop/db", before) || !k.known() {
		t.Errorf("before the end: it goes on %t, known %t, want both", k.goesOn("shop/db", before), k.known())
	}
	k.decide(func() (*unstructured.Unstructured, error) { return definition, nil })
	if k.goesOn("shop/db", before) || k.get("shop/db") != nil {
		t.Error("after the end: the export counts as lost with an earlier CRD")
	}
}

// docs/spec/controller.md 3.2: exports of an earlier process go on until the CRD is read, and then those that are older
// than it. The handler is called once.
func TestExportsOfAnEarlierProcess(t *testing.T) {
	var notified int
	k := newKeptExports(nil, func([]types.NamespacedName) { notified++ })
	created := metav1.NewTime(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(mcscrd.ServiceExportCRD, &definition.Object); err != nil {
		t.Fatal(err)
	}
	definition.SetCreationTimestamp(created)
	for _, step := range []struct {
		name                string
		definition          *unstructured.Unstructured
		err                 error
		known, older, newer bool // older and newer exports go on
		notified            int
	}{
		{"no CRD", nil, errors.New("not found"), false, true, true, 0},
		{"a CRD", definition, nil, true, true, false, 1},
		{"once more", definition, nil, true, true, false, 1},
	} {
		k.decide(func() (*unstructured.Unstructured, error) { return step.definition, step.err })
		older, newer := k.goesOn("shop/db", created.Add(-time.Second)), k.goesOn("shop/db", created.Time)
		if k.known() != step.known || older != step.older || newer != step.newer || notified != step.notified {
			t.Errorf("%s: known %t, an older export goes on %t, a newer one %t, notified %d times; want %+v", step.name,
				k.known(), older, newer, notified, step)
		}
	}
}

// The informer is asked before the export is back, and its end is decided after that: it counted all the time.
func TestExportIsBack(t *testing.T) {
	k := newKeptExports(nil, func([]types.NamespacedName) {})
	exp := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	k.put(exp)
	k.deleted(exp)
	lacks := func(string) *mcsv1beta1.ServiceExport {
		delete(k.byKey, "shop/db")
		return nil
	}
	if k.orFormer("shop/db", lacks) == nil {
		t.Error("an export that counted until it was back does not count")
	}
}
