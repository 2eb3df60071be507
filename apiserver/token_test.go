package apiserver

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func TestParseToken(t *testing.T) {
	for _, tt := range []struct{ name, token, want string }{
		{"no token", "", "want a JSON web token"},
		{"not base64", "a.!.c", "illegal base64"},
		{"not JSON", "a.eA.c", "invalid character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ParseToken(tt.token); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseToken(%q): %v, want %s", tt.token, err, tt.want)
			}
		})
	}
}

func TestParseTokenTimes(t *testing.T) {
	hour := Token{Issuer: "i", User: "u", Issued: time.Unix(1, 0), Expires: time.Unix(3601, 0)}
	for claims, want := range map[string]Token{
		`{"iss":"i","sub":"u","iat":1,"exp":3601}`:                   hour,
		`{"sub":"u","kubernetes.io":{"serviceaccount":{"uid":"a"}}}`: {User: "u", Account: "a"},
		`{"iat":1}`: {}, `{"exp":1}`: {}, `{"iat":2,"exp":2}`: {},
	} {
		got, err := ParseToken("x." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".y")
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", claims, got, err, want)
		}
	}
	if hour.Life() != time.Hour || (Token{}).Life() != 0 {
		t.Errorf("life %s and %s, want 1h and 0", hour.Life(), Token{}.Life())
	}
}
