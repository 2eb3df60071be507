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

// A podServer replies at one address.
type podServer struct {
	stream  net.Listener
	packets net.PacketConn
	say     string
}

// Serve replies with say to each connection by TCP and each packet by UDP at these addresses, until ctx ends. It
// calls listening when it listens at all of them.
func Serve(ctx context.Context, addresses []string, say string, listening func()) (err error) {
	var servers []*podServer
	defer func() {
		for _, s := range servers {
			s.close()
		}
	}()
	for _, address := range addresses {
		s := &podServer{say: say}
		servers = append(servers, s)
		if s.stream, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err != nil {
			return err
		}
		if s.packets, err = new(net.ListenConfig).ListenPacket(ctx, "udp", address); err != nil {
			return err
		}
	}
	listening()
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range servers {
		stop := context.AfterFunc(ctx, s.close)
		defer stop()
		g.Go(s.serveStream)
		g.Go(s.servePackets)
	}
	if err := g.Wait(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (s *podServer) close() {
	if s.stream != nil {
		s.stream.Close()
	}
	if s.packets != nil {
		s.packets.Close()
	}
}

func (s *podServer) serveStream() error {
	for {
		conn, err := s.stream.Accept()
		if err != nil {
			return err
		}
		_ = conn.SetDeadline(time.Now().Add(replyTimeout))
		_, _ = io.WriteString(conn, s.say) // a probe closes at once
		conn.Close()
	}
}

func (s *podServer) servePackets() error {
	buffer := make([]byte, 1<<10)
	for {
		_, from, err := s.packets.ReadFrom(buffer)
		if err != nil {
			return err
		}
		_, _ = s.packets.WriteTo([]byte(s.say), from) // the client asks again
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
