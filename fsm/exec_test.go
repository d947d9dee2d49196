package fsm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

func (d *driver) exec(watches []protocol.Watch, queued ...[]string) protocol.Value {
	var body []byte
	for _, words := range queued {
		body = request(body, d.db, words...)
	}
	replies := d.apply(protocol.AppendTransaction(nil, d.db, watches, body))
	require.Len(d.t, replies, 1)
	return replies[0]
}

func TestTransaction(t *testing.T) {
	d := newDriver(t)
	reply := d.exec(nil, []string{"set", "a", "x"}, []string{"incr", "a"}, []string{"get", "a"}, []string{"ping"})
	require.Equal(t, `[OK (ERR value is not an integer or out of range) "x" PONG]`, line(reply),
		"an error does not stop the others")
	require.Equal(t, protocol.KindArray, d.exec(nil).Kind, "empty")
	reply = d.exec(nil, []string{"exec", "", ""}, []string{"watch", "a"})
	require.Equal(t, "[(ERR MULTI calls can not be nested) (ERR WATCH inside MULTI is not allowed)]", line(reply))
}
