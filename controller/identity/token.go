package identity

import (
	"strings"

	"github.com/clusterset-dns/clusterset/apiserver"
)

// A token is a bearer token and its claims, which are zero unless it is a token of a service account.
type token struct {
	apiserver.Token
	text string
}

// readToken reads a bearer token.
func readToken(text string) token {
	t := token{text: strings.TrimSpace(text)}
	if claims, err := apiserver.ParseToken(t.text); err == nil {
		t.Token = claims
	}
	return t
}

// sameAccount reports whether both are tokens of one account.
func (t token) sameAccount(other token) bool {
	return t.Issuer == other.Issuer && t.User == other.User
}
