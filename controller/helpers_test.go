package controller

import "k8s.io/apimachinery/pkg/types"

func service(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}
