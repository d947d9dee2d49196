"use strict";
// The page of a node polls the JSON endpoints of its own port while it is visible, and shows the answers. Names chosen by
// clients are hostile: the page shows them as text, never as markup.
(() => {
  const pollMillis = 2000; // between two polls of locks and members
  const historyPollMillis = 10000; // between two polls of the last hour
  const rows = 50; // of the list of locks
  const maxNameChars = 160; // characters of a name in a table

  const $ = (id) => document.getElementById(id);
  const state = { members: null, one: null, hourAt: 0, lostOften: [], polledLocks: [], answered: null, timer: 0, running: false, again: false };

  // ---- text

  // el makes an element; text and elements are its children.
  function el(tag, props, ...children) {
    const e = document.createElement(tag);
    for (const [name, value] of Object.entries(props || {})) {
      if (name === "on") e.addEventListener("click", value);
      else if (value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : value);
    }
    e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
    return e;
  }

  // unseen matches characters that are invisible or change the order of others.
  const unseen = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufeff\ufff9-\ufffb]/g;
  const escaped = (c) => (c < "\u0100" ? "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0") : "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

  // bytesOf returns the bytes of a name: those of base64, if set, as JSON text cannot hold all bytes.
  function bytesOf(text, base64) {
    return base64 ? Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)) : new TextEncoder().encode(text);
  }

  // visible returns a name with its invisible characters escaped.
  function visible(text, base64) {
    if (!base64) return text.replace(unseen, escaped);
    return Array.from(bytesOf(text, base64), (b) => (b > 0x20 && b < 0x7f ? String.fromCharCode(b) : "\\x" + b.toString(16).padStart(2, "0"))).join("");
  }

  function short(text) {
    return text.length > maxNameChars ? text.slice(0, maxNameChars) + "… (" + count(text.length) + " characters)" : text;
  }

  const count = (n) => Number(n).toLocaleString("en-US");
  const plural = (n, one, many) => count(n) + " " + (Number(n) === 1 ? one : many);

  function span(millis) {
    const s = millis / 1000;
    if (s < 1) return Math.max(0, Math.round(millis)) + " ms";
    if (s < 60) return Math.floor(s) + " s";
    const m = Math.floor(s / 60);
    if (m < 60) return m + "m " + String(Math.floor(s % 60)).padStart(2, "0") + "s";
    if (m < 48 * 60) return Math.floor(m / 60) + "h " + String(m % 60).padStart(2, "0") + "m";
    return Math.floor(m / 1440) + "d " + Math.floor((m % 1440) / 60) + "h";
  }

  const ago = (millis) => (millis < 1000 ? "just now" : span(millis) + " ago");

  function clock(unixMillis) {
    const d = new Date(unixMillis);
    const time = d.toTimeString().slice(0, 8);
    return d.toDateString() === new Date().toDateString() ? time : d.toISOString().slice(0, 10) + " " + time;
  }

  const hex = (b) => "\\x" + b.toString(16).padStart(2, "0");
  const isPlain = (b) => b >= 0x20 && b < 0x7f;

  // sh quotes a name as one word of a shell command.
  const sh = (text, base64) => (base64 ? shBytes(bytesOf(text, base64)) : shText(text));

  function shText(text) {
    if (/^[\w@%+=:,./][\w@%+=:,./-]*$/.test(text)) return text;
    return text.search(unseen) < 0 ? "'" + text.replaceAll("'", "'\\''") + "'" : shBytes(bytesOf(text));
  }

  function shBytes(bytes) {
    return "$'" + Array.from(bytes, (b) => (b === 0x27 || b === 0x5c ? "\\" : "") + (isPlain(b) ? String.fromCharCode(b) : hex(b))).join("") + "'";
  }

  // shPattern returns a quoted pattern that matches only the name.
  function shPattern(text, base64) {
    if (!base64) return sh(text.replace(/[\\*?[]/g, "\\$&"));
    return shBytes(Array.from(bytesOf(text, base64)).flatMap((b) => ("\\*?[".includes(String.fromCharCode(b)) ? [0x5c, b] : [b])));
  }

  // hasZero reports whether a name has a zero byte. No argument of a command can have one; piped passes it by input.
  const hasZero = (text, base64) => bytesOf(text, base64).includes(0);

  const cliWord = (text, base64) => '"' + Array.from(bytesOf(text, base64), (b) => (b === 0x22 || b === 0x5c ? "\\" : "") + (isPlain(b) ? String.fromCharCode(b) : hex(b))).join("") + '"';

  const piped = (words, addr, db) => "printf '%s\\n' " + shText(words.join(" ")) + " | " + redisCLI(addr, db);

  // ---- requests

  async function ask(path, params) {
    const query = new URLSearchParams(params || {}).toString();
    // fetch refuses a relative address if the page's own has a password, which location.origin leaves out.
    const answer = await fetch(location.origin + path + (query ? "?" + query : ""), {
      cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(9000),
    });
    let doc = null;
    try { doc = await answer.json(); } catch { /* no document: the status says enough */ }
    if (answer.status === 404 && doc) return null;
    if (!answer.ok) throw new Error(doc && doc.error ? doc.error : "status " + answer.status);
    return doc;
  }

  function listParams() {
    const text = $("find").value;
    const p = { sort: $("sort").value, limit: String(rows) };
    if (text) p[/[*?[]/.test(text) ? "match" : "prefix"] = text;
    if ($("mode").value) p.mode = $("mode").value;
    if ($("db").value) p.db = $("db").value;
    return p;
  }

  const nameOf = (o) => (o.keyBase64 ? { keyBase64: o.keyBase64 } : { key: o.key });

  // poll requests all that the page shows, once at a time.
  async function poll() {
    clearTimeout(state.timer);
    if (state.running) { state.again = true; return; }
    state.running = true;
    let members = null;
    try {
      const now = Date.now();
      const one = state.one;
      const params = listParams();
      const asked = [
        ask("/api/members"), ask("/api/locks", params), ask("/api/locks", { sort: "queue", limit: "8" }),
        now - state.hourAt >= historyPollMillis ? ask("/api/history") : undefined,
        one ? ask("/api/lock", { db: String(one.db), ...nameOf(one) }) : undefined,
      ];
      await Promise.allSettled(asked);
      members = await asked[0]; // a member without a state, as in quarantine, answers only this request
      state.members = members;
      showMembers(members);
      $("seen").textContent = "as " + members.node + " knows it, " + clock(now);
      const [, list, queue, hour, lock] = await Promise.all(asked);
      state.answered = now;
      trouble(null);
      showLocks(list, params);
      showQueues(queue);
      if (hour) { state.hourAt = now; showHour(hour); showLosses(hour); }
      showTroubles(members, queue);
      if (one && one === state.one) showOne(lock);
    } catch (err) {
      trouble(err, members);
    } finally {
      state.running = false;
      const soon = state.again;
      state.again = false;
      if (!document.hidden) state.timer = setTimeout(poll, soon ? 0 : pollMillis);
    }
  }

  // trouble shows why the node did not answer, or hides the notice without err. members is its answer about members, or
  // null.
  function trouble(err, members) {
    const t = $("trouble");
    if (err) {
      const since = state.answered ? " What is shown is of " + clock(state.answered) + "." : "";
      const why = err.name === "TimeoutError" || err instanceof TypeError ? "this node does not answer" : err.message;
      t.textContent = (members ? "No answer about locks: " : "No answer: ") + why + "." + since;
      if (!members) tag($("verdict"), "NO ANSWER", "bad");
    }
    t.hidden = !err;
  }

  // ---- rendering

  function set(e, text) { if (e.textContent !== text) e.textContent = text; }

  function tag(e, text, kind) { set(e, text); e.className = "tag " + kind; }

  // replace replaces only the children that differ, so that a click on another one is not lost. It replaces none while text
  // in the place is selected. The element with the same data-id keeps the focus.
  function replace(place, made) {
    const old = place.children, selection = getSelection();
    if (!selection.isCollapsed && place.contains(selection.anchorNode)) return;
    const focused = place.contains(document.activeElement) ? document.activeElement.dataset.id : undefined;
    for (const [i, e] of made.entries()) {
      if (i >= old.length) place.append(e);
      else if (!e.isEqualNode(old[i])) old[i].replaceWith(e);
    }
    while (old.length > made.length) place.lastElementChild.remove();
    if (focused === undefined || place.contains(document.activeElement)) return;
    const again = Array.from(place.querySelectorAll("[data-id]")).find((e) => e.dataset.id === focused);
    if (again) again.focus({ preventScroll: true });
  }

  // fill puts rows into a table.
  function fill(table, made) {
    const body = table.tBodies[0];
    const heads = Array.from(table.tHead.rows[0].cells, (c) => c.textContent);
    for (const row of made) for (const [i, cell] of Array.from(row.cells).entries()) cell.dataset.label = heads[i];
    replace(body, made);
    table.hidden = body.rows.length === 0;
  }

  const td = (kind, ...children) => el("td", { class: kind }, el("div", {}, ...children));

  function showMembers(c) {
    const verdict = c.verdict, well = verdict === "OK";
    tag($("verdict"), verdict, well ? "good" : verdict === "NO LEADER" || verdict === "NO QUORUM" ? "bad" : "warn");
    set($("sentence"), visible(c.sentence) + (verdict === "NO LEADER" ? " No lock is granted, and no lease runs out." : ""));
    document.body.classList.toggle("unwell", !well);
    showTroubles(c, null);
    document.title = (well ? "" : verdict + " – ") + "Holdfast " + c.node;
    fill($("member-list"), c.members.map((m) => el("tr", {},
      td("", el("span", { class: "mono" }, m.name), m.name === c.node ? el("span", { class: "kind" }, "this node") : "",
        el("span", { class: "note mono" }, m.clientAddress || "address unknown")),
      td("", m.role === "leader" ? el("strong", {}, "leader") : m.role),
      td("", m.answers ? "yes" : el("strong", { class: "tag bad" }, "NO"),
        m.answers && m.voter && m.cannotLead ? el("span", { class: "note" }, "cannot lead: " + m.cannotLead) : ""),
      td("n", m.lagEntries === null ? "?" : count(m.lagEntries)),
      td("n", m.version || "unknown"))));
    const next = [];
    if (c.heldBackBy.length) next.push(el("p", { class: "note" }, "The cluster keeps version " + c.clusterVersion + " for " + c.heldBackBy.join(", ") + "."));
    if (!well) next.push(command("Watch the members", "holdfast cluster status --watch" + reach()));
    for (const m of c.members) {
      if (!m.answers && c.leader) next.push(command("When " + m.name + " is gone for good: a new node joins (serve --join), then takes its place", "holdfast cluster replace " + sh(m.name) + reach()));
    }
    replace($("member-next"), next);
  }

  // showTroubles lists troubles of the cluster, and of its clients with locks, on top of the page. queue is null if unknown.
  function showTroubles(c, queue) {
    const about = (l, advice) => el("li", {}, el("strong", { class: "tag warn" }, "CLIENTS"), " ",
      el("button", { type: "button", class: "link", "data-id": "advice " + l.db + "/" + (l.keyBase64 || l.key), on: () => open(l) }, short(visible(l.key, l.keyBase64)) || "(empty name)"),
      l.db ? el("span", { class: "kind" }, "db " + l.db) : "", ": " + visible(advice) + ".");
    if (queue) state.polledLocks = queue.locks.filter((l) => l.advice);
    const line = (tag) => (t) => el("li", {}, el("strong", { class: "tag warn" }, tag), " " + visible(t) + ".");
    const list = c.troubles.map(line("NOT WELL")).concat(c.warnings.map(line("WARNING")));
    list.push(...state.lostOften.slice(0, 5).map((g) => about(g.last, g.advice)), ...state.polledLocks.slice(0, 5).map((l) => about(l, l.advice)));
    const place = $("troubles");
    replace(place, list);
    place.hidden = place.children.length === 0;
  }

  // leaderAddress returns the leader's client address, else this node's, else "".
  function leaderAddress() {
    const c = state.members;
    const known = c.members.find((m) => m.name === c.leader && m.clientAddress) || c.members.find((m) => m.name === c.node && m.clientAddress);
    return known ? known.clientAddress : "";
  }

  // reach returns the flags by which a holdfast command finds the cluster.
  function reach() {
    const addr = leaderAddress();
    return (addr ? " --server " + addr : "") + (location.protocol === "https:" ? " --tls" : "");
  }

  // redisCLI returns the beginning of a redis-cli command to an address.
  function redisCLI(addr, db) {
    const at = addr.lastIndexOf(":");
    const to = at > 0 ? " -h " + addr.slice(0, at).replace(/^\[|\]$/g, "") + " -p " + addr.slice(at + 1) : "";
    return "redis-cli" + to + (location.protocol === "https:" ? " --tls" : "") + (db ? " -n " + db : "");
  }

  // alive describes whether a holder is alive: a few words, and whether they are a warning.
  function alive(h) {
    const c = h.client;
    if (c && c.gone) return ["connection is closed", true];
    if (c && c.idleMillis !== undefined && c.idleMillis !== null) return ["heard of " + ago(c.idleMillis), false];
    if (h.heardMillis === undefined || h.heardMillis === null) return ["not known", false];
    if (h.session && h.session.connection) return ["connected, renewed " + ago(h.heardMillis), false];
    if (h.heardMillis + 1500 >= h.heldMillis) return ["not renewed since the grant", false];
    return ["renewed " + ago(h.heardMillis), false];
  }

  function left(h) {
    if (h.leaseLeftMillis !== null) return span(h.leaseLeftMillis);
    if (h.session && h.session.leftMillis !== undefined && h.session.leftMillis !== null) return span(h.session.leftMillis) + (h.session.connection ? ", kept by its connection" : "");
    return h.session ? "its session" : "no end";
  }

  const leftShort = (h) => left(h).replace(", kept by its connection", " (kept)");

  function aliveCell(h) {
    const [said, worry] = alive(h), text = said.replace("heard of ", "");
    return worry ? el("strong", { class: "tag bad" }, text) : text;
  }

  function nameCell(l) {
    const id = l.db + "/" + (l.keyBase64 || l.key);
    return td("name",
      el("button", { type: "button", class: "link", "data-id": id, on: () => open(l) }, short(visible(l.key, l.keyBase64)) || "(empty name)"),
      l.mode === "exclusive" ? "" : el("span", { class: "kind" }, l.mode),
      l.db ? el("span", { class: "kind" }, "db " + l.db) : "");
  }

  const isOpen = (l) => state.one && state.one.db === l.db && state.one.key === l.key && state.one.keyBase64 === l.keyBase64;

  function showLocks(doc, params) {
    const s = doc.sums;
    set($("sums"), plural(s.locks, "lock", "locks") + (s.stock ? ", " + count(s.stock) + " of them stock" : "") + " · " +
      plural(s.holders, "holder", "holders") + " · " + count(s.waiters) + " waiting" + (s.complete ? "" : " · not all were looked at"));
    fill($("list"), doc.locks.map((l) => {
      const h = l.holders[0];
      const more = l.holdersCount - 1;
      const holder = h
        ? [el("span", { class: "who" }, short(visible(h.owner, h.ownerBase64))), more > 0 ? el("span", { class: "kind" }, "+" + count(more) + " more") : "", h.note ? el("span", { class: "note" }, short(visible(h.note))) : ""]
        : [el("span", { class: "dim" }, l.delayLeftMillis > 0 ? "nobody: delayed for " + span(l.delayLeftMillis) : "nobody")];
      return el("tr", { "aria-current": isOpen(l) ? "true" : undefined }, nameCell(l), td("", ...holder),
        td("n", h ? span(h.heldMillis) : "–"), td("n", h ? leftShort(h) : "–"),
        td(h && alive(h)[0] !== "not known" ? "" : "none", h ? aliveCell(h) : "–"), td(l.waitersCount ? "n flag" : "n none", count(l.waitersCount)));
    }));
    const searched = params.prefix || params.match || params.mode || params.db;
    $("list-empty").hidden = doc.locks.length > 0;
    set($("list-empty"), searched ? "No lock matches. A key that no client took as a lock is not shown." : "Nobody holds a lock, and nobody waits for one.");
    const ranked = params.sort === "queue" ? "with a queue" : "in all";
    $("list-more").hidden = doc.locks.length < rows;
    set($("list-more"), "The first " + rows + (params.sort === "queue" ? " " + ranked : " of " + count(s.locks)) + ". Search for the others.");
  }

  function showQueues(doc) {
    fill($("queue-list"), doc.locks.map((l) => el("tr", { "aria-current": isOpen(l) ? "true" : undefined }, nameCell(l),
      td("n", count(l.waitersCount)), td("n", l.waiters.length ? span(l.waiters[0].waitedMillis) : "–"))));
    $("queues-empty").hidden = doc.locks.length > 0;
  }

  // ---- one lock

  function open(l) {
    state.one = { key: l.key, keyBase64: l.keyBase64, db: l.db, shown: false };
    const hash = new URLSearchParams({ db: String(l.db), ...nameOf(l) }).toString();
    if (location.hash.slice(1) !== hash) history.replaceState(null, "", "#" + hash);
    $("one").hidden = false;
    set($("one-title"), short(visible(l.key, l.keyBase64)) || "(empty name)");
    set($("one-facts"), "Asking the node.");
    $("one-body").replaceChildren();
    poll();
  }

  function close() {
    state.one = null;
    $("one").hidden = true;
    history.replaceState(null, "", location.pathname);
    poll();
  }

  function openFromAddress() {
    const p = new URLSearchParams(location.hash.slice(1));
    const db = Number(p.get("db") || 0);
    if (!(p.has("key") || p.has("keyBase64")) || !Number.isInteger(db) || db < 0 || db > 15) return;
    state.one = { key: p.get("key") || "", keyBase64: p.get("keyBase64") || undefined, db, shown: false };
    $("one").hidden = false;
    let title = state.one.key;
    try { title = visible(state.one.key, state.one.keyBase64); } catch { /* no base64: the node will say so */ }
    set($("one-title"), short(title));
  }

  const pair = (name, ...value) => [el("dt", {}, name), el("dd", {}, ...value)];

  function clientText(c) {
    const who = [c.name, c.address].filter(Boolean).map((t) => visible(t)).join(", ");
    return (who ? who + " – " : "") + (c.number ? "connection " + c.number + " of " : "") + c.node;
  }

  function showHold(l, h) {
    const [life, worry] = alive(h);
    return el("div", { class: "hold" },
      el("div", {}, el("span", { class: "who" }, visible(h.owner, h.ownerBase64)), h.mode === l.mode || h.mode === "exclusive" ? "" : el("span", { class: "kind" }, h.mode),
        h.permits ? el("span", { class: "kind" }, plural(h.permits, "permit", "permits")) : "", h.holds > 1 ? el("span", { class: "kind" }, "taken " + h.holds + " times") : ""),
      h.note ? el("span", { class: "note" }, visible(h.note)) : "",
      el("dl", {},
        ...pair("since", clock(h.sinceUnixMillis) + ", for " + span(h.heldMillis)),
        ...pair("left", left(h) + (h.leaseMillis ? " of " + span(h.leaseMillis) : "") + (h.renewals === undefined || h.renewals === null ? "" : h.renewals ? ", renewed " + plural(h.renewals, "time", "times") : ", never renewed")),
        ...pair("alive", worry ? el("strong", { class: "tag bad" }, life) : life),
        ...(h.fence ? pair("fence", el("span", { class: "mono" }, String(h.fence))) : []),
        ...(h.session ? pair("session", h.session.id + (h.session.name ? " " + visible(h.session.name) : "") + (h.session.connection ? ", lives with its connection" : "")) : []),
        ...(h.client ? pair("client", el("span", { class: "mono" }, clientText(h.client))) : [])));
  }

  function showWait(w) {
    const facts = ["waits for " + span(w.waitedMillis), w.polls ? "asked " + plural(w.polls, "time", "times") + " in vain" : w.absent ? "away, its place is kept for " + span(w.waitLeftMillis || 0) : w.waitLeftMillis === null ? "without end" : span(w.waitLeftMillis) + " left"];
    if (w.mode !== "exclusive" && w.mode !== "stock") facts.push(w.mode + (w.permits ? " " + w.permits + " of " + w.limit : ""));
    if (w.keys > 1) facts.push("for " + w.keys + " locks at once");
    if (w.client) facts.push(clientText(w.client));
    return el("li", {}, el("span", { class: "who" }, visible(w.owner, w.ownerBase64)), " ", el("span", { class: "dim small" }, facts.join(" · ")),
      w.note ? el("span", { class: "note" }, visible(w.note)) : "");
  }

  // released is a script that deletes a lock of Redisson's form if the owner still has it, and wakes its waiters.
  const released = "if redis.call('HDEL',KEYS[1],ARGV[1])==0 then return 0 end redis.call('DEL',KEYS[1]) redis.call('PUBLISH','redisson_lock__channel:{'..KEYS[1]..'}',0) return 1";

  // deleting returns the command that deletes a stock lock if the shown owner still has it.
  function deleting(l, h) {
    const key = cliWord(l.key, l.keyBase64), owner = cliWord(h.owner, h.ownerBase64);
    return piped(l.type === "hash" ? ["EVAL", cliWord(released), "1", key, owner] : ["DELEX", key, "IFEQ", owner], leaderAddress(), l.db);
  }

  function commands(l) {
    const list = [], zero = hasZero(l.key, l.keyBase64), key = sh(l.key, l.keyBase64);
    const where = (l.db ? " --db " + l.db : "") + reach();
    const behind = (word) => (l.key.startsWith("-") ? " -- " : " ") + word; // a name with a dash would be a flag
    if (!zero) list.push(command("The same in a terminal", "holdfast locks" + where + behind(shPattern(l.key, l.keyBase64))));
    const clients = new Set();
    for (const h of l.holders.slice(0, 3)) {
      const c = h.client;
      const member = c && state.members.members.find((m) => m.name === c.node);
      if (member && member.clientAddress && !c.gone && !clients.has(c.node + c.number)) {
        clients.add(c.node + c.number);
        list.push(command("Who is it? The holder's connection, on " + c.node, redisCLI(member.clientAddress, 0) + " CLIENT LIST ID " + c.number));
      }
    }
    if (l.holders.length) list.push(el("p", { class: "small gap" }, el("strong", {}, "First stop the holder, "), "or be sure that its resource refuses older fences: who lost a lock does not know it yet."));
    const why = "why, for the holder and the log";
    for (const h of l.holders.slice(0, 3)) {
      const stock = h.mode === "stock", who = short(visible(h.owner, h.ownerBase64));
      const what = stock ? "Break it, only while " + who + " has it" : "Break the hold with fence " + h.fence + ", and no later one";
      const which = stock ? " --owner " + sh(h.owner, h.ownerBase64) : " --fence " + h.fence;
      if (!zero && !(stock && hasZero(h.owner, h.ownerBase64))) list.push(command(what, "holdfast locks break" + where + which + " --reason " + sh(why) + behind(key)));
      else if (stock) list.push(command(what, deleting(l, h)));
      else list.push(command(what, piped(["LOCK.BREAK", cliWord(l.key, l.keyBase64), "FENCE", String(h.fence), "REASON", cliWord(why)], leaderAddress(), l.db)));
    }
    if (!zero) list.push(command("How it was lost before", "holdfast locks history" + where + behind(shPattern(l.key, l.keyBase64))));
    return [el("h3", {}, "Next"), ...list, el("p", { class: "note" }, "Where clients need a password: --password-file FILE, and REDISCLI_AUTH for redis-cli.")];
  }

  function command(what, text) {
    const code = el("code", {}, text);
    const button = el("button", { type: "button", "data-id": "copy " + text, "aria-label": "Copy: " + what }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
    });
    return el("div", { class: "cmd" }, el("p", {}, what), el("div", {}, code, button));
  }

  function showOne(doc) {
    const body = $("one-body");
    if (!doc) {
      set($("one-facts"), "Nobody holds this lock or waits for it, by " + clock(Date.now()) + ".");
      replace(body, []);
      return;
    }
    const l = doc.lock;
    set($("one-title"), short(visible(l.key, l.keyBase64)) || "(empty name)");
    set($("one-facts"), [l.mode, "database " + l.db, plural(l.holdersCount, "holder", "holders"), count(l.waitersCount) + " waiting"].join(" · "));
    const parts = [];
    if (l.delayLeftMillis > 0) parts.push(el("p", {}, "Nobody gets it for " + span(l.delayLeftMillis) + ": the delay after a loss."));
    parts.push(...l.holders.slice(0, 20).map((h) => showHold(l, h)));
    if (l.holdersCount > 20) parts.push(el("p", { class: "dim" }, "and " + count(l.holdersCount - 20) + " more"));
    if (l.waitersCount > 0) parts.push(el("h3", {}, l.mode === "stock" ? "Polling" + (l.pollsPerSecond ? ", " + count(l.pollsPerSecond) + " times a second" : "") : "In line"), el("ol", {}, ...l.waiters.slice(0, 50).map(showWait)));
    if (l.waitersCount > 50) parts.push(el("p", { class: "dim" }, "and " + count(l.waitersCount - 50) + " more"));
    parts.push(...commands(l));
    replace(body, parts);
    if (!state.one.shown) {
      state.one.shown = true;
      $("one-title").focus();
    }
  }

  // ---- the last hour

  function svg(tag, props, ...children) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(props)) e.setAttribute(name, String(value));
    e.append(...children);
    return e;
  }

  function showHour(doc) {
    const bands = [
      ["Grants", (s) => s.grants], ["Waits in line that ended with a grant", (s) => s.waits],
      ["Waits in line that ended by time", (s) => s.timedOut], ["Holds lost", (s) => s.lost],
    ];
    const width = 360, band = 34, gap = 22, wide = width / doc.steps.length;
    const picture = svg("svg", { viewBox: "0 0 " + width + " " + (bands.length * (band + gap) + 16), role: "img" });
    const said = [];
    const first = doc.steps.findIndex((s) => s.counted || bands.some(([, of]) => of(s) > 0));
    const counted = first < 0 ? doc.steps.length - 1 : first;
    bands.forEach(([title, of], i) => {
      const base = i * (band + gap) + gap + band - 6;
      const values = doc.steps.map(of);
      const most = Math.max(...values), sum = values.reduce((a, b) => a + b, 0);
      said.push(title + ": " + count(sum));
      picture.append(svg("text", { x: 0, y: base - band - 2 }, title),
        svg("text", { x: width, y: base - band - 2, "text-anchor": "end", class: "sum" }, count(sum) + (most ? ", at most " + count(most) + " a minute" : "")));
      values.forEach((v, at) => {
        if (!v) return;
        const high = Math.max(1.5, (v / most) * (band - 4));
        picture.append(svg("rect", { x: at * wide + 0.5, y: base - high, width: wide - 1, height: high, class: "bar" },
          svg("title", {}, clock(doc.steps[at].startUnixMillis).slice(0, -3) + ": " + count(v))));
      });
      if (counted > 0) picture.append(svg("line", { x1: 0, x2: counted * wide, y1: base, y2: base, class: "unknown" }));
      picture.append(svg("line", { x1: counted * wide, x2: width, y1: base, y2: base, class: "base" }));
    });
    const bottom = bands.length * (band + gap) + 12;
    for (const [at, anchor, text] of [[0, "start", "60 min ago"], [width / 2, "middle", "30 min ago"], [width, "end", "now"]]) {
      picture.append(svg("text", { x: at, y: bottom, "text-anchor": anchor }, text));
    }
    picture.setAttribute("aria-label", "In the last hour, of all nodes. " + said.join(". "));
    const parts = [picture];
    if (counted > 0) parts.push(el("p", { class: "note" }, doc.node + " counts since " + clock(doc.steps[counted].startUnixMillis).slice(0, -3) + "."));
    $("hour").replaceChildren(...parts);
  }

  // ---- breaks and losses

  const reasons = { expired: "the lease was over", session: "the session was over", broken: "broken", flushed: "flushed" };

  function showLosses(doc) {
    $("losses").hidden = false;
    state.lostOften = doc.lossGroups.filter((g) => g.advice);
    const shown = { native: 0, stock: 0 }; // counted apart, as many clients let stock locks expire
    fill($("loss-list"), doc.lossGroups.filter((g) => ++shown[g.last.kind] <= 10).map((g) => {
      const l = g.last;
      const why = l.cause ? l.cause.command.toUpperCase() + (l.cause.by ? " by " + clientText(l.cause.by) : "") : "";
      return el("tr", {},
        td("n", clock(l.endedUnixMillis)),
        td("name", short(visible(l.key, l.keyBase64)) || "(empty name)", l.db ? el("span", { class: "kind" }, "db " + l.db) : "",
          g.count > 1 ? el("strong", { class: "kind" }, "×" + count(g.count) + (g.lastMinute ? ", " + count(g.lastMinute) + " in the last minute" : "")) : "",
          el("span", { class: "note" }, (g.count > 1 ? "last " : "") + short(visible(l.owner, l.ownerBase64)) + (l.fence ? ", fence " + l.fence : ""))),
        td("", el("strong", {}, reasons[l.reason] || visible(l.reason)), " after " + (span(g.minHeldMillis) === span(g.maxHeldMillis) ? "" : span(g.minHeldMillis) + " to ") + span(g.maxHeldMillis),
          l.cause && l.cause.text ? el("span", { class: "note" }, "“" + short(visible(l.cause.text)) + "”") : "",
          why ? el("span", { class: "note" }, why) : ""));
    }));
    $("losses-empty").hidden = doc.losses.length > 0;
  }

  // ---- start

  let soon = 0;
  function lookSoon() {
    clearTimeout(soon);
    soon = setTimeout(poll, 250);
  }
  for (let db = 0; db < 16; db++) $("db").append(el("option", { value: String(db) }, String(db)));
  $("tools").addEventListener("submit", (e) => { e.preventDefault(); poll(); });
  $("find").addEventListener("input", lookSoon);
  for (const id of ["mode", "db", "sort"]) $(id).addEventListener("change", poll);
  $("one-close").addEventListener("click", close);
  addEventListener("keydown", (e) => {
    if (e.key === "Escape" && state.one && e.target !== $("find")) close();
    if (e.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) { e.preventDefault(); $("find").focus(); }
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); else clearTimeout(state.timer); });
  openFromAddress();
  poll();
})();
