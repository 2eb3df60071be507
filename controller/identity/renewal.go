package identity

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// The periods of a Renewal.
const (
	filePeriod   = 5 * time.Second  // between two reads of the token file
	secretPeriod = 30 * time.Second // between two reads of the Secret while the broker rejects the credential
	renewPeriod  = 30 * time.Second // between two attempts to renew
	minLife      = 10 * time.Minute // the shortest life that an API server grants
)

// A Renewal keeps a [Credential] valid: it renews the token at half of its life, daily at the latest, saves it in the
// Secret of the join, and takes a newer token from the token file or that Secret (docs/spec/controller.md 2).
// [Renewal.Run] is its only user.
type Renewal struct {
	Credential *Credential
	Members    *broker.Members // asks the broker for tokens
	Member     *member.Cluster // has the Secret
	Namespace  string          // of the Secret
	Log        logging.Logger
}

// Run keeps the credential valid until ctx ends; it then returns nil. It returns at once for a credential that is not a
// token in a file.
func (r *Renewal) Run(ctx context.Context) error {
	c := r.Credential
	if c.file == "" {
		return nil
	}
	defer c.metrics.SetCredentialExpiry(time.Time{})
	r.readSecret(ctx)
	var secretRead, attempt time.Time
	var failing logging.Failure[bool]
	part := 0.45 + 0.1*rand.Float64() // members that joined together should not renew together
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		c.readFile()
		now := time.Now()
		if c.Rejected() != "" && now.Sub(secretRead) >= secretPeriod {
			secretRead = now
			r.readSecret(ctx)
		}
		if due := c.due(now, part); (due || c.toSave()) && now.Sub(attempt) >= renewPeriod {
			attempt = now
			err := r.refresh(ctx, due)
			if failing.Changed(err != nil, err) && err != nil && ctx.Err() == nil {
				r.Log.Errorf("credential: %v; trying again", err)
			}
		}
	}, filePeriod)
	return nil
}

// readSecret takes the token that an earlier instance or an administrator wrote to the Secret, if it is of the same
// account.
func (r *Renewal) readSecret(ctx context.Context) {
	var secret corev1.Secret
	if err := r.Member.Client().Get(ctx, &secret, r.Namespace, apibroker.SecretName); err != nil {
		return
	}
	if t := readToken(string(secret.Data[apibroker.KeyToken])); t.sameAccount(r.Credential.current()) {
		r.Credential.take(t)
	}
}

// refresh renews a token that is due, or else saves one that could not be saved before.
func (r *Renewal) refresh(ctx context.Context, due bool) error {
	if due {
		return r.renew(ctx)
	}
	return r.save(ctx, r.Credential.current())
}

// renew gets a new token, uses it and saves it. The audiences are named although the broker would fill in its own:
// after it got another one, in place of or beside the old, tokens are still asked for what the policy allows.
func (r *Renewal) renew(ctx context.Context) error {
	grant, err := r.Members.Grant(ctx)
	if err != nil {
		return err
	}
	life := max(grant.Request(r.Credential.current().Life()), minLife)
	text, expires, err := r.Members.Token(ctx, life, grant.Audiences...)
	if err != nil {
		return err
	}
	t := readToken(text)
	if t.Expires.IsZero() {
		t.Issued, t.Expires = time.Now(), expires
	}
	r.Credential.renewed(t)
	return r.save(ctx, t)
}

// save writes the token to the Secret of the join. Where there is no such Secret, a restart has to renew again.
func (r *Renewal) save(ctx context.Context, t token) error {
	var secret corev1.Secret
	if err := r.Member.Client().Get(ctx, &secret, r.Namespace, apibroker.SecretName); err != nil {
		return err
	}
	if err := r.Member.Client().Apply(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID},
		Data:       map[string][]byte{apibroker.KeyToken: []byte(t.text)},
	}, wellknown.ManagerCredential); err != nil {
		return err
	}
	r.Credential.saved(t)
	return nil
}
