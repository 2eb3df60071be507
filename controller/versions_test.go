package controller

import (
	"context"
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// The controller follows ServiceExport and ServiceImport at v1 and v1beta1, also when that changes. With another
// version alone it is frozen: the heartbeat and the exports go on, also after a restart (docs/spec/controller.md 5.3).
func TestVersions(t *testing.T) {
	tier.All(t)
	env := memberenv.New(t)
	serve := func(versions ...string) {
		t.Helper()
		for _, manifest := range controlplane.MCSCRDs() {
			if err := env.Server.InstallCRDs(t.Context(), controlplane.Serving(manifest, versions...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	env.Account()
	env.WriteKubeconfig(env.Token())
	env.Join()
	serve("v1")
	i := newInstance(env)
	stop := i.start()
	env.Create(memberenv.NewService(memberenv.DB), memberenv.NewSourceSlice(memberenv.DB, "db-1", "10.1.0.1"),
		memberenv.NewExport(memberenv.DB))
	awaitPort(env, "v1", 5432)
	for port, versions := range [][]string{{"v1", "v1beta1"}, {"v1beta1"}, {"v1"}} {
		serve(versions...)
		setPort(env, int32(port+1))
		awaitPort(env, versions[0], int32(port+1))
	}

	serve("v2")
	for _, when := range []string{"running", "started"} {
		until.True(t, "frozen while "+when, func() bool { return i.gauge("frozen") == 2 && i.gauge("member") == 1 })
		awaitHeartbeat(env)
		if err := env.Admin.Get(t.Context(), &v1alpha1.ExportedService{}, memberenv.Namespace, "db.shop"); err != nil {
			t.Error(err)
		}
		if when == "running" {
			stop()
			i = newInstance(env)
			stop = i.start()
		}
	}
	serve("v1beta1")
	until.True(t, "no longer frozen", func() bool { return i.gauge("frozen") == 0 })
	setPort(env, 10)
	awaitPort(env, "v1beta1", 10)
	stop()
}

// setPort changes the port of the Service.
func setPort(env *memberenv.Env, port int32) {
	env.Helper()
	service := &corev1.Service{}
	if err := env.Admin.Get(env.Context(), service, memberenv.DB.Namespace, memberenv.DB.Name); err != nil {
		env.Fatal(err)
	}
	service.Spec.Ports[0].Port = port
	env.Update(service)
}

// awaitPort waits until the export is ready and the import has the port, by a version of both.
func awaitPort(env *memberenv.Env, version string, port int32) {
	env.Helper()
	get := func(ctx context.Context, plural string, into any) error {
		resource := mcsv1beta1.SchemeGroupVersion.WithResource(plural).GroupResource().WithVersion(version)
		o, err := env.Server.Dynamic().Resource(resource).Namespace(memberenv.DB.Namespace).Get(ctx, memberenv.DB.Name,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
	}
	until.OK(env, fmt.Sprintf("port %d at %s", port, version), func(ctx context.Context) error {
		var exp mcsv1beta1.ServiceExport
		var imp mcsv1beta1.ServiceImport
		if err := get(ctx, mcsv1beta1.ServiceExportPluralName, &exp); err != nil {
			return err
		}
		if err := get(ctx, mcsv1beta1.ServiceImportPluralName, &imp); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(exp.Status.Conditions, "Ready") || len(imp.Status.Clusters) != 1 ||
			len(imp.Spec.Ports) != 1 || imp.Spec.Ports[0].Port != port {
			return fmt.Errorf("export %+v, import %+v", exp.Status, imp.Spec)
		}
		return nil
	})
}

// awaitHeartbeat waits until the member renews its heartbeat twice.
func awaitHeartbeat(env *memberenv.Env) {
	env.Helper()
	var last metav1.MicroTime
	for n := range 3 {
		until.True(env, fmt.Sprintf("heartbeat %d", n), func() bool {
			lease := &coordinationv1.Lease{}
			err := env.Admin.Get(env.Context(), lease, memberenv.Namespace, apibroker.HeartbeatName)
			renewed := err == nil && lease.Spec.RenewTime.After(last.Time)
			if renewed {
				last = *lease.Spec.RenewTime
			}
			return renewed
		})
	}
}
