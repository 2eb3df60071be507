package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// fresh reports whether more than half of the life of a token is left.
func fresh(t apiserver.Token, now time.Time) bool { return t.Expires.Sub(now) > t.Life()/2 }

// userName is that of a member on the broker.
func userName(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + broker.ServiceAccount
}

// kubeconfig returns the kubeconfig of a member: how the admin reaches the broker, or server if that is not empty, with the
// token that lies beside it.
func kubeconfig(config *rest.Config, server, namespace string) ([]byte, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
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
		return nil, fmt.Errorf("broker server %q: want a URL such as https://broker.example:6443 (--broker-server)", server)
	case config.Insecure:
		return nil, errors.New("the broker's kubeconfig says insecure-skip-tls-verify: want one with the certificate of its authority")
	}
	const name = "broker"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{
		Server: server, CertificateAuthorityData: config.CAData, TLSServerName: config.ServerName,
	}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: broker.KeyToken}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	c.CurrentContext = name
	content, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return content, nil
}

// isLoopback reports whether a kubeconfig names a server that only programs beside it reach.
func isLoopback(kubeconfig []byte) bool {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return false
	}
	for _, c := range config.Clusters {
		u, err := url.Parse(c.Server)
		if err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()) {
			return true
		}
	}
	return false
}

// credentialConfig returns how a member reaches its broker, and its broker namespace, by the Secret of a join.
func credentialConfig(secret *corev1.Secret) (config *rest.Config, namespace string, err error) {
	raw, err := clientcmd.Load(secret.Data[broker.KeyKubeconfig])
	if err != nil {
		return nil, "", fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	for _, user := range raw.AuthInfos {
		user.TokenFile, user.Token = "", string(secret.Data[broker.KeyToken])
	}
	if current := raw.Contexts[raw.CurrentContext]; current != nil {
		namespace = current.Namespace
	}
	config, err = clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return config, namespace, nil
}

func newSecret(namespace string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: kind("v1", "Secret"),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: broker.SecretName, Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy},
		},
		Type: corev1.SecretTypeOpaque,
	}
}

// credential is what a join puts into the member's Secret.
type credential struct {
	kubeconfig []byte
	account    *corev1.ServiceAccount
	secret     string        // namespace of the Secret
	life       time.Duration // that is asked for
	now        time.Time
}

// writeCredential gives the member a token of its own account, unless it has a good one, and returns when it expires. A dry
// run asks for no token.
func (s *side) writeCredential(ctx context.Context, onBroker *side, c credential) (time.Time, error) {
	was := newSecret(c.secret)
	there, err := s.read(ctx, was)
	if err != nil {
		return time.Time{}, err
	}
	token, kept := string(was.Data[broker.KeyToken]), false
	if t, err := apiserver.ParseToken(token); there && err == nil {
		kept = fresh(t, c.now) && t.Account == c.account.UID && t.User == userName(c.account.Namespace)
	}
	if kept && string(was.Data[broker.KeyKubeconfig]) == string(c.kubeconfig) && marked(was) {
		s.report(toUnstructured(was), Unchanged, "the token is good")
		t, err := apiserver.ParseToken(token)
		return t.Expires, err
	}
	if s.writing.DryRun != DryRunNone {
		action := Created
		if there {
			action = Updated
		}
		s.report(toUnstructured(was), action, "")
		return time.Time{}, nil
	}
	if !kept {
		if token, err = onBroker.requestToken(ctx, c.account, c.life); err != nil {
			return time.Time{}, err
		}
	}
	secret := newSecret(c.secret)
	secret.Data = map[string][]byte{broker.KeyKubeconfig: c.kubeconfig, broker.KeyToken: []byte(token)}
	if _, err := s.apply(ctx, toUnstructured(secret), ""); err != nil {
		return time.Time{}, err
	}
	t, err := apiserver.ParseToken(token)
	return t.Expires, err
}

func (s *side) requestToken(ctx context.Context, account *corev1.ServiceAccount, life time.Duration) (string, error) {
	seconds := int64(life / time.Second)
	request := toUnstructured(&authv1.TokenRequest{
		TypeMeta:   kind("authentication.k8s.io/v1", "TokenRequest"),
		ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name},
		Spec:       authv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	})
	answer, err := s.client.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(account.Namespace).
		Create(ctx, request, metav1.CreateOptions{FieldManager: FieldManager}, "token")
	if err != nil {
		return "", fmt.Errorf("%s: token of service account %s/%s: %w", s.name, account.Namespace, account.Name, err)
	}
	var r authv1.TokenRequest
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, &r); err != nil {
		return "", fmt.Errorf("%s: token of service account %s/%s: %w", s.name, account.Namespace, account.Name, err)
	}
	return r.Status.Token, nil
}
