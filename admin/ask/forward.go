package ask

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/clusterset-dns/clusterset/admin/read"
)

// A stream is a connection to a port of a Pod.
type stream struct {
	net.Conn // nil: the deadlines and addresses of a stream
	conn     httpstream.Connection
	data     httpstream.Stream
	problem  chan string // error text of the kubelet; "" if the connection ends without one
}

// dial opens a stream through the API server, which ends with ctx.
func dial(ctx context.Context, c *read.Cluster, pod *corev1.Pod, port int) (*stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type dialed struct {
		conn httpstream.Connection
		err  error
	}
	// No context ends the wait for an answer over SPDY.
	done := make(chan dialed)
	go func() {
		conn, err := connect(ctx, c, pod)
		select {
		case done <- dialed{conn, err}:
		case <-ctx.Done(): // the caller has returned
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case d := <-done:
		if errors.Is(d.err, os.ErrDeadlineExceeded) {
			<-ctx.Done() // the connection has its deadline
			return nil, ctx.Err()
		}
		if d.err != nil {
			return nil, d.err
		}
		context.AfterFunc(ctx, func() { _ = d.conn.Close() })
		s, err := openStream(d.conn, port)
		return s, cmp.Or(ctx.Err(), err)
	}
}

// connect connects over a WebSocket, or over SPDY if the API server is too old for that, or its roles are.
func connect(ctx context.Context, c *read.Cluster, pod *corev1.Pod) (httpstream.Connection, error) {
	config := rest.CopyConfig(c.API)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bounded{ctx, next} })
	at := c.Core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, config)
	if err != nil {
		return nil, err
	}
	conn, _, err := overWebSocket.Dial(portforward.PortForwardProtocolV1Name)
	if err == nil || !httpstream.IsUpgradeFailure(err) && !httpstream.IsHTTPSProxyError(err) {
		return conn, err
	}
	transport, upgrader, failed := spdy.RoundTripperFor(config)
	if failed != nil {
		return nil, failed
	}
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	if conn, _, failed = overSPDY.Dial(portforward.PortForwardProtocolV1Name); failed == nil {
		return conn, nil
	}
	return nil, cmp.Or(answerOf(err), failed)
}

// bounded ends requests with a context, since the dialers of client-go have no such argument.
type bounded struct {
	ctx  context.Context
	next http.RoundTripper
}

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.next.RoundTrip(r.WithContext(b.ctx))
}

// answerOf returns the Status in a failed WebSocket request, or nil; SPDY returns only its text. API servers without
// WebSockets reject the request as malformed, which is not an answer.
func answerOf(err error) error {
	var upgrade *httpstream.UpgradeFailureError
	if errors.As(err, &upgrade) && apierrors.ReasonForError(upgrade.Cause) != metav1.StatusReasonUnknown &&
		!apierrors.IsBadRequest(upgrade.Cause) {
		return upgrade.Cause
	}
	return nil
}

func openStream(conn httpstream.Connection, port int) (*stream, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := conn.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	_ = problems.Close() // of our half: nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s := &stream{conn: conn, data: data, problem: make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(problems) // it ends with the connection
		s.problem <- strings.TrimSpace(string(text))
	}()
	return s, nil
}

func (s *stream) Read(b []byte) (int, error)       { return s.data.Read(b) }
func (s *stream) Write(b []byte) (int, error)      { return s.data.Write(b) }
func (s *stream) SetReadDeadline(time.Time) error  { return nil } // closing the stream ends all calls
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

func (s *stream) Close() error { return s.conn.Close() }

// reason returns the error text of the kubelet, or err.
func (s *stream) reason(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
	case text := <-s.problem:
		if text != "" {
			return errors.New(text)
		}
	}
	return err
}
