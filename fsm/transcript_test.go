package fsm

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestTranscripts runs testdata/ops/*.txt: command lines, each with the expected reply indented below it. Words may be
// quoted as in Go. Besides commands:
//
//	advance <milliseconds>   commit a stamp without batches, that much later
//	wall <milliseconds>      move the wall clock against cluster time
//	fresh                    a machine without keys
//	listen <flags>           set notify-keyspace-events, and show messages from here on
//
// A line that begins with "read " runs as a read, not through the log.
func TestTranscripts(t *testing.T) { protocoltest.Transcripts(t, "testdata/ops/*.txt", play) }

// play runs a transcript and returns it with the actual replies.
func play(t *testing.T, script []byte) []byte {
	return playWith(t, script, func(*driver, []string) {})
}

// playWith is play, and calls each after every command in the log.
func playWith(t *testing.T, script []byte, each func(d *driver, words []string)) []byte {
	d := newDriver(t)
	return protocoltest.Lines(t, script, func(words []string) (answers []string) {
		switch words[0] {
		case "advance", "wall":
			n, err := strconv.ParseInt(words[1], 10, 64)
			require.NoError(t, err)
			if words[0] == "wall" {
				d.wallOffset += n
				n = 0
			}
			return messages(d.advance(n))
		case "fresh":
			d = newDriver(t)
		case "listen":
			d.m.Listen(event.InMessages)
			require.Equal(t, protocol.OK, d.do("set-notifications", strings.Join(words[1:], "")))
		case "read":
			reply, due := d.read(words[1:]...)
			require.False(t, due)
			return []string{line(reply)}
		default:
			r := d.record(request(nil, d.db, words...))
			each(d, words)
			return append([]string{line(r.replies[0])}, messages(r.events)...)
		}
		return nil
	})
}

// messages formats the messages of events as lines of a transcript.
func messages(events []event.Event) (lines []string) {
	for i := range events {
		events[i].Messages(func(channel, payload string) {
			lines = append(lines, "~ "+channel+" "+strconv.Quote(payload))
		})
	}
	return lines
}
