package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeletTLS returns the configuration of an HTTPS server that stands in for a kubelet: only the API server of this
// control plane gets an answer.
func (c *ControlPlane) KubeletTLS() (*tls.Config, error) {
	cert, key, err := c.authority.issueServer()
	if err != nil {
		return nil, fmt.Errorf("certificate of a kubelet: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of a kubelet: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.authority.cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			if who := s.PeerCertificates[0].Subject.CommonName; who != kubeletClient {
				return fmt.Errorf("client %q: want %q", who, kubeletClient)
			}
			return nil
		},
	}, nil
}

// writeIdentity writes what the API server reads about itself and its clients.
func (c *ControlPlane) writeIdentity() error {
	cert, key, err := c.authority.issueServer()
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	clientCert, clientKey, err := c.authority.issueClient(kubeletClient)
	if err != nil {
		return fmt.Errorf("certificate for kubelets: %w", err)
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	signerPEM, err := pemKey(signer)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	for name, content := range map[string][]byte{
		"ca.crt": c.authority.pem, "apiserver.crt": cert, "apiserver.key": key, "serviceaccount.key": signerPEM,
		"kubelet-client.crt": clientCert, "kubelet-client.key": clientKey,
		"tokens.csv": []byte(c.token + ",admin,admin,system:masters\n"),
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// UserKubeconfig writes a kubeconfig for the user and returns its path. The user proves who it is by a client
// certificate and may do what RBAC grants to its name and groups, and nothing else.
func (c *ControlPlane) UserKubeconfig(user string, groups ...string) (string, error) {
	cert, key, err := c.authority.issueClient(user, groups...)
	if err != nil {
		return "", fmt.Errorf("certificate of user %q: %w", user, err)
	}
	return c.writeKubeconfig("user-*.kubeconfig", &clientcmdapi.AuthInfo{
		ClientCertificateData: cert, ClientKeyData: key,
	})
}

// ServiceAccountKubeconfig writes a kubeconfig with a token that the API server issues for a service account, which
// must exist, and returns its path. The token is valid for an hour.
func (c *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": map[string]any{"name": name, "namespace": namespace},
	}}
	got, err := c.dynamic.Resource(serviceAccounts).Namespace(namespace).
		Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", fmt.Errorf("token of service account %s/%s: %w", namespace, name, err)
	}
	token, _, err := unstructured.NestedString(got.Object, "status", "token")
	if err != nil || token == "" {
		return "", fmt.Errorf("token of service account %s/%s: the answer has none: %w", namespace, name, err)
	}
	return c.writeKubeconfig("serviceaccount-*.kubeconfig", &clientcmdapi.AuthInfo{Token: token})
}

func (c *ControlPlane) writeKubeconfig(pattern string, user *clientcmdapi.AuthInfo) (string, error) {
	const name = "clusterset-test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.url(), CertificateAuthorityData: c.authority.pem}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	f, err := os.CreateTemp(c.dir, pattern)
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return f.Name(), nil
}
