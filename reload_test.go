package clusterset

import (
	"bytes"
	"context"
	"log"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharing: which settings of two blocks, or of a block before and after a reload, let them share a store.
func TestSharing(t *testing.T) {
	in := files(t)
	for _, tt := range []struct {
		name, one, other string
		same             bool
	}{
		{"nothing differs", "", "", true},
		{"answers differ", "ttl 5", "ttl 6\npolicy all\nmax_answers 3\nfallthrough\nstartup_timeout 9s", true},
		{"order differs", "namespaces a b", "namespaces b a", true},
		{"namespaces differ", "namespaces a", "namespaces b", false},
		{"labels differ", "labels a=b", "labels a=c", false},
		{"labels of namespaces differ", "namespace_labels a", "", false},
		{"limits differ", "apiserver_qps 5", "apiserver_qps 6", false},
		{"endpoints or none", "noendpoints", "", false},
	} {
		block := "clusterset {\nkubeconfig {kubeconfig}\n"
		one, other := specOf(t, in.Replace(block+tt.one+"\n}")), specOf(t, in.Replace(block+tt.other+"\n}"))
		p := instances{ctx: t.Context()}
		inst := p.create()
		a, err := p.acquire(inst, one)
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.acquire(inst, other)
		if err != nil {
			t.Fatal(err)
		}
		if same := a.sharedStore == b.sharedStore; same != tt.same {
			t.Errorf("%s: same = %t, want %t", tt.name, same, tt.same)
		}
		p.release(inst)
	}
}

// TestSnapshotOfTwo: two blocks may write to one snapshot file only if they see the same objects.
func TestSnapshotOfTwo(t *testing.T) {
	in := files(t)
	for _, tt := range []struct{ name, other, want string }{
		{"the same objects", "cluster_names off", ""},
		{"other objects", "namespaces a", "want a file of its own"},
		{"another file", "namespaces a\nsnapshot {dir}/b", ""},
	} {
		p := instances{ctx: t.Context()}
		inst := p.create()
		if _, err := p.acquire(inst, specOf(t, in.Replace(
			"clusterset {\nkubeconfig {kubeconfig}\nsnapshot {dir}/a\n}"))); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(tt.other, "snapshot") {
			tt.other += "\nsnapshot {dir}/a"
		}
		_, err := p.acquire(inst, specOf(t, in.Replace("clusterset {\nkubeconfig {kubeconfig}\n"+tt.other+"\n}")))
		if got := errorText(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		p.release(inst)
	}
}

// TestSyncInTheLastMoment: a start with its first sync just at the end of its time does not report that it lacks it.
func TestSyncInTheLastMoment(t *testing.T) {
	p := instances{ctx: t.Context()}
	inst := p.create()
	ref, err := p.acquire(inst, specOf(t, "clusterset {\nmanifests "+t.TempDir()+"\n}"))
	if err != nil {
		t.Fatal(err)
	}
	p.start(inst)
	<-ref.store.Synced()
	inst.started = time.Now().Add(-time.Hour)
	var logged bytes.Buffer
	before := log.Writer()
	defer log.SetOutput(before)
	log.SetOutput(&logged)
	for range 50 { // Each time, the sync and the end of the time are both there to be chosen.
		inst.waitForSync(ref, time.Second)
	}
	p.release(inst)
	log.SetOutput(before)
	if strings.Contains(logged.String(), "without the first sync") {
		t.Errorf("logged %s", &logged)
	}
}

// A task that hangs, as in a credential plugin of the kubeconfig, delays a reload or the exit by endPatience at most.
func TestReleaseOfWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		p := instances{ctx: t.Context()}
		inst := p.create()
		p.stores = append(p.stores, &sharedStore{run: startTask(p.ctx, "hangs", func(context.Context) error {
			<-hang
			return nil
		})})
		begin := time.Now()
		if p.release(inst); time.Since(begin) != endPatience {
			t.Errorf("released after %s, want %s", time.Since(begin), endPatience)
		}
		close(hang)
	})
}

// An API server that accepts connections and never answers does not delay the start of other blocks.
func TestStartBesideASilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p := instances{ctx: t.Context()}
	inst := p.create()
	inst.initial = true
	in := files(t)
	for _, block := range []string{"manifests " + t.TempDir(), "kubeconfig {kubeconfig}"} {
		s := specOf(t, in.Replace("clusterset {\n"+block+"\n}"))
		if s.REST != nil {
			s.REST.Host = "https://" + silent.Addr().String()
		}
		if _, err := p.acquire(inst, s); err != nil {
			t.Fatal(err)
		}
	}
	p.start(inst)
	for _, ref := range inst.refs {
		inst.waitForSync(ref, time.Hour)
	}
	if last := inst.refs[1]; last.store.State().Ready {
		t.Error("the silent server has sent a list")
	}
	p.release(inst)
}
