package read

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// CredentialConfig returns the client configuration of a member for the broker, and its broker namespace, from its
// Secret.
func CredentialConfig(secret *corev1.Secret) (config *rest.Config, namespace string, err error) {
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

// Secret returns the broker credential of the member, or nil.
func (c *Cluster) Secret(ctx context.Context, namespace string) (*corev1.Secret, error) {
	return As[corev1.Secret](ctx, c, corev1.SchemeGroupVersion.WithKind("Secret"), namespace, broker.SecretName)
}

// BrokerOf returns the access of a member to its broker, by the credential in the namespace of its controller.
func BrokerOf(ctx context.Context, member *rest.Config, namespace string) (*rest.Config, error) {
	c, err := Open(RoleMember, member)
	if err != nil {
		return nil, err
	}
	secret, err := c.Secret(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return nil, errors.New(
			"this cluster has no broker credential: want --broker-kubeconfig or --broker-context, or a cluster that has joined")
	}
	config, _, err := CredentialConfig(secret)
	return config, err
}
