package peer

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The handshake, inside TLS if there is TLS. D dials, A accepts:
//
//	D→A  hello      "HOLDFAST" version kind nonce[32] length(2) cluster length(1) ID
//	A→D  challenge  status version [nonce[32] length(1) ID]    the rest only if status is ok
//	D→A  proof      HMAC-SHA256(secret, "dial" transcript)     by one of the secrets that A knows
//	A→D  verdict    status [HMAC-SHA256(secret, "accept" transcript)]
//
// The transcript is SHA-256 over hello, challenge and, with TLS, keying material
// of the TLS session: so a proof is worth nothing on another connection, in the
// other direction, for another kind, cluster or ID, or on the other side
// of a man in the middle that terminates TLS. The dialer proves itself first: a dialer that only
// knows the port gets nothing to guess the secret from. Without a secret the same
// bytes travel, keyed with nothing, and prove nothing.
const (
	magic      = "HOLDFAST"
	version    = 1
	nonceSize  = 32
	maxID      = 255  // bytes
	maxCluster = 4096 // bytes
	// anyCluster is said by a dialer that does not know the cluster yet. Only KindMember takes it.
	anyCluster = "?"
)

// status tells the dialer the reason of a refusal.
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

// ErrSelf is why a node does not talk to itself, or to a copy of itself.
var ErrSelf = errors.New("it has the same ID as this node: the address leads back here, or a data folder was copied")

// ErrSecret is why a node refuses the proof of another.
var ErrSecret = errors.New("it has another cluster secret, or none")

// ErrRemoved is the reason of a node that was removed from the cluster.
var ErrRemoved = errors.New("it was removed from the cluster")

// introduction is what the dialer says of itself.
type introduction struct {
	kind    Kind
	cluster string
	id      string
}

// introduce is the dialer's side, and returns the ID of the node that answers. Unless want is empty no other
// node may. The dialer proves that it knows secret.
func (m *Mux) introduce(conn net.Conn, k Kind, want string, secret []byte) (net.Conn, string, error) {
	cluster := m.config.ClusterID()
	if cluster == "" {
		cluster = anyCluster
	}
	conn, binding, err := m.tls.client(conn)
	if err != nil {
		return nil, "", err
	}
	hello := appendHello(nil, introduction{kind: k, cluster: cluster, id: m.config.ID})
	if _, err := conn.Write(hello); err != nil {
		return nil, "", fmt.Errorf("write hello: %w", err)
	}
	challenge, id, err := readChallenge(conn)
	if errors.Is(err, errYouRemoved) && m.config.OnRemoved != nil {
		m.config.OnRemoved()
	}
	if err != nil {
		return nil, "", err
	}
	if err := m.checkID(id, want); err != nil {
		return nil, "", err
	}
	transcript := hash(hello, challenge, binding)
	if _, err := conn.Write(proof(secret, "dial", transcript)); err != nil {
		return nil, "", fmt.Errorf("write proof: %w", err)
	}
	var verdict [1]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return nil, "", fmt.Errorf("read verdict: %w", silence(err, 0))
	}
	if s := status(verdict[0]); s != statusOK {
		return nil, "", refusedBy(id, s, version)
	}
	if _, err := checkProof(conn, [][]byte{secret}, "accept", transcript); err != nil {
		return nil, "", fmt.Errorf("node %q: %w", id, err)
	}
	return conn, id, nil
}

// checkID makes sure that the node that answered is the node that was meant: else a node with an emptied folder
// would get what was meant for the node that it was, such as raft's requests for votes.
func (m *Mux) checkID(id, want string) error {
	switch {
	case id == m.config.ID:
		return ErrSelf
	case want != "" && want != id:
		return fmt.Errorf("node %q answers where node %q was expected", id, want)
	}
	return nil
}

// answer is the acceptor's side.
func (m *Mux) answer(conn net.Conn) (net.Conn, introduction, error) {
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
	challenge := appendChallenge(nil, m.config.ID)
	if _, err := conn.Write(challenge); err != nil {
		return nil, peer, fmt.Errorf("write challenge: %w", err)
	}
	transcript := hash(hello, challenge, binding)
	secret, err := checkProof(conn, m.secrets(), "dial", transcript)
	if err != nil {
		if errors.Is(err, errImpostor) {
			_, _ = conn.Write([]byte{byte(statusSecret)})
		}
		return nil, peer, &peerError{peer: peer, err: err}
	}
	verdict := append([]byte{byte(statusOK)}, proof(secret, "accept", transcript)...)
	if _, err := conn.Write(verdict); err != nil {
		return nil, peer, fmt.Errorf("write verdict: %w", err)
	}
	return conn, peer, nil
}

// drain reads what a dialer of another version sent after the version, so that
// closing does not reset the connection before the dialer has read the reason.
func drain(conn net.Conn) {
	_, _ = io.CopyN(io.Discard, conn, 2*maxCluster)
}

func (m *Mux) judge(peer introduction) (status, error) {
	member := peer.kind == KindMember
	switch own := m.config.ClusterID(); {
	case member && peer.cluster == anyCluster: // any other check of the cluster is void
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
		h.Write(p) // hello and challenge say their own lengths; binding is last
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
	dst = append(dst, byte(len(who.id)))
	return append(dst, who.id...)
}

// readHello reads no more than a hello can hold, and stops at the first byte
// that is wrong, so that a dialer that speaks another protocol is refused at once.
func readHello(r io.Reader) (raw []byte, peer introduction, err error) {
	raw, err = readMagic(r)
	if err != nil {
		return nil, peer, err
	}
	if raw, err = readMore(r, raw, 2); err != nil {
		return nil, peer, err
	}
	if raw[len(magic)] != version {
		return nil, peer, &versionError{theirs: raw[len(magic)]}
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
	if size = int(raw[len(raw)-1]); size == 0 {
		return nil, peer, errMalformed
	}
	if raw, err = readMore(r, raw, size); err != nil {
		return nil, peer, err
	}
	peer.id = string(raw[len(raw)-size:])
	return raw, peer, nil
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

func appendChallenge(dst []byte, id string) []byte {
	dst = append(dst, byte(statusOK), version)
	dst = appendNonce(dst)
	dst = append(dst, byte(len(id)))
	return append(dst, id...)
}

func readChallenge(r io.Reader) (raw []byte, id string, err error) {
	if raw, err = readMore(r, nil, 2); err != nil {
		return nil, "", fmt.Errorf("read challenge: %w", err)
	}
	if s := status(raw[0]); s != statusOK {
		return nil, "", refusedBy("", s, raw[1])
	}
	if raw[1] != version {
		return nil, "", &versionError{theirs: raw[1]}
	}
	if raw, err = readMore(r, raw, nonceSize+1); err != nil {
		return nil, "", fmt.Errorf("read challenge: %w", err)
	}
	size := int(raw[len(raw)-1])
	if raw, err = readMore(r, raw, size); err != nil {
		return nil, "", fmt.Errorf("read challenge: %w", err)
	}
	return raw, string(raw[len(raw)-size:]), nil
}

// bindingOf is keying material that only the two ends of a TLS session have.
func bindingOf(c *tls.Conn) ([]byte, error) {
	state := c.ConnectionState()
	return state.ExportKeyingMaterial("EXPORTER-holdfast-peer", nil, sha256.Size)
}
