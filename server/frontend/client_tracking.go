package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/tracking"
)

func trackingHandlers() map[string]handler {
	return map[string]handler{
		"client|tracking":     {reply: clientTracking},
		"client|caching":      {reply: clientCaching},
		"client|trackinginfo": {reply: clientTrackingInfo},
		"client|getredir":     {reply: clientGetRedir},
	}
}

// clientTracking runs CLIENT TRACKING. Its checks have the order of Redis.
func clientTracking(c *conn, args [][]byte) protocol.Value {
	next, prefixes, refusal := c.parseTracking(args[3:])
	if refusal != nil {
		return refusal.Value()
	}
	switch strings.ToLower(string(args[2])) {
	case "on":
	case "off":
		c.stopTracking()
		return protocol.OK
	default:
		return protocol.Err(errSyntax)
	}
	if refusal := c.track.refuse(&next, prefixes); refusal != nil {
		return refusal.Value()
	}
	t := &c.track
	if t.client == nil {
		t.client = c.srv.cfg.Tracking.Client(c)
		t.client.Restrict(c.rights)
	}
	if next.bcast && len(prefixes) == 0 && len(t.client.Prefixes()) == 0 {
		prefixes = []string{""}
	}
	if !t.client.Start(tracking.Options{Broadcast: next.bcast, Prefixes: prefixes, NoLoop: next.noloop}) {
		return protocol.Err("too many different lengths of prefixes")
	}
	next.on = true
	c.setTrackMode(next)
	before := c.track.bytes
	for _, p := range prefixes {
		c.track.bytes += len(p) + prefixBytes
	}
	c.accountQueue(before, c.track.bytes)
	if c.executing {
		// The reads of the transaction have run already, and were not recorded.
		c.track.begin()
		t.client.Drop()
	}
	return protocol.OK
}

// parseTracking parses the options.
func (c *conn) parseTracking(words [][]byte) (m trackMode, prefixes []string, refusal *protocol.Error) {
	for i := 0; i < len(words); i++ {
		option, more := strings.ToLower(string(words[i])), i+1 < len(words)
		switch {
		case option == "redirect" && more:
			i++
			if m.redirect != 0 {
				return m, nil, protocol.NewError("A client can only redirect to a single other client")
			}
			id, ok := protocol.ParseInt(string(words[i]))
			if !ok {
				return m, nil, protocol.ErrNotInteger
			}
			if c.redirectTarget(id) == nil {
				return m, nil, protocol.NewError("The client ID you want redirect to does not exist")
			}
			m.redirect = id
		case option == "prefix" && more:
			i++
			prefixes = append(prefixes, string(words[i]))
		case option == "bcast":
			m.bcast = true
		case option == "optin":
			m.optin = true
		case option == "optout":
			m.optout = true
		case option == "noloop":
			m.noloop = true
		default:
			return m, nil, protocol.NewError(errSyntax)
		}
	}
	return m, prefixes, nil
}

// refuse returns why the client may not track with these options, or nil.
func (t *track) refuse(next *trackMode, prefixes []string) *protocol.Error {
	switch {
	case !next.bcast && len(prefixes) > 0:
		return protocol.NewError("PREFIX option requires BCAST mode to be enabled")
	case t.on && t.bcast != next.bcast:
		return protocol.NewError("You can't switch BCAST mode on/off before disabling tracking for this client, and then " +
			"re-enabling it with a different mode.")
	case next.bcast && (next.optin || next.optout):
		return protocol.NewError("OPTIN and OPTOUT are not compatible with BCAST")
	case next.optin && next.optout:
		return protocol.NewError("You can't specify both OPTIN mode and OPTOUT mode")
	case next.optin && t.optout, next.optout && t.optin:
		return protocol.NewError("You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then " +
			"re-enabling it with a different mode.")
	}
	var had []string
	if t.on {
		had = t.client.Prefixes()
	}
	if len(had)+len(prefixes) > tracking.MaxPrefixes {
		return protocol.NewError("too many prefixes")
	}
	for i, p := range prefixes {
		if len(p) > tracking.MaxPrefixBytes {
			return protocol.NewError("a prefix is too long")
		}
		for _, q := range had {
			if overlap(p, q) {
				return protocol.NewError("Prefix '" + p + "' overlaps with an existing prefix '" + q +
					"'. Prefixes for a single client must not overlap.")
			}
		}
		for _, q := range prefixes[i+1:] {
			if overlap(p, q) {
				return protocol.NewError("Prefix '" + p + "' overlaps with another provided prefix '" + q +
					"'. Prefixes for a single client must not overlap.")
			}
		}
	}
	return nil
}

// prefixBytes is the memory of a prefix beyond its bytes.
const prefixBytes = 300

// overlap reports whether a key may have both prefixes.
func overlap(p, q string) bool { return strings.HasPrefix(p, q) || strings.HasPrefix(q, p) }

func clientCaching(c *conn, args [][]byte) protocol.Value {
	t := &c.track
	word := strings.ToLower(string(args[2]))
	switch {
	case !t.on:
		return protocol.Err(
			"CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
	case word == "yes" && !t.optin:
		return protocol.Err("CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
	case word == "no" && !t.optout:
		return protocol.Err("CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
	case word != "yes" && word != "no":
		return protocol.Err(errSyntax)
	}
	t.caching = true
	return protocol.OK
}

func clientTrackingInfo(c *conn, _ [][]byte) protocol.Value {
	t := &c.track
	flags := []string{"off"}
	redirect, prefixes := int64(-1), []string(nil)
	if t.on {
		flags[0], redirect, prefixes = "on", t.redirect, t.client.Prefixes()
		for _, f := range []struct {
			on   bool
			name string
		}{
			{t.bcast, "bcast"},
			{t.optin, "optin"},
			{t.optin && t.caching, "caching-yes"},
			{t.optout, "optout"},
			{t.optout && t.caching, "caching-no"},
			{t.noloop, "noloop"},
			{c.brokenRedirect(), "broken_redirect"},
		} {
			if f.on {
				flags = append(flags, f.name)
			}
		}
	}
	set := make([]protocol.Value, len(flags))
	for i, f := range flags {
		set[i] = protocol.Bulk(f)
	}
	return protocol.Map(
		protocol.Bulk("flags"), protocol.Set(set...), protocol.Bulk("redirect"), protocol.Integer(redirect),
		protocol.Bulk("prefixes"), protocol.Strings(prefixes...))
}

func (c *conn) brokenRedirect() bool {
	return c.view().track.broken
}

func clientGetRedir(c *conn, _ [][]byte) protocol.Value {
	if !c.track.on {
		return protocol.Integer(-1)
	}
	return protocol.Integer(c.track.redirect)
}
