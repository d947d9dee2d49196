package frontend

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/acl"
)

// asks is a server that asks for a password; empty: for none.
func asks(password string) Users {
	if password == "" {
		return nil
	}
	return onlyUser{acl.Only(acl.PasswordOf(password))}
}

// TestFailedAuthIsLogged: who gives a wrong password is named once a second at most, with how many came meanwhile, and
// never with the password.
func TestFailedAuthIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := start(t, Config{Users: asks("open sesame")}, newCluster())
		s.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c := s.dial()
		for range 100 {
			c.send([]byte("AUTH guessed\r\n"))
		}
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "authentication failed"), "%s", log.String())
		time.Sleep(time.Second)
		c.send([]byte("HELLO 3 AUTH " + strings.Repeat("u", 1000) + " guessed\r\n"))
		c.send([]byte("AUTH \"open sesame\"\r\n"))
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], "user=default not_logged_before=0")
		require.Contains(t, lines[0], "client=")
		require.Contains(t, lines[1], "user="+strings.Repeat("u", mostOfUser)+" not_logged_before=99")
		require.NotContains(t, log.String(), "guessed")
		require.Equal(t, uint64(101), s.metrics.Refused.Load())
		s.stop()
	})
}
