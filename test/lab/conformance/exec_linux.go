package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// How long a command may take, and how long a client may take to open its streams.
const execPatience = time.Minute

// exec serves what `kubectl exec` asks of a kubelet, at /exec/<namespace>/<pod>/<container>: it runs the command in the
// node, with the DNS configuration of a Pod, and writes its output, of both kinds as with a terminal, to one stream.
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/exec/"), "/")
	query := r.URL.Query()
	command := query["command"]
	if len(parts) != 3 || len(command) == 0 {
		http.Error(w, r.URL.String()+": want /exec/<namespace>/<pod>/<container>?command=...", http.StatusNotFound)
		return
	}
	k.mu.Lock()
	_, ok := k.pods[parts[0]+"/"+parts[1]]
	k.mu.Unlock()
	if !ok {
		http.Error(w, "no Pod "+parts[0]+"/"+parts[1]+" runs here", http.StatusNotFound)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		return // It has answered.
	}
	opened := make(chan httpstream.Stream, 4)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		select {
		case opened <- s:
			return nil
		default:
			return errors.New("too many streams")
		}
	})
	if conn == nil {
		return // It has answered.
	}
	defer conn.Close()
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, cancel := context.WithTimeout(r.Context(), execPatience)
	defer cancel()
	watch.Go(func() {
		select {
		case <-conn.CloseChan(): // A client that gave up needs no command any more.
			cancel()
		case <-ctx.Done():
		}
	})
	streams, err := await(ctx, opened, query.Get("error") != "")
	if err == nil {
		err = k.answer(ctx, parts[0], command, streams)
	}
	if err != nil && ctx.Err() == nil {
		k.fail(fmt.Errorf("exec %q: %w", command, err))
	}
	<-ctx.Done() // The client closes the connection when it has read everything.
}

// await returns the streams that a client opens, by their type: for the end of the command, its output, and its errors
// if the client wants them. These stay empty, but the client waits for the end of each.
func await(ctx context.Context, opened <-chan httpstream.Stream, stderr bool) (map[string]httpstream.Stream, error) {
	streams := map[string]httpstream.Stream{}
	for streams[corev1.StreamTypeStdout] == nil || streams[corev1.StreamTypeError] == nil ||
		stderr && streams[corev1.StreamTypeStderr] == nil {
		select {
		case s := <-opened:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-ctx.Done():
			return nil, fmt.Errorf("the client has not opened its streams: %w", ctx.Err())
		}
	}
	return streams, nil
}

// answer runs a command and writes its output and how it ended.
func (k *kubelet) answer(ctx context.Context, namespace string, command []string,
	streams map[string]httpstream.Stream) error {
	status, err := k.execute(ctx, namespace, command, streams[corev1.StreamTypeStdout])
	if err != nil {
		return err
	}
	text, err := json.Marshal(status)
	if err != nil {
		return err
	}
	// A client that gave up does not want them.
	_, _ = streams[corev1.StreamTypeError].Write(text)
	for _, s := range streams {
		_ = s.Close()
	}
	return nil
}

// execute runs the command to its end and returns how it ended, in the words of a kubelet.
func (k *kubelet) execute(ctx context.Context, namespace string, command []string, out io.Writer) (*metav1.Status,
	error) {
	args := append([]string{
		"--mount", "--propagation", "private", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, k.resolvConf(namespace),
	}, command...)
	p, err := subprocess.Start(k.node.Command(subprocess.Command{Bin: "unshare", Args: args}))
	if err != nil {
		return nil, err
	}
	var exit *exec.ExitError
	if err := p.Wait(ctx); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return nil, err
	}
	_, _ = io.WriteString(out, p.Out.String()) // A client that gave up does not want it.
	if exit == nil {
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
		Message: fmt.Sprintf("command terminated with non-zero exit code: %v", exit),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitCode()),
		}}},
	}, nil
}
