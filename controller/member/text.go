package member

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/shorten"
)

// MaxNote is the limit of the API server for the note of an Event, in octets.
const MaxNote = 1024

// cutMessage returns at most limit octets of the message of a condition, and always the codes at its end.
func cutMessage(message string, limit int) string {
	text, codes := reason.Split(message)
	return shorten.Text(text, limit-len(codes)) + codes
}

// Rejection returns why an API server will never accept a write as it is, "" if err is nil or may pass without a change. The
// text of a rejection that repeats does not change: a condition with it is written once.
func Rejection(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return ""
	}
	// An API server that started seconds ago has not read the parameters of its admission policies yet.
	if strings.Contains(status.Status().Message, "failed to configure ") {
		return ""
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return shorten.Text(status.Status().Message, MaxNote)
	}
	return ""
}
