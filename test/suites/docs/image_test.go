//go:build image && linux

package docs

import (
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/test/harness/program"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// TestImage builds the server as the Dockerfile does, for both platforms, and starts that for this machine in a root
// folder with what the last stage holds, as its user. The image gets there what a cluster would mount: a Corefile, and
// the token of its ServiceAccount, which has the rights that docs/deployment.md grants.
//
// It needs root, or a system that lets users make user namespaces.
func TestImage(t *testing.T) {
	need(t)
	f := parseDockerfile(t)
	context := copyContext(t)
	built := map[string]string{} // folders
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		built[arch] = f.buildFor(t, context, arch)
		for _, program := range []string{"coredns", "clusterset"} {
			checkStatic(t, filepath.Join(built[arch], program), machine)
		}
	}
	bin := built[runtime.GOARCH]
	if bin == "" {
		t.Fatalf("the image is not built for %s", runtime.GOARCH)
	}

	image := t.TempDir()
	f.fill(t, image, context, bin)
	f.starts(t, image)
}

// imageVersion is the version of the programs that the test builds.
const imageVersion = "v0.0.0-test"

// starts runs the programs in the root folder of a container: the server, with the mounts of a cluster, and the
// command.
func (f dockerfile) starts(t *testing.T, image string) {
	t.Helper()
	apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: coredns, namespace: kube-system}\n")
	apply(t, blocks(section(t, deploymentDoc, "Rights"), "yaml")[0])
	apply(t, inTreeRights)
	kubeconfig, err := api.ServiceAccountKubeconfig(t.Context(), "kube-system", "coredns")
	if err != nil {
		t.Fatal(err)
	}
	c := localize(t, read(t, "corefile.example"), "")
	command := subprocess.Command{Dir: "/", Env: mount(t, image, c.text, kubeconfig), SysProcAttr: f.confined(t, image)}
	command.Bin, command.Args = f.command(t)
	s, err := server.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Await(t.Context(), serving(c.dns)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.Output(), "+clusterset-"+imageVersion+"\n") {
		t.Errorf("output = %s\nwant the version that was built", s.Output())
	}
	dig(t, c.dns, "db-0.south.registry1.db.shop.svc.clusterset.local", "10.3.0.20")
	dig(t, c.dns, "kubernetes.default.svc.cluster.local", "10.96.0.1")

	command = subprocess.Command{Bin: "/clusterset", Args: []string{"version"}, Dir: "/",
		SysProcAttr: f.confined(t, image)}
	said, err := subprocess.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	if err := said.Wait(t.Context()); err != nil || !strings.Contains(said.Out.String(), imageVersion) {
		t.Errorf("/clusterset version: %v, %s\nwant the version that was built", err, said.Out.String())
	}
}

func serving(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, name := range []string{web, "kubernetes.default.svc.cluster.local."} {
			reply, err := server.Ask(ctx, address, name, dns.TypeA)
			if err != nil {
				return err
			}
			if len(reply.Answer) == 0 {
				return fmt.Errorf("%s: %s", name, dns.RcodeToString[reply.Rcode])
			}
		}
		return nil
	}
}

// inTreeRights are those that a cluster's DNS server has already.
const inTreeRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "test:coredns"}
rules:
  - {apiGroups: [""], resources: [services, namespaces, pods], verbs: [list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "test:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "test:coredns"}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
`

// copyContext makes a folder of what .dockerignore lets through. It lists what is wanted, so it must be enough.
func copyContext(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for line := range strings.Lines(read(t, ".dockerignore")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || line == "*" {
			continue
		}
		pattern, ok := strings.CutPrefix(line, "!")
		if !ok {
			t.Fatalf(".dockerignore: %q: this test knows exceptions from * only", line)
		}
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range matches {
			if out, err := exec.CommandContext(t.Context(), "cp", "-r", m, dir).CombinedOutput(); err != nil {
				t.Fatalf("copy %s: %v\n%s", m, err, out)
			}
		}
	}
	return dir
}

// out is where the first stage puts the programs.
const out = "/out/"

// buildFor runs the command of the first stage and returns the folder of what it makes.
func (f dockerfile) buildFor(t *testing.T, context, arch string) string {
	t.Helper()
	bin := t.TempDir()
	if strings.Count(f.build, out) != 1 {
		t.Fatalf("RUN %s: want %s as the output", f.build, out)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(f.build, out, bin+"/", 1))
	cmd.Dir = context
	// Without the profile of cmd/coredns, which takes minutes to build with and changes nothing but speed.
	cmd.Env = append(os.Environ(), "PGO=off", "TARGETOS=linux", "TARGETARCH="+arch, "VERSION="+imageVersion)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("RUN %s: %v\n%s", f.build, err, said)
	}
	return bin
}

func checkStatic(t *testing.T, bin string, machine elf.Machine) {
	t.Helper()
	file, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Machine != machine {
		t.Errorf("%s is for %s, want %s", bin, file.Machine, machine)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has a %s segment, want a static program", bin, p.Type)
		}
	}
}

// fill copies into the folder what the last stage copies.
func (f dockerfile) fill(t *testing.T, image, context, bin string) {
	t.Helper()
	for _, args := range f.final["COPY"] {
		words := strings.Fields(args)
		from, to := words[len(words)-2], words[len(words)-1]
		var content []byte
		var err error
		switch {
		case words[0] != "--from=build":
			content, err = os.ReadFile(filepath.Join(context, from))
		case strings.HasPrefix(from, out):
			content, err = os.ReadFile(filepath.Join(bin, strings.TrimPrefix(from, out)))
		case from == "/etc/ssl/certs/ca-certificates.crt": // Debian's, of which this test needs none.
		default:
			t.Fatalf("COPY %s: this test does not know where that comes from", args)
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(image, to), content, 0o755)
	}
}

func write(t *testing.T, name string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, mode); err != nil {
		t.Fatal(err)
	}
}

// mount puts into the folder what a cluster mounts, and returns the environment of the container.
func mount(t *testing.T, image, corefile, kubeconfig string) []string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	const account = "var/run/secrets/kubernetes.io/serviceaccount"
	write(t, filepath.Join(image, account, "token"), []byte(config.BearerToken), 0o644)
	write(t, filepath.Join(image, account, "ca.crt"), config.CAData, 0o644)
	write(t, filepath.Join(image, "etc/coredns/Corefile"), []byte(corefile), 0o644)
	return []string{"KUBERNETES_SERVICE_HOST=" + host.Hostname(), "KUBERNETES_SERVICE_PORT=" + host.Port()}
}

// confined makes the image the root folder and its user the user.
func (f dockerfile) confined(t *testing.T, image string) syscall.SysProcAttr {
	t.Helper()
	user, group, _ := strings.Cut(f.one(t, "USER"), ":")
	uid, err := strconv.Atoi(user)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.Atoi(group)
	if err != nil {
		t.Fatal(err)
	}
	attr := syscall.SysProcAttr{
		Chroot:     image,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: os.Geteuid() != 0},
	}
	if os.Geteuid() != 0 {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// command is what the container runs.
func (f dockerfile) command(t *testing.T) (bin string, args []string) {
	t.Helper()
	for _, instruction := range []string{"ENTRYPOINT", "CMD"} {
		var words []string
		if err := json.Unmarshal([]byte(f.one(t, instruction)), &words); err != nil {
			t.Fatalf("Dockerfile: %s: %v", instruction, err)
		}
		args = append(args, words...)
	}
	return args[0], args[1:]
}

func dig(t *testing.T, address, name, want string) {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	out, err := exec.CommandContext(t.Context(), program.Find(t, "dig"), "-r", "@"+host, "-p", port, "+short", name,
		"A").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("dig %s A = %s, %v, want %s", name, out, err, want)
	}
}
