//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memberBook runs the commands of a chapter of the operator's pages. The machines n1, n2 and so on are folders, and
// their addresses are free ports of this one.
type memberBook struct {
	t        *testing.T
	exe, dir string
	words    []string // what stands in the document and for what it stands here, in turns
	machines map[string]*node
}

func newMemberBook(t *testing.T, machines int) *memberBook {
	r := &memberBook{t: t, exe: build(t), dir: t.TempDir(), machines: make(map[string]*node)}
	addrs := freeAddrs(t, 2*machines)
	for i := range machines {
		host := "10.0.0." + string(rune('1'+i))
		r.words = append(r.words, host+":6379", addrs[2*i], host+":7379", addrs[2*i+1])
	}
	for _, secret := range []string{"password", "cluster-secret"} {
		path := filepath.Join(r.dir, secret)
		require.NoError(t, os.WriteFile(path, []byte("open "+secret+"\n"), 0o600))
		r.words = append(r.words, "/etc/holdfast/"+secret, path)
	}
	return r
}

// chapterCommands are the command lines of a chapter: "n1$ holdfast …".
func chapterCommands(t *testing.T, chapter string) [][]string {
	_, text, ok := strings.Cut(operatorPages(t), "\n### "+chapter+"\n")
	require.True(t, ok, "no chapter %q", chapter)
	chapterText := regexp.MustCompile(`(?m)^##`).Split(text, 2)[0]
	chapterText = strings.ReplaceAll(chapterText, "\\\n", " ")
	var lines [][]string
	for _, m := range regexp.MustCompile(`(?m)^(n\d)\$ holdfast (.*)$`).FindAllStringSubmatch(chapterText, -1) {
		lines = append(lines, append([]string{m[1]}, strings.Fields(m[2])...))
	}
	require.NotEmpty(t, lines, "chapter %q has no commands", chapter)
	return lines
}

// run runs a chapter, and requires that each command ends well.
func (r *memberBook) run(chapter string) {
	r.t.Helper()
	for _, line := range chapterCommands(r.t, chapter) {
		r.command(line[0], line[1:])
	}
}

func (r *memberBook) command(machine string, words []string) {
	r.t.Helper()
	all := strings.NewReplacer(append(r.words, "/var/lib/holdfast", filepath.Join(r.dir, machine))...)
	for i := range words {
		words[i] = all.Replace(words[i])
	}
	if words[0] == "serve" {
		if n := r.machines[machine]; n != nil {
			n.stop(r.t)
		}
		n := newNode(r.t, r.exe, machine, "", words...)
		n.start(r.t)
		r.machines[machine] = n
		r.awaits(machine, slices.Contains(words, "--non-voter"))
		return
	}
	out, err := exec.Command(r.exe, words...).CombinedOutput()
	for end := time.Now().Add(time.Minute); err != nil && words[1] == "status" && time.Now().Before(end); {
		out, err = exec.Command(r.exe, words...).CombinedOutput() // the document says to wait for it
	}
	require.NoError(r.t, err, "%s$ holdfast %s\n%s", machine, strings.Join(words, " "), out)
	r.t.Logf("%s$ holdfast %s\n%s", machine, strings.Join(words, " "), out)
}

// members are what `holdfast cluster members` says, a line for each by name.
func (r *memberBook) members() map[string]string {
	password := filepath.Join(r.dir, "password")
	out, _ := exec.Command(r.exe, "cluster", "members", "--server", r.words[1], "--password-file", password).Output()
	all := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, rest, _ := strings.Cut(line, " ")
		all[name] = rest
	}
	return all
}

// awaits waits until a machine is a member at the address that it was given.
func (r *memberBook) awaits(machine string, nonVoter bool) {
	r.t.Helper()
	votes := "yes"
	if nonVoter {
		votes = "no"
	}
	args := r.machines[machine].args
	addr := args[slices.Index(args, "--peer-addr")+1]
	like := regexp.MustCompile(` ` + votes + ` .* ` + regexp.QuoteMeta(addr))
	require.Eventually(r.t, func() bool { return like.MatchString(r.members()[machine]) }, 60*time.Second,
		100*time.Millisecond, "%s is no member", machine)
}

// TestOperatingMembers runs the chapters about members as they are written.
func TestOperatingMembers(t *testing.T) {
	r := newMemberBook(t, 6)
	initial := "n1=10.0.0.1:7379,n2=10.0.0.2:7379,n3=10.0.0.3:7379"
	all := strings.NewReplacer(r.words...)
	for i, name := range []string{"n1", "n2", "n3"} {
		n := newNode(t, r.exe, name, "",
			"serve", "--name", name, "--addr", r.words[4*i+1], "--peer-addr", r.words[4*i+3],
			"--data-dir", filepath.Join(r.dir, name), "--initial-cluster", all.Replace(initial),
			"--password-file", filepath.Join(r.dir, "password"), "--cluster-secret-file", filepath.Join(r.dir, "cluster-secret"))
		n.start(t)
		r.machines[name] = n
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		r.awaits(name, false)
	}
	r.run("Add a node")
	r.run("Remove a node")
	<-r.machines["n4"].Done()
	require.Equal(t, 4, r.machines["n4"].ExitCode(), "a removed node has its own status")
	r.run("Replace a node")
	<-r.machines["n3"].Done()
	require.NotContains(t, r.members(), "n3")
	require.Contains(t, r.members()["n5"], " yes ")
	r.machines["n2"].Kill()
	require.NoError(t, os.RemoveAll(filepath.Join(r.dir, "n2")))
	delete(r.machines, "n2")
	r.run("Replace a node that is lost")
	r.run("Move a node to another address")
	r.run("Have another node lead")
	require.Len(t, r.members(), 4, "three members and a heading")
}
