package member

import (
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// SetExportedTo sets the annotation of exp with the clusters that it reaches, or removes it if value is "". The status
// of the MCS API has no field for that. It does not write an equal value. If someone else overwrites it, or the right
// to write it is missing, as in a member with old rights, it returns when to try again: nothing else depends on it.
func (c Conditions) SetExportedTo(ctx context.Context, exp *mcsv1beta1.ServiceExport,
	value string) (wait time.Duration, err error) {
	if present, ok := exp.Annotations[apibroker.AnnotationExportedTo]; present == value && ok == (value != "") {
		return 0, nil
	}
	now := time.Now()
	key, asked := apibroker.AnnotationExportedTo+" "+KeyOf(exp).String(), string(exp.UID)+" "+value
	if wait := max(c.overwritten.Wait(key, asked, now), c.overwritten.WaitChange(key, now)); wait > 0 {
		return wait, nil
	}
	patched := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: exp.Namespace, Name: exp.Name}}
	switch err := c.Cluster.Client().Patch(ctx, patched, exportedToPatch(exp, value), wellknown.ManagerExporter); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // deleted a moment ago, or made anew
		return 0, nil
	case apierrors.IsForbidden(err):
		c.overwritten.Wrote(key, asked, now)
		if c.forbidden.Changed(true) {
			c.log.Warningf("annotation %s: %v; apply the rights of this version", apibroker.AnnotationExportedTo, err)
		}
		return c.overwritten.Wait(key, asked, now), nil
	case err != nil:
		return 0, err
	}
	c.overwritten.Wrote(key, asked, now)
	c.forbidden.Changed(false)
	c.Cluster.Wrote(patched)
	return 0, nil
}

// exportedToPatch is a JSON merge patch for the export that was read.
func exportedToPatch(exp *mcsv1beta1.ServiceExport, value string) []byte {
	annotations := map[string]*string{apibroker.AnnotationExportedTo: nil}
	if value != "" {
		annotations[apibroker.AnnotationExportedTo] = &value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": exp.UID, "annotations": annotations}})
	if err != nil {
		panic("member: an annotation is no JSON: " + err.Error())
	}
	return patch
}
