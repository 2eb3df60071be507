package member

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterset-dns/clusterset/api/shorten"
)

// Rejection returns why an API server will never accept a write as it is, "" if err is nil or may pass without a
// change. The text of a rejection that repeats does not change: a condition with it is written once.
func Rejection(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return ""
	}
	// An API server that started seconds ago has not read the parameters of its admission policies yet. A quota for a kind
	// that came seconds ago has no status: kube-controller-manager looks for new kinds twice a minute.
	for _, early := range []string{"failed to configure ", "status unknown for quota"} {
		if strings.Contains(status.Status().Message, early) {
			return ""
		}
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return shorten.Text(status.Status().Message, MaxNote)
	}
	return ""
}

var failedWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)"`)

// Webhook returns the name of the admission webhook that an API server could not call for a write, "" if err has no
// such cause. The rest of that text differs with each attempt.
func Webhook(err error) string {
	if err == nil {
		return ""
	}
	if found := failedWebhook.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return ""
}
