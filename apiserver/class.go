package apiserver

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// A Class is the meaning of an error for those who follow an API server. All decisions of this package about an error,
// and its log lines, depend on the class alone.
//
//	class         cause                                         what follows
//	OK            no error                                      –
//	Unreachable   no answer, or one that cannot be used (5xx)   retry with back-off, over new connections
//	Unauthorized  401: the credential is not accepted           retry with back-off; nothing is read until it is accepted
//	Forbidden     403: a right is missing                       retry this watch with back-off, each minute in the end
//	Absent        404, 405: the kind is not installed           retry this watch with back-off, each minute in the end
//	Rejected      400, 422: the request is not accepted         retry this watch with back-off, each minute in the end
//	RolledBack    the server forgot versions that it had sent   list this watch anew
//	Replaced      kube-system has another UID                   read nothing until the right cluster is back
//	Expired       410, or no streamed lists, or another version list this watch anew; this is no failure
type Class uint8

// The classes.
const (
	OK Class = iota
	Unreachable
	Unauthorized
	Forbidden
	Absent
	Rejected
	RolledBack
	Replaced
	Expired
	classes
)

// String is the class as a word, "" for OK.
func (c Class) String() string {
	return [classes]string{"", "unreachable", "unauthorized", "forbidden", "absent", "rejected", "rolled back",
		"replaced", "expired"}[c]
}

// ofServer reports whether an error of this class concerns the API server, and so all of its watches.
func (c Class) ofServer() bool { return c == Unreachable || c == Unauthorized || c == Replaced }

// Things that a person has to install or to grant are retried every few seconds at first, and then each minute.
const (
	oftenFor  = 5 * time.Minute
	rarePause = time.Minute
)

// pause is the time until the next attempt of a watch after an error of this class: step is that of the back-off, and
// failing is how long attempts have failed.
func (c Class) pause(step, failing time.Duration) time.Duration {
	if (c == Absent || c == Forbidden || c == Rejected) && failing > oftenFor {
		return rarePause
	}
	return step
}

// ErrReplaced means that another cluster answers at the address.
var ErrReplaced = errors.New("kube-system has another UID")

// Errors that are found here, not by the API server. [Classify] knows them.
var (
	errUnchecked  = errors.New("not reached yet")
	errRolledBack = errors.New("the API server went back to an older state")
	errAbsent     = errors.New("no version of it is served")
	errMoved      = errors.New("another API version is preferred now")
	errNoStream   = errors.New("the API server does not stream lists")
)

// Classify returns the class of an error, OK for nil. It looks through wrapped errors.
func Classify(err error) Class {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, ErrReplaced):
		return Replaced
	case errors.Is(err, errRolledBack):
		return RolledBack
	case errors.Is(err, errMoved), errors.Is(err, errNoStream), apierrors.IsResourceExpired(err), apierrors.IsGone(err),
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return Expired
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case apierrors.IsForbidden(err):
		return Forbidden
	case errors.Is(err, errAbsent), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return Absent
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		return Rejected
	}
	return Unreachable
}

// hasNoAnswer reports whether err means that no API server answered: the connection was refused or broke, or the time
// was over.
func hasNoAnswer(err error) bool {
	var status apierrors.APIStatus
	return Classify(err) == Unreachable && !errors.As(err, &status)
}

// log writes the one line that there is for each class. subject is the server, or the server and one of its watches.
func (c Class) log(to logging.Logger, subject string, err error) {
	switch c {
	case OK, Expired:
	case Unreachable:
		what := "out of reach"
		if !hasNoAnswer(err) {
			what = "answers with an error"
		}
		to.Warningf("%s: %s: %s", subject, what, logging.Line(err))
	case Unauthorized:
		to.Errorf("%s: the credential is rejected; what is known stays until it is accepted: %s", subject, logging.Line(err))
	case Forbidden:
		to.Errorf("%s: rights are missing; trying again until they are there: %s", subject, logging.Line(err))
	case Absent:
		to.Warningf("%s: not installed; trying again until it is", subject)
	case Rejected:
		to.Errorf("%s: the request is rejected; trying again: %s", subject, logging.Line(err))
	case RolledBack:
		to.Warningf("%s: rolled back; listing anew: %s", subject, logging.Line(err))
	case Replaced:
		to.Errorf("%s: another cluster answers; what is known stays until the right one is back: %s", subject,
			logging.Line(err))
	}
}
