package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// differences are the questions whose reply from the plugin kubernetes would be wrong for ours.
type differences struct {
	list     []difference
	complete bool // every file was compared
}

type difference struct {
	question string // "file: name TYPE"
	got      golden.Reply
	want     golden.Want
}

func (d *differences) add(f *golden.File, theirs []golden.Reply) {
	for i, got := range theirs {
		if c := f.Cases[i]; !c.Want.Permits(got) {
			d.list = append(d.list, difference{fmt.Sprintf("%s: %s", f.Name, c.Question), got, c.Want})
		}
	}
}

// build builds the server with all plugins. The plugin kubernetes runs as a subprocess: each start of it sets the
// logger of the process while goroutines of an earlier start still log, which is a data race.
func build(t *testing.T) string {
	t.Helper()
	bin, err := server.Program(t.Context(), "coredns")
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// reap ends a program when its standard input does: when the test is over, or its process has ended.
const reap = `"$@" >&2 & read -r _; kill -9 $!`

// startProgram starts a server and waits until it listens on p, which it does when it has all objects.
func startProgram(t *testing.T, program, corefile string, p *controlplane.Port) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(path, []byte(corefile), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", reap, "sh", program, "-conf", path)
	var output bytes.Buffer
	cmd.Stderr = &output
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // It was killed.
		if t.Failed() {
			t.Logf("the plugin kubernetes says:\n%s", &output)
		}
	})
	until.OK(t, "start of the plugin kubernetes", func(context.Context) error {
		conn, err := net.Dial("tcp", p.String())
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// silence stands for a question that gets no reply at all.
var silence = golden.Reply{Head: "no reply"}

// unreadable stands for a reply that is no message.
var unreadable = golden.Reply{Head: "unreadable reply"}

// askTheirs asks the plugin kubernetes. The server answers what comes over one connection in its order, so a question
// that has no reply when the next one has will never get one.
func askTheirs(t *testing.T, p *controlplane.Port, f *golden.File) (replies []golden.Reply) {
	t.Helper()
	conn, err := dns.DialTimeout("tcp", p.String(), until.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(until.Patience)); err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Cases {
		query, mark := c.Message(), new(dns.Msg).SetQuestion(dns.Fqdn(f.Zones[0]), dns.TypeSOA)
		mark.Id = query.Id + 1
		for _, m := range []*dns.Msg{query, mark} {
			if err := conn.WriteMsg(m); err != nil {
				t.Fatalf("%s: %s", c.Question, err)
			}
		}
		reply := silence
		for {
			m, err := conn.ReadMsg()
			if m == nil {
				t.Fatalf("%s: %s", c.Question, err)
			}
			if m.Id == mark.Id {
				break
			}
			reply = golden.NewReply(m)
			if err != nil {
				reply = unreadable
			}
		}
		replies = append(replies, reply)
	}
	return replies
}

// A pattern is one line of the document. It matches questions, with * for any text.
type pattern struct {
	text string
	used bool
}

// patterns reads the lines between "```differences" and "```" of a document.
func patterns(t *testing.T, file string) (list []*pattern) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inside := false
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```differences"
		case inside && line != "":
			list = append(list, &pattern{text: line})
		}
	}
	return list
}

// check compares the differences with the document: each is in it, and each line of it has one.
func (d *differences) check(t *testing.T, file string) {
	known := patterns(t, file)
	for _, x := range d.list {
		found := false
		for _, p := range known {
			ok, err := path.Match(p.text, x.question)
			if err != nil {
				t.Fatalf("%s: line %q: %s", file, p.text, err)
			}
			p.used = p.used || ok
			found = found || ok
		}
		if !found {
			t.Errorf("%s\nthe plugin kubernetes replies\n%s\nwant (or a line in %s)\n%s", x.question, x.got, file, x.want)
		}
	}
	for _, p := range known {
		if d.complete && !p.used {
			t.Errorf("%s: line %q: no such difference any more", file, p.text)
		}
	}
}
