package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A Link is the way to the broker. The zero value reaches no broker.
type Link struct {
	REST      *rest.Config // nil if the kubeconfig cannot be used
	Namespace string       // of this member on the broker
	Digest    string       // of the kubeconfig and the name of its context
}

// LoadLink reads a kubeconfig. The context, "" for the current one, must name the broker namespace of this member.
func LoadLink(path, kubeContext string) (Link, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Link{}, err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	raw, err := rules.Load()
	if err != nil {
		return Link{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	// A deferred loader would take an empty file for "the cluster that this process runs in".
	loaded := clientcmd.NewNonInteractiveClientConfig(*raw, kubeContext, &clientcmd.ConfigOverrides{}, rules)
	config, err := loaded.ClientConfig()
	if err != nil {
		return Link{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return Link{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if namespace == metav1.NamespaceDefault {
		return Link{}, fmt.Errorf("kubeconfig %s: context %q has no namespace: want that of this member on the broker",
			path, kubeContext)
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return Link{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if _, _, err := rest.DefaultServerUrlFor(config); err != nil {
		return Link{}, fmt.Errorf("kubeconfig %s: server %q: %w", path, config.Host, err)
	}
	sum := sha256.Sum256(append(content, kubeContext...))
	return Link{REST: config, Namespace: namespace, Digest: hex.EncodeToString(sum[:])}, nil
}
