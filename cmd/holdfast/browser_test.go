package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/fleet"
)

// browser is a headless Chromium that a test drives by the DevTools protocol, over a pair of pipes: messages are
// JSON, each with a zero byte behind it.
type browser struct {
	t  *testing.T
	to *os.File

	mu       sync.Mutex
	last     int
	answers  map[int]chan message
	requests []string // addresses that pages asked for
	troubles []string // what no page should do: exceptions, breaches of its policy, dialogs
	ended    bool
}

// message is a command, its answer, or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// chromium is the program; the test is skipped where there is none.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Skip("SKIP: no chromium here (apt-get install chromium)")
	return ""
}

// newBrowser starts Chromium, which ends with the test.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	cmd := exec.Command(chromium(t), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
		"--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio",
		"--user-data-dir="+filepath.Join(t.TempDir(), "profile"), "--remote-debugging-pipe", "about:blank")
	theirIn, to, err := os.Pipe()
	require.NoError(t, err)
	from, theirOut, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	p := fleet.Process{Name: "chromium", Log: filepath.Join(t.TempDir(), "log")}
	require.NoError(t, p.Start(cmd))
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, to: to, answers: make(map[int]chan message)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(bufio.NewReader(from))
	}()
	t.Cleanup(func() {
		b.mu.Lock()
		b.ended = true
		b.mu.Unlock()
		_ = b.try("", "Browser.close", nil, nil)
		_ = p.Wait(20 * time.Second)
		to.Close()
		from.Close()
		<-read
		if t.Failed() {
			// there is no desktop
			t.Logf("chromium said:\n%s", regexp.MustCompile(`(?m)^.*dbus.*\n`).ReplaceAllString(p.Output(), ""))
		}
	})
	return b
}

// read takes answers and events until the browser ends.
func (b *browser) read(r *bufio.Reader) {
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			for id, answer := range b.answers {
				close(answer)
				delete(b.answers, id)
			}
			b.ended = true
			b.mu.Unlock()
			return
		}
		var m struct {
			message
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if answer := b.answers[m.ID]; m.ID != 0 && answer != nil {
			delete(b.answers, m.ID)
			answer <- m.message
		} else {
			b.event(m.Method, m.Params)
		}
		b.mu.Unlock()
	}
}

// event notes what pages do. The caller holds mu.
func (b *browser) event(method string, params json.RawMessage) {
	switch method {
	case "Network.requestWillBeSent":
		var p struct {
			Request struct{ URL string }
		}
		_ = json.Unmarshal(params, &p)
		b.requests = append(b.requests, p.Request.URL)
	case "Runtime.exceptionThrown", "Page.javascriptDialogOpening":
		b.troubles = append(b.troubles, method+" "+string(params))
	case "Log.entryAdded":
		var p struct {
			Entry struct{ Source, Level, Text, URL string }
		}
		_ = json.Unmarshal(params, &p)
		if p.Entry.Source != "network" { // a node that is down, or has no such lock, is no mistake of the page
			b.troubles = append(b.troubles, p.Entry.Source+": "+p.Entry.Text)
		}
	}
}

// try sends a command and takes its answer.
func (b *browser) try(session, method string, params, result any) error {
	b.mu.Lock()
	b.last++
	id, answer := b.last, make(chan message, 1)
	b.answers[id] = answer
	b.mu.Unlock()
	text, err := json.Marshal(message{ID: id, Session: session, Method: method, Params: params})
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return errors.New("the browser has ended")
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-time.After(60 * time.Second):
		return fmt.Errorf("%s: no answer", method)
	}
}

// noTroubles: no page did what none should, and all asked the hosts alone.
func (b *browser) noTroubles(hosts ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.troubles)
	for _, url := range b.requests {
		ours := slices.ContainsFunc(hosts, func(h string) bool {
			return strings.HasPrefix(url, "http://"+h+"/") || strings.Contains(url, "@"+h+"/")
		})
		require.True(b.t, ours, "the page asked for %s", url)
	}
}

// tab is a page of a browser.
type tab struct {
	*browser
	session string
}

// open opens a page at a size of the window.
func (b *browser) open(url string, width, height int, phone bool) *tab {
	b.t.Helper()
	var target struct{ TargetID string }
	require.NoError(b.t, b.try("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target))
	var attached struct{ SessionID string }
	require.NoError(b.t, b.try("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&attached))
	p := &tab{b, attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.do(domain+".enable", nil, nil)
	}
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": phone,
	}, nil)
	p.visit(url)
	return p
}

func (p *tab) do(method string, params, result any) {
	p.t.Helper()
	require.NoError(p.t, p.try(p.session, method, params, result), method)
}

func (p *tab) visit(url string) {
	p.t.Helper()
	p.do("Page.navigate", map[string]any{"url": url}, nil)
}

// eval is the value of an expression in the page, which is text, or JSON of something else.
func (p *tab) eval(expression string) string {
	p.t.Helper()
	text, err := p.tryEval(expression)
	require.NoError(p.t, err, expression)
	return text
}

func (p *tab) tryEval(expression string) (string, error) {
	var v struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	err := p.try(p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true,
		"awaitPromise": true,
	}, &v)
	switch {
	case err != nil:
		return "", err
	case v.ExceptionDetails != nil:
		return "", errors.New(v.ExceptionDetails.Exception.Description)
	}
	var text string
	if json.Unmarshal(v.Result.Value, &text) == nil {
		return text, nil
	}
	return string(v.Result.Value), nil
}

// waits waits until an expression is true.
func (p *tab) waits(expression string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		is, err := p.tryEval("Boolean(" + expression + ")")
		return err == nil && is == "true"
	}, 60*time.Second, 100*time.Millisecond, "%s: %s", expression, pageText{p})
}

// pageText is what a page shows, for a test that fails.
type pageText struct{ p *tab }

func (s pageText) String() string {
	text, err := s.p.tryEval("document.body.innerText.slice(0, 1500)")
	return fmt.Sprint(text, err)
}

// text is what is written in the first element that a selector names.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return p.eval("(document.querySelector(" + quoted(selector) + ")||{innerText:'nothing'}).innerText")
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// picture is the page as a PNG.
func (p *tab) picture() []byte {
	p.t.Helper()
	var shot struct{ Data string }
	p.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(p.t, err)
	return png
}
