package secrets

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/acl"
)

// Password returns a function that reports whether the default user has a password; nil: none is asked for.
func (k *Keyring) Password() func(given string) bool {
	if k.Held().Default().TakesAny() {
		return nil
	}
	return func(given string) bool { return k.Current().Authenticate(acl.DefaultUser, given) != nil }
}

// TestUsersAreReadAgain: who watches is called once for each change, a wrong file is not taken, and no file opens a
// port that asked for a password.
func TestUsersAreReadAgain(t *testing.T) {
	file := write(t, "acl", "user a on >x ~* +@all\n")
	k, err := open(Config{ACLFile: file, Password: "sesame"})
	require.NoError(t, err)
	changes := 0
	k.Watch(func() { changes++ })
	require.NotNil(t, k.Current().Authenticate("a", "x"))
	require.NotNil(t, k.Current().Authenticate("default", "sesame"))
	require.NoError(t, os.WriteFile(file, []byte("user a on >y ~* +@all\n"), 0o600))
	require.NoError(t, k.Load("test"))
	require.NotNil(t, k.Held().Authenticate("a", "y"))
	require.Nil(t, k.Held().Authenticate("a", "x"))
	require.Equal(t, 1, changes)
	require.NoError(t, os.WriteFile(file, []byte("user a on >z nonsense\n"), 0o600))
	require.ErrorContains(t, k.Load("test"), "acl-file: "+file+":1: Syntax error")
	require.NotNil(t, k.Held().Authenticate("a", "y"))
	require.Equal(t, 1, changes)

	require.NoError(t, os.WriteFile(file, []byte("user default on >p ~* +@all\n"), 0o600))
	k, err = open(Config{ACLFile: file})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("user default on nopass ~* +@all\n"), 0o600))
	require.ErrorContains(t, k.Load("test"), "the default user would need no password any more")
	require.Nil(t, k.Held().Authenticate("default", ""))
	k, err = open(Config{ACLFile: file})
	require.NoError(t, err)
	require.True(t, k.Held().Default().Open())

	_, err = open(Config{ACLFile: file, Password: "x"})
	require.ErrorContains(t, err, "give it in one place")
	k, err = open(Config{Password: "x"})
	require.NoError(t, err)
	require.ErrorIs(t, k.Load("test"), acl.ErrNoFile)
}
