package join

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// userName is the user name of a member on the broker.
func userName(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + broker.ServiceAccount
}

// memberKubeconfig returns the kubeconfig with which a member reaches the broker: server, or the address in config if
// that is empty, the certificate authority in config, and the token in the file "token" beside it. It also returns the
// host of the address.
func memberKubeconfig(config *rest.Config, server, namespace string) (content []byte, host string, err error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, "", fmt.Errorf("broker: %w", err)
	}
	if server == "" {
		server = config.Host
		if !strings.Contains(server, "://") {
			server = "https://" + server
		}
	}
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return nil, "", fmt.Errorf("broker server %q: want a URL such as https://broker.example:6443 (--broker-server)", server)
	case config.Insecure:
		return nil, "", errors.New(
			"the kubeconfig of the broker has insecure-skip-tls-verify: want one with the certificate authority of the broker")
	}
	const name = "broker"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{
		Server: server, CertificateAuthorityData: config.CAData, TLSServerName: config.ServerName,
	}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: broker.KeyToken}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	c.CurrentContext = name
	if content, err = clientcmd.Write(*c); err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	return content, u.Hostname(), nil
}

// annotationComponents holds, on the Secret of the broker credential, the components that were chosen: a join without
// --components keeps them, until the cluster leaves.
const annotationComponents = "clusterset-dns.io/components"

// credential is the content of the Secret that Join writes to the member.
type credential struct {
	kubeconfig []byte
	account    *corev1.ServiceAccount // on the broker
	namespace  string                 // of the Secret
	components string                 // what the join installs, for the next one: see annotationComponents
	life       time.Duration          // requested lifetime of a new token
	now        time.Time
}

// minCredentialLife is the shortest life of a token that API servers grant.
const minCredentialLife = 10 * time.Minute

// fitsToken reports whether a token belongs to the account, has more than half of its life left, and does not live
// longer than wanted.
func (want credential) fitsToken(token string) bool {
	t, err := apiserver.ParseToken(token)
	return err == nil && t.Expires.Sub(want.now) > t.Life()/2 && t.Life() <= want.life && t.Account == want.account.UID &&
		t.User == userName(want.account.Namespace)
}

// writeCredential writes the Secret and returns when its token expires, zero in a dry run. It keeps a token that fits
// and that the broker accepts, and otherwise requests one (docs/spec/controller.md 2.4).
func writeCredential(ctx context.Context, c, onBroker *write.Writer, want credential) (time.Time, error) {
	old, err := c.Secret(ctx, want.namespace)
	if err != nil {
		return time.Time{}, err
	}
	action := write.Updated
	if old == nil {
		old, action = newSecret(want.namespace), write.Created
	}
	token := string(old.Data[broker.KeyToken])
	keep := want.fitsToken(token)
	if keep {
		if keep, err = acceptsToken(ctx, onBroker.Cluster, token); err != nil {
			return time.Time{}, err
		}
	}
	if keep && string(old.Data[broker.KeyKubeconfig]) == string(want.kubeconfig) && read.IsManaged(old) &&
		old.Annotations[annotationComponents] == want.components {
		c.Report(toUnstructured(old), write.Unchanged, "the token is valid")
		t, err := apiserver.ParseToken(token)
		return t.Expires, err
	}
	if c.Options.DryRun != write.DryRunNone {
		c.Report(toUnstructured(old), action, "")
		return time.Time{}, nil
	}
	if !keep {
		request, err := requestToken(ctx, onBroker.Cluster, want.account, want.life)
		if err != nil {
			return time.Time{}, err
		}
		token = request.Status.Token
	}
	secret := newSecret(want.namespace)
	secret.Annotations = map[string]string{annotationComponents: want.components}
	secret.Data = map[string][]byte{broker.KeyKubeconfig: want.kubeconfig, broker.KeyToken: []byte(token)}
	if _, err := c.Apply(ctx, toUnstructured(secret), ""); err != nil {
		return time.Time{}, err
	}
	t, err := apiserver.ParseToken(token)
	return t.Expires, err
}

// acceptsToken asks the API server whether it accepts a token, over the connection of the administrator: the cluster
// alone may reach the address in its kubeconfig.
func acceptsToken(ctx context.Context, c *read.Cluster, token string) (bool, error) {
	review := toUnstructured(&authv1.TokenReview{
		TypeMeta: typeMeta("authentication.k8s.io/v1", "TokenReview"), Spec: authv1.TokenReviewSpec{Token: token},
	})
	response, err := c.Client.Resource(authv1.SchemeGroupVersion.WithResource("tokenreviews")).
		Create(ctx, review, metav1.CreateOptions{FieldManager: wellknown.ManagerJoin})
	if err != nil {
		return false, fmt.Errorf("%s: review the token of the member: %w", c.Role, err)
	}
	authenticated, _, err := unstructured.NestedBool(response.Object, "status", "authenticated")
	return authenticated, err
}

// requestToken returns the request as the API server completed it.
func requestToken(ctx context.Context, c *read.Cluster, account *corev1.ServiceAccount,
	life time.Duration) (*authv1.TokenRequest, error) {
	request := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: new(int64(life / time.Second))}}
	response, err := c.Core.ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request,
		metav1.CreateOptions{FieldManager: wellknown.ManagerJoin})
	if err != nil {
		return nil, fmt.Errorf("%s: request a token for ServiceAccount %s/%s: %w", c.Role, account.Namespace, account.Name, err)
	}
	return response, nil
}

// newSecret returns the Secret of the broker credential, without data.
func newSecret(namespace string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: typeMeta("v1", "Secret"),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: broker.SecretName, Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy},
		},
		Type: corev1.SecretTypeOpaque,
	}
}
