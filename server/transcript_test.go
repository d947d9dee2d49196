package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/servertest"
)

// TestTranscripts plays testdata/*.txt: stories of clusters, of what happens to them and of what
// their clients are answered. Read those first; package servertest says what the words mean.
func TestTranscripts(t *testing.T) {
	protocoltest.Transcripts(t, "testdata/*.txt", func(t *testing.T, script []byte) (got []byte) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { got = servertest.Play(t, script) })
		return got
	})
}
