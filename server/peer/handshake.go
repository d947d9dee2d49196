package peer

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/holdfast/holdfast/server/incarnation"
)

// The handshake, inside TLS if there is TLS. D dials, A accepts:
//
//	D→A  hello      "HOLDFAST" version kind nonce[32] length(2) cluster length(1) ID lineage
//	A→D  challenge  status version [nonce[32] length(1) ID lineage]    the rest only if status is ok
//	D→A  proof      HMAC-SHA256(secret, "dial" transcript)             by one of the secrets that A knows
//	     or         HMAC-SHA256(secret, "supersede" transcript) incarnation(8), and that is the end
//	A→D  verdict    status [HMAC-SHA256(secret, "accept" transcript)]
//	     or         status HMAC-SHA256(secret, "superseded" transcript) incarnation(8)
//
// A lineage is a list of incarnations: see package incarnation. D checks A's before the proof, so that a proof to dial
// also proves that D admits A. A checks D's before the verdict, which it sends only to an authenticated node. A report
// of a later incarnation is authenticated, too, so that no stranger can end a node with one.
//
// A dialer of another version is refused with A's version, in a format that all versions share: the magic and the
// version in the hello, the status and the version in the answer.
//
// The transcript is SHA-256 over hello, challenge and, with TLS, keying material of the TLS session. A proof is thus
// invalid on another connection, in the other direction, for another kind, cluster or ID, and beyond a man in the
// middle that terminates TLS. The dialer proves itself first, so that a stranger gets nothing from which to guess the
// secret. Without a secret the same bytes are sent with an empty key, and prove nothing.
const (
	magic      = "HOLDFAST"
	version    = 1
	nonceSize  = 32
	maxID      = 255  // bytes
	maxCluster = 4096 // bytes
	// anyCluster replaces the cluster in the hello of a dialer that does not know it yet. Only KindMember accepts it.
	anyCluster = "?"
)

// status is the acceptor's answer to the dialer: ok, or the reason of a refusal.
type status byte

const (
	statusOK status = iota
	statusVersion
	statusCluster
	statusKind
	statusSelf
	statusSecret
	statusRemoved
	statusFresh
	statusSuperseded
)

// Reasons for refusing, on either side.
var (
	errTooMany   = errors.New("too many connections that have not said who they are")
	errCluster   = errors.New("it belongs to another cluster")
	errFresh     = errors.New("it belongs to no cluster yet")
	errNoCluster = errors.New("this node belongs to no cluster yet")
	errImpostor  = errors.New("it could not prove that it knows the cluster secret")
	errMalformed = errors.New("its introduction is malformed")
)

// ErrSelf is the error of a connection of this node with itself or with a copy of itself.
var ErrSelf = errors.New("it has the same ID as this node: the address leads back here, or a data folder was copied")

// ErrSecret is the error of a peer that proved no secret known to this node.
var ErrSecret = errors.New("it has another cluster secret, or none")

// ErrRemoved is the error of a peer that was removed from the cluster.
var ErrRemoved = errors.New("it was removed from the cluster")

// introduction is the part of a hello or a challenge that describes its sender.
type introduction struct {
	kind    Kind
	cluster string
	id      string
	lineage incarnation.Lineage
}

// introduce runs the dialer's side of the handshake with that secret, and returns the acceptor's introduction. If want
// is set, only the node of that ID is accepted.
func (m *Mux) introduce(conn net.Conn, self introduction, want string, secret []byte) (net.Conn, introduction, error) {
	var other introduction
	conn, binding, err := m.tls.client(conn)
	if err != nil {
		return nil, other, err
	}
	hello := appendHello(nil, self)
	if _, err := conn.Write(hello); err != nil {
		return nil, other, m.tls.explainWrite(conn, err)
	}
	challenge, other, err := readChallenge(conn)
	if errors.Is(err, errYouRemoved) && m.config.OnRemoved != nil {
		m.config.OnRemoved()
	}
	if err != nil {
		return nil, other, m.tls.cutOff(err)
	}
	if err := m.checkID(other.id, want); err != nil {
		return nil, other, err
	}
	other.kind, other.cluster = self.kind, self.cluster
	transcript := hash(hello, challenge, binding)
	if err := m.checkIncarnation(other); err != nil {
		sendSuperseded(conn, err, secret, transcript)
		return nil, other, fmt.Errorf("node %q: %w", other.id, err)
	}
	if _, err := conn.Write(proof(secret, "dial", transcript)); err != nil {
		return nil, other, fmt.Errorf("write proof: %w", err)
	}
	if err := m.readVerdict(conn, other.id, secret, transcript); err != nil {
		return nil, other, err
	}
	return conn, other, m.admit(other)
}

// readVerdict returns nil if the acceptor has accepted the proof, and has proved itself.
func (m *Mux) readVerdict(conn net.Conn, id string, secret, transcript []byte) error {
	var verdict [1]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return fmt.Errorf("read verdict: %w", silence(err, 0))
	}
	switch s := status(verdict[0]); s {
	case statusOK:
		if _, _, err := checkProof(conn, [][]byte{secret}, transcript, "accept"); err != nil {
			return fmt.Errorf("node %q: %w", id, err)
		}
		return nil
	case statusSuperseded:
		if _, _, err := checkProof(conn, [][]byte{secret}, transcript, "superseded"); err != nil {
			return fmt.Errorf("node %q: %w", id, err)
		}
		return m.readSuperseded(conn, id)
	default:
		return refusedBy(id, s, version)
	}
}

// checkID returns an error unless the acceptor is the node that was dialed: a node with an emptied folder must not get
// messages for its predecessor at the address, such as raft's requests for votes.
func (m *Mux) checkID(id, want string) error {
	switch {
	case id == m.config.ID:
		return ErrSelf
	case want != "" && want != id:
		return fmt.Errorf("node %q answers where node %q was expected", id, want)
	}
	return nil
}

// answer runs the acceptor's side of the handshake.
func (m *Mux) answer(ctx context.Context, conn net.Conn) (net.Conn, introduction, error) {
	conn, binding, err := m.tls.server(conn)
	if err != nil {
		return nil, introduction{}, err
	}
	hello, peer, err := readHello(conn)
	if err != nil {
		var v *versionError
		if errors.As(err, &v) {
			_, _ = conn.Write([]byte{byte(statusVersion), version})
			drain(conn)
		}
		return nil, peer, err
	}
	if s, err := m.judge(peer); err != nil {
		_, _ = conn.Write([]byte{byte(s), version})
		return nil, peer, &peerError{peer: peer, err: err}
	}
	challenge := appendChallenge(nil, introduction{id: m.config.ID, lineage: m.config.Incarnations.Lineage()})
	if _, err := conn.Write(challenge); err != nil {
		return nil, peer, fmt.Errorf("write challenge: %w", err)
	}
	transcript := hash(hello, challenge, binding)
	secret, label, err := checkProof(conn, m.secrets(), transcript, "dial", "supersede")
	if err == nil && label == "supersede" {
		err = m.readSuperseded(conn, peer.id)
	}
	if err != nil {
		if errors.Is(err, errImpostor) {
			_, _ = conn.Write([]byte{byte(statusSecret)})
		}
		return nil, peer, &peerError{peer: peer, err: err}
	}
	if err := m.admit(peer); err != nil {
		refuseSuperseded(conn, err, secret, transcript)
		return nil, peer, &peerError{peer: peer, err: err}
	}
	if err := m.awaitProved(ctx, peer.kind); err != nil {
		return nil, peer, err
	}
	verdict := append([]byte{byte(statusOK)}, proof(secret, "accept", transcript)...)
	if _, err := conn.Write(verdict); err != nil {
		return nil, peer, fmt.Errorf("write verdict: %w", err)
	}
	return conn, peer, nil
}

// drain reads the rest of the hello of a dialer of another version, as closing with unread data would reset the
// connection before the dialer has read the reason.
func drain(conn net.Conn) {
	_, _ = io.CopyN(io.Discard, conn, 2*maxCluster)
}

func (m *Mux) judge(peer introduction) (status, error) {
	member := peer.kind == KindMember
	switch own := m.config.ClusterID(); {
	case member && peer.cluster == anyCluster: // the cluster is not checked
	case own == "":
		return statusFresh, errNoCluster
	case peer.cluster != own:
		return statusCluster, fmt.Errorf("%w: %q", errCluster, truncate(peer.cluster))
	}
	switch {
	case m.layers[peer.kind] == nil:
		return statusKind, fmt.Errorf("it wants a connection of an unknown kind (%s)", peer.kind)
	case peer.id == m.config.ID:
		return statusSelf, ErrSelf
	case !member && m.config.Removed != nil && m.config.Removed(peer.id):
		return statusRemoved, ErrRemoved
	default:
		return statusOK, nil
	}
}

func hash(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p) // unambiguous: hello and challenge contain their lengths, and binding is last
	}
	return h.Sum(nil)
}

func appendNonce(dst []byte) []byte {
	var nonce [nonceSize]byte
	_, _ = rand.Read(nonce[:]) // never fails, by the documentation
	return append(dst, nonce[:]...)
}

func appendHello(dst []byte, who introduction) []byte {
	dst = append(dst, magic...)
	dst = append(dst, version, byte(who.kind))
	dst = appendNonce(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(who.cluster)))
	dst = append(dst, who.cluster...)
	return appendSelf(dst, who)
}

// appendSelf appends the ID and lineage of an introduction.
func appendSelf(dst []byte, who introduction) []byte {
	dst = append(dst, byte(len(who.id)))
	dst = append(dst, who.id...)
	return who.lineage.Append(dst)
}

// readHello reads at most one hello, and stops at the first invalid byte, so that a dialer of another protocol is
// refused at once.
func readHello(r io.Reader) (raw []byte, peer introduction, err error) {
	raw, err = readMagic(r)
	if err != nil {
		return nil, peer, err
	}
	if raw, err = readMore(r, raw, 2); err != nil {
		return nil, peer, err
	}
	if theirs := raw[len(magic)]; theirs != version {
		return nil, peer, &versionError{theirs: theirs}
	}
	peer.kind = Kind(raw[len(magic)+1])
	if raw, err = readMore(r, raw, nonceSize+2); err != nil {
		return nil, peer, err
	}
	size := int(binary.BigEndian.Uint16(raw[len(raw)-2:]))
	if size == 0 || size > maxCluster {
		return nil, peer, errMalformed
	}
	if raw, err = readMore(r, raw, size+1); err != nil {
		return nil, peer, err
	}
	peer.cluster = string(raw[len(raw)-1-size : len(raw)-1])
	if raw[len(raw)-1] == 0 {
		return nil, peer, errMalformed
	}
	raw, err = readSelf(r, raw, &peer)
	return raw, peer, err
}

// readSelf reads what appendSelf appends, after the length of the ID.
func readSelf(r io.Reader, raw []byte, who *introduction) (_ []byte, err error) {
	size := int(raw[len(raw)-1])
	if raw, err = readMore(r, raw, size); err != nil {
		return nil, err
	}
	who.id = string(raw[len(raw)-size:])
	if raw, err = readMore(r, raw, 1); err != nil {
		return nil, err
	}
	if size, err = incarnation.Size(raw[len(raw)-1]); err != nil {
		return nil, errMalformed
	}
	if raw, err = readMore(r, raw, size); err != nil {
		return nil, err
	}
	who.lineage, err = incarnation.Parse(raw[len(raw)-size-1:])
	return raw, err
}

func readMagic(r io.Reader) ([]byte, error) {
	buf := make([]byte, 0, len(magic))
	for len(buf) < len(magic) {
		n, err := r.Read(buf[len(buf):len(magic)])
		buf = buf[:len(buf)+n]
		if !bytes.HasPrefix([]byte(magic), buf) {
			return nil, &strangerError{said: buf}
		}
		if err != nil && len(buf) < len(magic) {
			return nil, silence(err, len(buf))
		}
	}
	return buf, nil
}

func readMore(r io.Reader, raw []byte, n int) ([]byte, error) {
	at := len(raw)
	raw = append(raw, make([]byte, n)...)
	if got, err := io.ReadFull(r, raw[at:]); err != nil {
		return nil, silence(err, at+got)
	}
	return raw, nil
}

func appendChallenge(dst []byte, who introduction) []byte {
	dst = append(dst, byte(statusOK), version)
	return appendSelf(appendNonce(dst), who)
}

// readChallenge reads the acceptor's answer to a hello.
func readChallenge(r io.Reader) (raw []byte, other introduction, err error) {
	if raw, err = readMore(r, nil, 2); err != nil {
		return nil, other, fmt.Errorf("read challenge: %w", err)
	}
	if s := status(raw[0]); s != statusOK {
		return nil, other, refusedBy("", s, raw[1])
	}
	if raw[1] != version {
		return nil, other, &versionError{theirs: raw[1]}
	}
	if raw, err = readMore(r, raw, nonceSize+1); err != nil {
		return nil, other, fmt.Errorf("read challenge: %w", err)
	}
	if raw, err = readSelf(r, raw, &other); err != nil {
		return nil, other, fmt.Errorf("read challenge: %w", err)
	}
	return raw, other, nil
}

// bindingOf returns keying material that only the two ends of a TLS session have (RFC 5705).
func bindingOf(c *tls.Conn) ([]byte, error) {
	state := c.ConnectionState()
	return state.ExportKeyingMaterial("EXPORTER-holdfast-peer", nil, sha256.Size)
}

// secrets returns the secrets that this node accepts, its own first. Without any, the one secret is empty.
func (m *Mux) secrets() [][]byte {
	if m.config.Secrets != nil {
		if all := m.config.Secrets(); len(all) > 0 {
			return all
		}
	}
	return [][]byte{nil}
}

func proof(secret []byte, label string, transcript []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(label))
	mac.Write(transcript)
	return mac.Sum(nil)
}

// checkProof returns the secret and the label that match the peer's proof.
func checkProof(r io.Reader, secrets [][]byte, transcript []byte, labels ...string) (secret []byte, label string,
	err error,
) {
	var got [sha256.Size]byte
	if n, err := io.ReadFull(r, got[:]); err != nil {
		return nil, "", fmt.Errorf("read proof: %w", silence(err, n))
	}
	for _, secret := range secrets {
		for _, label := range labels {
			if hmac.Equal(got[:], proof(secret, label, transcript)) {
				return secret, label, nil
			}
		}
	}
	return nil, "", errImpostor
}
