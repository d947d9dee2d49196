package protocol_test

import (
	"fmt"

	"github.com/holdfast/holdfast/protocol"
)

func ExampleAppendQuoted() {
	fmt.Printf("%s\n", protocol.AppendQuoted(nil, "plain '~ \x00\x1f\x7f\xff \\ \" \n\r\t\a\b"))
	// Output: "plain '~ \x00\x1f\x7f\xff \\ \" \n\r\t\a\b"
}
