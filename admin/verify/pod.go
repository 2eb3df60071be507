package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/clusterset-dns/clusterset/admin/ask"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// Waits of a Pod: for one reply, and between two tries.
const (
	replyTimeout = 2 * time.Second
	retryPeriod  = 500 * time.Millisecond
)

// Serve replies with say to each connection by TCP and each packet by UDP at these addresses, until ctx ends. It
// calls listening when it listens at all of them.
func Serve(ctx context.Context, addresses []string, say string, listening func()) error {
	g, ctx := errgroup.WithContext(ctx)
	var servers []func() error
	for _, address := range addresses {
		stream, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer stream.Close()
		packets, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
		if err != nil {
			return err
		}
		defer packets.Close()
		stop := context.AfterFunc(ctx, func() { stream.Close(); packets.Close() })
		defer stop()
		servers = append(servers, func() error { return serveStream(stream, say) },
			func() error { return servePackets(packets, say) })
	}
	listening()
	for _, serve := range servers {
		g.Go(serve)
	}
	if err := g.Wait(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func serveStream(stream net.Listener, say string) error {
	for {
		conn, err := stream.Accept()
		if err != nil {
			return err
		}
		_ = conn.SetDeadline(time.Now().Add(replyTimeout))
		_, _ = io.WriteString(conn, say) // a probe closes at once
		conn.Close()
	}
}

func servePackets(packets net.PacketConn, say string) error {
	buffer := make([]byte, 1<<10)
	for {
		_, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return err
		}
		_, _ = packets.WriteTo([]byte(say), from) // the client asks again
	}
}

// Ask asks all questions of a DNS server at once, and connects to the addresses in the answers. It tries what
// fails again for as long as patience.
func Ask(ctx context.Context, questions []plan.Question, server string,
	patience time.Duration) []plan.Answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make([]plan.Answer, len(questions))
	var all []func()
	for i, q := range questions {
		all = append(all, func() { answers[i] = askUntil(ctx, q, server) })
	}
	read.Parallel(all...)()
	return answers
}

// askUntil tries until it works, and returns the last result that was not cut short.
func askUntil(ctx context.Context, q plan.Question, server string) (last plan.Answer) {
	for {
		// A try has its own time, so that the last one is about the server and not about the end of patience.
		answer := tryQuestion(context.WithoutCancel(ctx), q, server)
		if answer.Worked() {
			return answer
		}
		select {
		case <-ctx.Done():
			return answer
		case <-time.After(retryPeriod):
		}
	}
}

func tryQuestion(ctx context.Context, q plan.Question, server string) (a plan.Answer) {
	question := ask.Question{Name: q.Name, Type: q.Type(), Timeout: replyTimeout}
	reply := ask.Address(ctx, question, "udp", server)
	if reply.Failure != "" {
		reply = ask.Address(ctx, question, "tcp", server)
	}
	a.DNS = q.Judge(reply)
	if a.DNS.Code != "" || q.Port == 0 {
		return a
	}
	for _, x := range []struct {
		network string
		outcome **plan.Outcome
	}{{"tcp", &a.TCP}, {"udp", &a.UDP}} {
		o := connect(ctx, q, x.network, reply)
		*x.outcome = &o
	}
	return a
}

// connect connects to each address in a reply, and returns the first result that is not good.
func connect(ctx context.Context, q plan.Question, network string, reply cause.Reply) (o plan.Outcome) {
	for _, address := range reply.Values {
		at := net.JoinHostPort(address, strconv.Itoa(q.Port))
		said, err := exchange(ctx, network, at)
		failure := ""
		if err != nil {
			failure = logging.Line(err)
		}
		if o = q.JudgeReply(network, at, said, failure); o.Code != "" {
			return o
		}
	}
	return o
}

// exchange returns what replies at an address.
func exchange(ctx context.Context, network, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if network == "tcp" {
		said, err := io.ReadAll(io.LimitReader(conn, 1<<10))
		return string(said), err
	}
	if _, err := io.WriteString(conn, "?"); err != nil {
		return "", err
	}
	buffer := make([]byte, 1<<10)
	n, err := conn.Read(buffer)
	if err != nil {
		return "", fmt.Errorf("no reply by UDP: %w", err)
	}
	return string(buffer[:n]), nil
}
