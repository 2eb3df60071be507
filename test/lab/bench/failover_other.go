//go:build !linux

package main

import (
	"context"
	"errors"
)

var errNamespaces = errors.New("want Linux, for network namespaces")

func namespacesPossible() error { return errNamespaces }

func (b *bench) failoverSection(context.Context) (part, error) { return nil, errNamespaces }

func (b *bench) togetherSection(context.Context) (part, error) { return nil, errNamespaces }
