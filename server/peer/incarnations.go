package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
)

// self returns this node's introduction.
func (m *Mux) self(k Kind) introduction {
	cluster := m.config.ClusterID()
	if cluster == "" {
		cluster = anyCluster
	}
	return introduction{kind: k, cluster: cluster, id: m.config.ID, lineage: m.config.Incarnations.Lineage()}
}

func (m *Mux) checkIncarnation(who introduction) error {
	if who.cluster == anyCluster { // the node need not be of this cluster
		return nil
	}
	return m.config.Incarnations.Check(who.id, who.lineage)
}

// admit records an authenticated peer's incarnation as its latest, and closes the connections of earlier ones. The
// connection also proves that the peer admits this node's incarnation.
func (m *Mux) admit(who introduction) error {
	if who.cluster == anyCluster { // the node need not be of this cluster
		return nil
	}
	changed, err := m.config.Incarnations.Admit(who.id, who.lineage)
	if err != nil {
		return err
	}
	if changed {
		for _, l := range m.layers {
			l.cutOff(who.id, who.lineage.Current())
		}
	}
	m.config.Incarnations.Vouch(who.id, who.kind == KindAppend)
	return nil
}

// Revoke closes a node's connections, and refuses all of its incarnations from now on.
func (m *Mux) Revoke(id string) error {
	err := m.config.Incarnations.Revoke(id)
	for _, l := range m.layers {
		l.cutOff(id, 0)
	}
	return err
}

// cutOff closes the connections of a node's other incarnations.
func (l *Layer) cutOff(id string, current uint64) {
	var others []*Conn
	l.mu.Lock()
	for c := range l.conns { // unordered: all of them are closed
		if c.id == id && c.lineage.Current() != current {
			others = append(others, c)
		}
	}
	l.mu.Unlock()
	for _, c := range others {
		_ = c.Close()
	}
}

// isSuperseded reports whether a later incarnation of a node was admitted since the handshake. Requires: c was adopted,
// so that a later cutOff closes it.
func (m *Mux) isSuperseded(c *Conn) bool {
	return !c.anyCluster && m.config.Incarnations.Check(c.id, c.lineage) != nil
}

var errUnproved = errors.New("this node has not proved its incarnation yet")

// awaitProved waits until this node may have connections of that kind: before its incarnation is confirmed it neither
// votes nor acknowledges nor serves.
func (m *Mux) awaitProved(ctx context.Context, k Kind) error {
	if k == KindMember {
		return nil
	}
	timer := time.NewTimer(m.config.HandshakeTimeout)
	defer timer.Stop()
	select {
	case <-m.config.Incarnations.Proved():
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return errUnproved
}

// refuseSuperseded refuses an authenticated dialer, and sendSuperseded an acceptor, whose later incarnation is in why.
func refuseSuperseded(conn net.Conn, why error, secret, transcript []byte) {
	sendKnown(conn, why, append([]byte{byte(statusSuperseded)}, proof(secret, "superseded", transcript)...))
}

func sendSuperseded(conn net.Conn, why error, secret, transcript []byte) {
	sendKnown(conn, why, proof(secret, "supersede", transcript))
}

func sendKnown(conn net.Conn, why error, before []byte) {
	var superseded *incarnation.SupersededError
	if errors.As(why, &superseded) {
		_, _ = conn.Write(binary.BigEndian.AppendUint64(before, superseded.Known))
	}
}

// readSuperseded reads, after a valid proof, which incarnation of this node the peer knows, and records it.
func (m *Mux) readSuperseded(conn net.Conn, id string) error {
	var known [8]byte
	if n, err := io.ReadFull(conn, known[:]); err != nil {
		return fmt.Errorf("read incarnation: %w", silence(err, n))
	}
	m.config.Incarnations.Superseded(members.Name(id), binary.BigEndian.Uint64(known[:]))
	return fmt.Errorf("node %q refused: %w", id, incarnation.ErrSuperseded)
}
