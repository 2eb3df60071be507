package identity_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

const life = 10 * time.Minute // the shortest that an API server grants

// docs/spec/controller.md 2.4: the token is renewed and saved in the Secret; a revoked one is reported, and an
// administrator's new one is taken.
func TestCredential(t *testing.T) {
	env := memberenv.New(t)
	env.Join()
	env.Account()
	old := env.Token()
	env.WriteKubeconfig(old)
	i := env.Start()
	link, err := identity.LoadLink(env.Kubeconfig(), "")
	if err != nil {
		t.Fatal(err)
	}
	c := identity.NewCredential(link, metrics.New(nil, metrics.Labels{}))
	b, err := broker.New(broker.Config{REST: c.Config(), Namespace: link.Namespace, ClusterID: memberenv.ID, Log: i.Log})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := &identity.Renewal{Credential: c, Members: b.Members, Member: i.Member, Namespace: wellknown.ControllerNamespace,
		Log: i.Log}
	if err := r.Refresh(t.Context(), true); err == nil || !c.ToSave() {
		t.Errorf("renewed without a Secret: %v, to be saved %t; want an error, and another attempt", err, c.ToSave())
	}
	env.Create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.ControllerNamespace, Name: apibroker.SecretName},
		Data:       map[string][]byte{apibroker.KeyToken: []byte(old), apibroker.KeyKubeconfig: []byte("kept")},
	})
	if err := r.Refresh(t.Context(), false); err != nil || c.ToSave() {
		t.Fatalf("saved later: %v, to be saved %t", err, c.ToSave())
	}
	secret := &corev1.Secret{}
	if err := env.Admin.Get(t.Context(), secret, wellknown.ControllerNamespace, apibroker.SecretName); err != nil {
		t.Fatal(err)
	}
	fresh := string(secret.Data[apibroker.KeyToken])
	if fresh == old || fresh != c.Current() || string(secret.Data[apibroker.KeyKubeconfig]) != "kept" {
		t.Errorf("the Secret has the old token, not the one in use, or lost its kubeconfig: %q", secret.Data)
	}
	c.ReadFile() // has the old one
	if c.Current() != fresh && identity.IssuedBefore(old, fresh) {
		t.Error("an older token was taken from the file")
	}
	if c.Rejected() != "" {
		t.Errorf("rejected: %s", c.Rejected())
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: memberenv.Namespace,
		Name: apibroker.ServiceAccount}}
	env.Delete(account)
	env.Await("the revoked token is rejected", func() bool {
		_, _, _ = b.Members.Token(t.Context(), life) // the error is recorded
		return c.Rejected() != ""
	})
	env.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: memberenv.Namespace,
		Name: apibroker.ServiceAccount}})
	secret.Data[apibroker.KeyToken] = []byte(env.Token())
	env.Update(secret)
	r.ReadSecret(t.Context())
	env.Await("the administrator's token works", func() bool {
		_, _, err := b.Members.Token(t.Context(), life)
		return err == nil && c.Rejected() == ""
	})
}
