package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server"
)

// TestDefaultsOnANode: a flag wins over a variable, and a variable over the file of the node's unit, which is heeded
// only if neither names a server.
func TestDefaultsOnANode(t *testing.T) {
	for _, name := range append(os.Environ(), envFileVariable+"=") {
		if name, _, _ = strings.Cut(name, "="); strings.HasPrefix(name, variablePrefix) {
			t.Setenv(name, "") // restored behind the test
			require.NoError(t, os.Unsetenv(name))
		}
	}
	const file = "# comment\n; HOLDFAST_PASSWORD=no\n\nHOLDFAST_ADDR=\"10.0.0.1:6400\"\n " +
		"HOLDFAST_PASSWORD_FILE='/p'\nHOLDFAST_TLS_CERT=/n.crt\nHOLDFAST_TLS_KEY=/n.key\n"
	addr := server.DefaultConfig().Addr
	password := func(c clientFlags) string {
		return strings.TrimSpace(c.user+" "+c.password.Password) + "|" + c.password.PasswordFile
	}
	for what, of := range map[string]struct {
		file, variables, flags     string
		server, password, ca, cert string
		from                       string
	}{
		"nothing": {server: addr, password: "|", from: noteDefault},
		"the file": {
			file: file, server: "10.0.0.1:6400", password: "|/p", ca: "/n.crt",
			from: "the address is from ",
		},
		"the file and its CA": {
			file: file + "HOLDFAST_TLS_CA=/ca.crt", server: "10.0.0.1:6400", password: "|/p",
			ca: "/ca.crt", from: "the address is from ",
		},
		"a node that asks": {
			file: file + "HOLDFAST_TLS_CLIENT_CA=/c", server: "10.0.0.1:6400", password: "|/p",
			ca: "/n.crt", cert: "/n.crt /n.key", from: "the address is from ",
		},
		"an address for clients": {
			file: file + "HOLDFAST_ADVERTISE_ADDR=n1.example:6379", server: "n1.example:6379",
			password: "|/p", ca: "/n.crt", from: "the address is from ",
		},
		"an address of outside": {
			file:   "HOLDFAST_ADDR=0.0.0.0:6400\nHOLDFAST_ADVERTISE_ADDR=localhost:6401",
			server: "127.0.0.1:6400", password: "|", from: "the address is from ",
		},
		"several nodes": {
			file: file + "HOLDFAST_SERVER=a:1,b:2", server: "a:1,b:2", password: "|/p", ca: "/n.crt",
			from: "the address is from ",
		},
		"all addresses": {
			file: "HOLDFAST_ADDR=0.0.0.0:6400", server: "127.0.0.1:6400", password: "|",
			from: "the address is from ",
		},
		"a file without address": {
			file: "HOLDFAST_PASSWORD=word", server: addr, password: "word|",
			from: "the address is from ",
		},
		"a flag names a server": {file: file, flags: "--server=c:1", server: "c:1", password: "|"},
		"a variable names it":   {file: file, variables: "HOLDFAST_SERVER=c:1", server: "c:1", password: "|"},
		"flag over variable": {
			file: file, variables: "HOLDFAST_SERVER=c:1", flags: "--server=d:1", server: "d:1",
			password: "|",
		},
		"password of a variable": {
			file: file, variables: "HOLDFAST_PASSWORD=word", server: "10.0.0.1:6400",
			password: "word|", ca: "/n.crt", from: "the address is from ",
		},
		"password of a flag": {
			file: file, flags: "--password=word", server: "10.0.0.1:6400", password: "word|",
			ca: "/n.crt", from: "the address is from ",
		},
		"user of the file": {
			file: file + "HOLDFAST_USER=ops", server: "10.0.0.1:6400", password: "ops|/p",
			ca: "/n.crt", from: "the address is from ",
		},
		"user of a flag": {
			file: file, flags: "--user=ops", server: "10.0.0.1:6400", password: "ops|", ca: "/n.crt",
			from: "the address is from ",
		},
		"user of a variable": {
			file: file, variables: "HOLDFAST_USER=ops HOLDFAST_PASSWORD=word",
			server: "10.0.0.1:6400", password: "ops word|", ca: "/n.crt", from: "the address is from ",
		},
		"CA of a flag": {
			file: file, flags: "--tls-ca=/own", server: "10.0.0.1:6400", password: "|/p", ca: "/own",
			from: "the address is from ",
		},
		"the system's CAs": {
			file: file, flags: "--tls", server: "10.0.0.1:6400", password: "|/p",
			from: "the address is from ",
		},
		"a container": {
			file:      file,
			variables: "HOLDFAST_ADDR=:6500 HOLDFAST_TLS_CERT=/m.crt HOLDFAST_TLS_KEY=/m.key", server: "127.0.0.1:6500",
			password: "|", ca: "/m.crt", cert: "/m.crt /m.key", from: noteVariables,
		},
		"a client's machine": {
			variables: "HOLDFAST_TLS_CERT=/m.crt HOLDFAST_TLS_KEY=/m.key HOLDFAST_SERVER=c:1",
			server:    "c:1", password: "|", cert: "/m.crt /m.key",
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "env")
			if of.file != "" {
				require.NoError(t, os.WriteFile(path, []byte(of.file), 0o600))
				t.Setenv(envFileVariable, path)
			} else {
				t.Setenv(envFileVariable, "")
			}
			for _, variable := range strings.Fields(of.variables) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			c := newClientFlags()
			_, err := parseRows(c.rows(), strings.Fields(of.flags), io.Discard, "")
			require.NoError(t, err)
			n := c.findNode()
			require.Equal(t, of.server, c.server)
			require.Equal(t, of.password, password(c))
			require.Equal(t, of.ca, c.tlsCA)
			require.Equal(t, of.cert, strings.TrimSpace(c.tlsCert+" "+c.tlsKey))
			require.Equal(t, of.from != "", n.note != "")
			require.Contains(t, n.note, of.from)
		})
	}
}

// TestFilesOfANode: errors say where an address and a file's name come from.
func TestFilesOfANode(t *testing.T) {
	t.Setenv("HOLDFAST_ADDR", "")
	t.Setenv("HOLDFAST_ADVERTISE_ADDR", "")
	closed := freeAddrs(t, 1)[0]
	path := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(path, []byte("HOLDFAST_ADDR="+closed+"\n"), 0o600))
	t.Setenv(envFileVariable, path)
	status, _, stderr := try(t, "cluster", "status")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "connection refused (the address is from "+path+")")
	require.NoError(t, os.WriteFile(path, []byte("HOLDFAST_PASSWORD_FILE="+path+".not\n"), 0o600))
	status, _, stderr = try(t, "cluster", "status")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "password-file: open "+path+".not")
	require.Contains(t, stderr, "(see "+path+")")
	t.Setenv(envFileVariable, path+".not")
	status, _, stderr = try(t, "cluster", "status", "--tls-ca", path+".no")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "tls-ca: ")
	require.Contains(t, findLocalNode().note, "the default address, since open "+path+".not: ")
}

// TestFlagsBeforeAWordWin: also when the variable is there.
func TestFlagsBeforeAWordWin(t *testing.T) {
	addrs := freeAddrs(t, 2)
	t.Setenv("HOLDFAST_SERVER", addrs[0])
	for _, args := range [][]string{
		{"cluster", "--server", addrs[1], "status"},
		{"locks", "--server", addrs[1], "history"},
		{"lock", "--wait", "0", "--server", addrs[1], "job", "--ttl", "1s", "--", "true"},
	} {
		_, _, stderr := try(t, args...)
		require.Contains(t, stderr, addrs[1]+": connect: connection refused", args)
		require.NotContains(t, stderr, addrs[0], args)
	}
}
