package target

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// EtcdMember is the status of an etcd member.
type EtcdMember struct {
	Header struct {
		MemberID string `json:"member_id"`
	} `json:"header"`
	Leader string `json:"leader"`
	Term   string `json:"raftTerm"`
}

// Leads reports whether the member considers itself the leader.
func (m EtcdMember) Leads() bool { return m.Leader != "" && m.Leader == m.Header.MemberID }

// EtcdStatus returns the status of the member at addr, from etcd's JSON gateway, which needs no library.
func EtcdStatus(ctx context.Context, addr string) (EtcdMember, error) {
	var m EtcdMember
	return m, askEtcd(ctx, http.DefaultClient, addr, "maintenance/status", struct{}{}, &m)
}

// etcdAcquire puts a key if it is absent.
func etcdAcquire(ctx context.Context, client *http.Client, addr, key, token string) (bool, error) {
	type compare struct {
		Target         string `json:"target"`
		Key            []byte `json:"key"`
		CreateRevision string `json:"create_revision"`
	}
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type request struct {
		Put put `json:"requestPut"`
	}
	txn := struct {
		Compare []compare `json:"compare"`
		Success []request `json:"success"`
	}{
		[]compare{{Target: "CREATE", Key: []byte(key), CreateRevision: "0"}},
		[]request{{Put: put{Key: []byte(key), Value: []byte(token)}}},
	}
	var reply struct {
		Succeeded bool `json:"succeeded"`
	}
	err := askEtcd(ctx, client, addr, "kv/txn", txn, &reply)
	return reply.Succeeded, err
}

// askEtcd posts a request to the JSON gateway of etcd.
func askEtcd(ctx context.Context, client *http.Client, addr, method string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := client.Do(post)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s for %s: %s: %s", addr, method, answer.Status, text)
	}
	return json.Unmarshal(text, reply)
}
