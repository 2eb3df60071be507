package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Token is the content of a service account token, unverified.
type Token struct {
	Issuer          string
	User            string    // "system:serviceaccount:<namespace>:<name>"
	Account         types.UID // of the service account
	Issued, Expires time.Time // zero unless both are set, and it expires after its issue
}

// ParseToken reads a service account token without believing it. It fails for every other kind of token.
func ParseToken(text string) (Token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return Token{}, errors.New("token: want a JSON web token, of three parts")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Token{}, fmt.Errorf("token: %w", err)
	}
	var claims struct {
		Issuer     string `json:"iss"`
		Subject    string `json:"sub"`
		Issued     int64  `json:"iat"`
		Expires    int64  `json:"exp"`
		Kubernetes struct {
			ServiceAccount struct {
				UID types.UID `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return Token{}, fmt.Errorf("token: %w", err)
	}
	t := Token{Issuer: claims.Issuer, User: claims.Subject, Account: claims.Kubernetes.ServiceAccount.UID}
	if claims.Issued > 0 && claims.Expires > claims.Issued {
		t.Issued, t.Expires = time.Unix(claims.Issued, 0), time.Unix(claims.Expires, 0)
	}
	return t, nil
}

// Life returns how long the token is valid from when it was issued; 0 if it does not expire or does not say.
func (t Token) Life() time.Duration { return t.Expires.Sub(t.Issued) }
