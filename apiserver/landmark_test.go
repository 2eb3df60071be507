package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// docs/spec/dns.md 6.5: what follows from the newest event, of version 10, as the server has it after an interruption.
func TestLandmark(t *testing.T) {
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	object := func(uid types.UID, version string, at time.Time) []metav1.PartialObjectMetadata {
		fields := []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: at}}}
		return []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: uid, ResourceVersion: version, ManagedFields: fields,
		}}}
	}
	// By version, "" is now: an error, or the objects that are there. "version" is that of the list, 12 without it.
	type answers map[string]any
	var none []metav1.PartialObjectMetadata
	seen, old, later := object("uid", "10", written), object("uid", "9", written.Add(-time.Hour)),
		object("uid", "12", written)
	compacted, services := apierrors.NewResourceExpired("compacted"), schema.GroupResource{Resource: "services"}
	ahead := apierrors.NewTimeoutError("", 0)
	ahead.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	ahead.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for _, tt := range []struct {
		name    string
		deleted bool
		server  answers
		want    string // nothing, "rolled back", "listed anew" or "asked again"
	}{
		{"not written since", false, answers{"": seen}, ""},
		{"written since", false, answers{"": later, "10": seen}, ""},
		{"a lower version", false, answers{"": old, "version": "9"}, "rolled back"},
		{"an older copy", false, answers{"": later, "10": old}, "rolled back"},
		{"missing", false, answers{"": none, "10": none}, "rolled back"},
		{"gone since", false, answers{"": none, "10": seen}, ""},
		{"another object of the name", false, answers{"": later, "10": object("other", "10", written)}, "rolled back"},
		{"another write with the version", false, answers{"": later, "10": object("uid", "10", written.Add(time.Minute))},
			"rolled back"},
		{"a version that the cache has not reached", false, answers{"": later, "10": ahead}, "listed anew"},
		{"a server without capacity", false, answers{"": apierrors.NewTooManyRequests("", 1)}, "asked again"},
		{"an error of the server", false, answers{"": later, "10": apierrors.NewInternalError(errors.New("leader changed"))},
			"asked again"},
		{"compacted, written since", false, answers{"": later, "10": compacted}, "listed anew"},
		{"compacted, gone now", false, answers{"": none, "10": compacted}, "listed anew"},
		{"a deletion", true, answers{"": none, "10": none, "9": old}, ""},
		{"a deletion of what is there", true, answers{"": old, "10": old}, "rolled back"},
		{"a deletion of what never was", true, answers{"": none, "10": none, "9": none}, "rolled back"},
		{"a deletion, compacted", true, answers{"": none, "10": compacted}, "listed anew"},
		{"no right yet", false, answers{"": apierrors.NewForbidden(services, "", nil)}, "asked again"},
		{"no such kind", false, answers{"": apierrors.NewNotFound(services, "")}, ""},
		{"no credential", false, answers{"": apierrors.NewUnauthorized("")}, "asked again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				if r.URL.Path != "/api/v1/namespaces/shop/services" || q.Get("fieldSelector") != "metadata.name=web" ||
					q.Get("labelSelector") != "a=b" {
					t.Errorf("request %s", r.URL)
				}
				switch a := tt.server[q.Get("resourceVersion")].(type) {
				case *apierrors.StatusError:
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(int(a.ErrStatus.Code))
					respond(t, w, a.ErrStatus)
				case []metav1.PartialObjectMetadata:
					version, _ := tt.server["version"].(string)
					respond(t, w, metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: cmp.Or(version, "12")},
						Items: a})
				default:
					t.Errorf("request %s is not expected", r.URL)
				}
			}))
			defer server.Close()
			client, err := NewClient(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			rollbacks := 0
			s := NewSet(SetConfig{Client: client, Name: "test", RolledBack: func() { rollbacks++ }})
			s.Add(&corev1.Service{}, WatchOptions{Labels: "a=b"})
			event, w := watch.Modified, s.watches[0]
			if tt.deleted {
				event = watch.Deleted
			}
			w.note(nil, "10", false)
			w.mark(nil, event, &seen[0])
			w.mark(nil, watch.Modified, &old[0]) // an older event changes nothing
			left := verifyOnce(t, s)
			got := ""
			switch anew := w.rolledBack; {
			case rollbacks > 0 && anew:
				got = "rolled back"
			case anew:
				got = "listed anew"
			case left > 0:
				got = "asked again"
			}
			if got != tt.want || (w.landmark == nil) != w.rolledBack {
				t.Errorf("%q, landmark %v, want %q", got, w.landmark, tt.want)
			}
		})
	}
}

func respond(t *testing.T, w http.ResponseWriter, body any) {
	t.Helper()
	if err := json.NewEncoder(w).Encode(body); err != nil {
		t.Error(err)
	}
}
