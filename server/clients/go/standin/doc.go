// Standin stands between suites of others and three nodes. Each connection goes to the next node
// that accepts it, so a suite that knows one address meets all nodes.
//
//	standin 127.0.0.1:6379 …	listens at addresses and passes all bytes on
//
// Under the name redis-server Standin takes the place of a server that a suite's harness starts for
// itself. Each such server is a database of the cluster that no other stand-in uses, and empty when
// the stand-in says that it is ready. HOLDFAST_NODES names the nodes, and the folder HOLDFAST_STATE
// holds a lock for each database. With HOLDFAST_DATABASES=N databases go by port modulo N instead,
// unlocked and as they are, for harnesses that start more servers than there are databases.
package main
