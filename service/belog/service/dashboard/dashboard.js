// The dashboard: a client of the service's own HTTP API, and of nothing else.
// All that comes from the log is put into the page as text, never as markup.

const TOKEN = "belog-token"; // kept for this tab only
const PAGE_ROWS = 50;
const WAIT_S = 25; // of one long-poll; below what proxies cut off
const RETRY_MS = 2000;
const EVENTS_SHOWN_MAX = 300;

const view = document.getElementById("view");
const problem = document.getElementById("problem");
const signIn = document.getElementById("sign-in");

let leaving = new AbortController(); // ends what the view that is left still asks for

// --- asking

async function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { Accept: "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(path, { ...options, headers, signal: leaving.signal });
  const found = await answer.json();
  if (answer.status === 401) signIn.hidden = false;
  if (!answer.ok) {
    throw new Error([found.title, found.detail, found.hint].filter(Boolean).join(" — "));
  }
  return found;
}

signIn.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, new FormData(signIn).get("token"));
  signIn.hidden = true;
  show();
});

// --- writing

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const state = (name) => make("span", { class: `state ${name.toLowerCase()}` }, name.toLowerCase());
const link = (kind, id) => make("a", { href: `#/${kind}/${encodeURIComponent(id)}` }, id);
const time = (micros) =>
  !micros || micros === "0" ? "" : new Date(Number(BigInt(micros) / 1000n)).toLocaleString();

function table(titles, rows) {
  if (!rows.length) return make("p", {}, "none");
  return make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((c) => make("td", {}, c ?? ""))))),
  );
}

const section = (title, ...children) => [make("h2", {}, title), ...children];

// --- rows of the kinds of things

const partitionTable = (rows) =>
  table(
    ["partition", "state", "build", "index", "updated"],
    rows.map((p) => [
      link("partitions", p.partition_ref),
      state(p.status),
      p.job_graph_run_id ? link("builds", p.job_graph_run_id) : "",
      p.index,
      time(p.updated_at),
    ]),
  );

const buildTable = (rows) =>
  table(
    ["build", "state", "client", "index", "updated"],
    rows.map((b) => [
      link("builds", b.build_request_id),
      state(b.state),
      b.client_id,
      b.index,
      time(b.updated_at),
    ]),
  );

const jobTable = (rows) =>
  table(
    ["job run", "state", "label", "build", "updated"],
    rows.map((j) => [
      link("jobs", j.job_run_id),
      state(j.state),
      j.job_label,
      j.build_request_id ? link("builds", j.build_request_id) : "",
      time(j.updated_at),
    ]),
  );

const eventRow = (e) => {
  const kinds = { partition: "partitions", build: "builds", job_run: "jobs" };
  const kind = kinds[e.subject_kind];
  return [
    e.index,
    time(e.created_at),
    e.event_type,
    kind ? link(kind, e.subject_id) : e.subject_id,
    e.actor,
    JSON.stringify(e.body ?? {}),
  ];
};
const EVENT_TITLES = ["index", "ingested", "event", "subject", "actor", "payload"];
const eventTable = (events) => table(EVENT_TITLES, events.map(eventRow));

// --- the views

async function activity() {
  const found = await ask("activity");
  const cards = Object.entries(found.counts ?? {}).flatMap(([kind, counts]) =>
    Object.entries(counts.by_state ?? {}).map(([name, count]) =>
      make("div", {}, make("b", {}, String(count)), `${kind.replace("_", " ")} `, state(name)),
    ),
  );
  return [
    ...section("Now", make("div", { class: "cards" }, ...cards)),
    ...section("Job runs under way", jobTable(found.running ?? [])),
    ...section("Builds under way", buildTable(found.builds ?? [])),
    ...section("Partitions that failed lately", partitionTable(found.failed_partitions ?? [])),
    ...section("Job runs that failed lately", jobTable(found.failed_job_runs ?? [])),
  ];
}

async function listed(path, field, titles, query) {
  const rows = make("div");
  const more = make("button", { type: "button" }, "More");
  let cursor = "";
  const next = async () => {
    const asked = new URLSearchParams({ limit: PAGE_ROWS, ...query });
    if (cursor) asked.set("cursor", cursor);
    const found = await ask(`${path}?${asked}`);
    rows.append(titles(found[field] ?? []));
    cursor = found.next_page_token ?? "";
    more.hidden = !cursor;
  };
  more.addEventListener("click", () => next().catch(complain));
  await next();
  return [rows, more];
}

async function partitions(_, query) {
  const form = make("form", { class: "filter" });
  const states = ["", "requested", "scheduled", "building", "available", "failed", "stale", "delegated", "removed"];
  const chosen = query.get("state") ?? "";
  form.append(
    make("label", {}, "Begins with ", make("input", { name: "prefix", value: query.get("prefix") ?? "" })),
    make(
      "label",
      {},
      "State ",
      make("select", { name: "state" }, ...states.map((s) => make("option", { value: s, ...(s === chosen && { selected: "" }) }, s || "any"))),
    ),
    make("button", {}, "Show"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = [...new FormData(form)].filter(([, value]) => value);
    location.hash = `#/partitions?${new URLSearchParams(given)}`;
  });
  return [form, ...(await listed("partitions", "partitions", partitionTable, Object.fromEntries(query)))];
}

async function partition(ref) {
  const path = `partitions/${encodeURIComponent(ref)}`;
  const [row, explained, events] = await Promise.all([
    ask(path),
    ask(`${path}/explain`),
    ask(`${path}/events?limit=${PAGE_ROWS}`),
  ]);
  const causes = (explained.causes ?? []).map((c) => [c.index, time(c.at), c.link, c.event_type, c.subject_id, c.actor, c.reason]);
  return [
    make("h2", {}, ref),
    make("p", {}, state(row.status), ` since index ${row.index}, ${time(row.updated_at)}`),
    make("p", {}, explained.summary ?? ""),
    ...section("Why", table(["index", "ingested", "link", "event", "subject", "actor", "reason"], causes)),
    ...section("Made from", table(["partition"], (row.upstream_deps ?? []).map((dep) => [link("partitions", dep)]))),
    ...section("Events", eventTable(events.events ?? [])),
  ];
}

const builds = (_, query) => listed("builds", "builds", buildTable, Object.fromEntries(query));
const jobs = (_, query) => listed("jobs", "job_runs", jobTable, Object.fromEntries(query));

const one = (kind, filter) => async (id) => {
  const [row, events] = await Promise.all([
    ask(`${kind}/${encodeURIComponent(id)}`),
    ask(`events?${new URLSearchParams({ [filter]: id, limit: PAGE_ROWS })}`),
  ]);
  return [
    make("h2", {}, id),
    make("pre", {}, JSON.stringify(row, null, 2)),
    ...section("Events", eventTable(events.events ?? [])),
  ];
};

async function events() {
  const body = make("tbody");
  const follow = async () => {
    const { signal } = leaving;
    const status = await ask("status");
    let cursor = Math.max(0, Number(status.next_idx) - PAGE_ROWS);
    while (!signal.aborted) {
      try {
        const page = await ask(`events?since=${cursor}&limit=${PAGE_ROWS}&wait_s=${WAIT_S}`);
        cursor = page.next_idx;
        for (const event of page.events ?? []) {
          body.prepend(make("tr", {}, ...eventRow(event).map((cell) => make("td", {}, cell))));
        }
        while (body.rows.length > EVENTS_SHOWN_MAX) body.deleteRow(-1);
      } catch (error) {
        if (signal.aborted) return;
        complain(error);
        await new Promise((done) => setTimeout(done, RETRY_MS));
      }
    }
  };
  follow().catch(complain);
  const head = make("tr", {}, ...EVENT_TITLES.map((title) => make("th", { scope: "col" }, title)));
  return [make("h2", {}, "Events as they come"), make("table", {}, make("thead", {}, head), body)];
}

const VIEWS = {
  "": activity,
  partitions: [partitions, partition],
  builds: [builds, one("builds", "build_request_id")],
  jobs: [jobs, one("jobs", "job_run_id")],
  events,
};

// --- going from view to view

function complain(error) {
  if (error.name === "AbortError") return;
  problem.textContent = error.message;
  problem.hidden = false;
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  problem.hidden = true;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, id] = path.split("/", 2);
  const found = VIEWS[kind] ?? activity;
  const [list, single] = Array.isArray(found) ? found : [found];
  try {
    const made = await (id ? single(decodeURIComponent(id)) : list(null, new URLSearchParams(query)));
    view.replaceChildren(...made);
    const status = await ask("status");
    document.getElementById("log").textContent =
      `${status.instance} · ends at ${status.next_idx} · tables at ${status.applied}`;
  } catch (error) {
    complain(error);
  }
}

window.addEventListener("hashchange", show);
show();
