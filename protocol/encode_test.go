package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPiecesAreTheWhole: in pieces of any size a reply is the same, and no piece is much larger than was asked for.
func TestPiecesAreTheWhole(t *testing.T) {
	long := strings.Repeat("text\r\n", 30)
	values := append(everyKind(), Simple(long), ErrValue(long), Bulk(long), BigNumber(long), Verbatim(long),
		Array(Bulk(long), Map(Bulk("k"), Array(Bulk(long), Bulk(long)))), None)
	for _, resp := range []int{RESP2, RESP3} {
		for _, v := range values {
			for _, size := range []int{1, 2, 7, 64, 180, 181, 4096} {
				var all []byte
				most := 0
				rest := v.AppendPieces(make([]byte, 0, size), resp, size, func(piece []byte) []byte {
					most = max(most, len(piece))
					all = append(all, piece...)
					return piece[:0]
				})
				name := fmt.Sprintf("%.40v in pieces of %d, RESP%d", v, size, resp)
				require.Equal(t, string(v.AppendTo(nil, resp)), string(append(all, rest...)), name)
				require.LessOrEqual(t, max(most, len(rest)), size+maxDouble, name)
			}
		}
	}
}
