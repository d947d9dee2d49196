package protocol_test

import (
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// A Reader takes the commands out of what has arrived, and says when the rest is not there yet.
func ExampleReader() {
	arrived := []byte("*3\r\n$3\r\nSET\r\n$4\r\nlock\r\n$5\r\ntoken\r\nPING\r\n*2\r\n$3\r\nGET")
	r := protocol.NewReader(protocol.DefaultLimits())
	for {
		words, n, err := r.Next(arrived)
		arrived = arrived[n:]
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q\n", words)
	}
	// Output:
	// ["SET" "lock" "token"]
	// ["PING"]
	// incomplete request
}

// Every reply is a Value, which becomes RESP2 or RESP3 in one place.
func ExampleValue() {
	reply := protocol.Array(protocol.Integer(1), protocol.Bulk("token"), protocol.Null)
	for _, version := range []int{protocol.RESP2, protocol.RESP3} {
		fmt.Printf("%q\n", reply.AppendTo(nil, version))
	}
	// Output:
	// "*3\r\n:1\r\n$5\r\ntoken\r\n$-1\r\n"
	// "*3\r\n:1\r\n$5\r\ntoken\r\n_\r\n"
}

// The row of a command has the route, the number of words, and the places of the keys.
func ExampleFind() {
	line := strings.Fields("pexpire lock 30000 NX")
	command, _ := protocol.Find(line)
	fmt.Println(command.Name, command.CheckArity(len(line)), command.Route == protocol.Write)
	fmt.Println(command.Usage())
	// Output:
	// pexpire true true
	// PEXPIRE key milliseconds [NX | XX | GT | LT]
}

// The text of an error says whether the command may have been applied.
func ExampleOutcomeOf() {
	fmt.Println(protocol.OutcomeOf("CLUSTERDOWN no leader") == protocol.OutcomeNone)
	fmt.Println(protocol.OutcomeOf("UNCERTAIN no majority has answered") == protocol.OutcomeUnknown)
	// Output:
	// true
	// true
}
