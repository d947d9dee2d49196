package peer

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
)

// secrets are those that this node knows, its own first. Without any, a proof is keyed with nothing.
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

// checkProof returns the secret that the other side proved to know, and the label that it proved it for.
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
