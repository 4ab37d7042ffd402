"use strict";
// The page holds one row and what the server said last. Every text from the table is set as text, never as markup.

const byId = (id) => document.getElementById(id);
const name = (new URLSearchParams(location.search).get("name") || "").trim().slice(0, 100);
const tab = sessionStorage.getItem("tab") || crypto.getRandomValues(new Uint32Array(4)).join("-");
sessionStorage.setItem("tab", tab);

const POLL = 4000, RETRY = 1000, IDLE = 10 * 60 * 1000;
let item = null; // the row on the screen
let editing = null; // its answer so far, when an earlier answer is being changed
let busy = false;
let shown = 0; // how many states the page has shown
let lastAction = Date.now();

// ---- asking the server -------------------------------------------------------------------------------------------

async function ask(path, fields = {}) {
  const reply = await fetch(`/api/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name, tab, ...fields }),
  });
  const kind = reply.headers.get("content-type") || "";
  const body = kind.startsWith("application/json") ? await reply.json() : { error: await reply.text() };
  if (!reply.ok) throw Object.assign(new Error(body.error || `The server answered ${reply.status}.`), { status: reply.status });
  return body;
}

const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// A request that is sent until the server has answered it: sent twice, an answer is still kept once.
async function send(path, fields, said) {
  if (busy) return;
  busy = true;
  lastAction = Date.now();
  document.body.classList.add("busy");
  try {
    for (;;) {
      try {
        const state = await ask(path, fields);
        problem(state.progress.problem);
        show(state, said);
        return;
      } catch (error) {
        if (error.status === 409) {
          say(error.message);
          if (path !== "undo") show(await ask("next"), error.message);
          return;
        }
        if (error.status) {
          problem(error.message);
          return;
        }
        problem("The server does not answer. Your answer is sent again until it does; leave this page open.");
        await wait(RETRY);
      }
    }
  } catch (error) {
    problem(error.message);
  } finally {
    busy = false;
    document.body.classList.remove("busy");
  }
}

// ---- showing -----------------------------------------------------------------------------------------------------

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function text(tag, className, content) {
  const element = make(tag, className, content);
  element.dir = "auto";
  return element;
}

const say = (words) => { byId("said").textContent = words; };

function problem(words) {
  byId("problem").hidden = !words;
  if (byId("problem").textContent !== (words || "")) byId("problem").textContent = words || "";
}

const percent = (share) => `${Math.round(100 * share)} %`;
const short = (label) => (label.length > 60 ? `${label.slice(0, 60)}…` : label);
const answerName = (answer) => (answer.label === null ? "none of these" : answer.label);

function cells(list, pairs) {
  list.replaceChildren(...pairs.map(([key, value]) => {
    const pair = make("div");
    pair.append(text("dt", "", key), text("dd", "", value));
    return pair;
  }));
}

function show(state, said = "") {
  shown += 1;
  item = state.item;
  editing = state.editing || null;
  typing(false);
  byId("row").hidden = !item;
  byId("done").hidden = Boolean(item);
  showLast(state.last);
  showProgress(state.progress);
  if (item) showRow(said); else showDone(state.progress, said);
}

function showRow(said) {
  byId("row-name").textContent = `Row ${item.id}`;
  byId("editing").hidden = !editing;
  if (editing) byId("editing").textContent = "changing an answer";
  showImage();
  byId("text").hidden = item.text === null;
  byId("text").textContent = item.text || "";
  byId("text").scrollTop = 0;
  byId("columns").hidden = !item.columns.length;
  cells(byId("columns"), item.columns);
  byId("more").hidden = !item.more_columns.length;
  byId("more-name").textContent = `${item.columns.length ? "Further columns" : "Columns"} (${item.more_columns.length})`;
  cells(byId("more-columns"), item.more_columns);
  byId("reason").textContent = editing || !item.reason ? "" : `Why this row: ${item.reason}.`;
  byId("choices").replaceChildren(...item.candidates.map(choice));
  byId("skip").hidden = Boolean(editing);
  byId("row").focus({ preventScroll: true });
  scrollTo({ top: 0 });
  const guess = item.candidates.find((candidate) => candidate.index === item.guess);
  const count = `${item.candidates.length} ${item.candidates.length === 1 ? "candidate" : "candidates"}`;
  say([said, `Row ${short(item.id)}: ${count}${guess ? `, guess ${short(guess.label)}` : ""}.`].filter(Boolean).join(" "));
}

function showImage() {
  const image = byId("image");
  byId("figure").hidden = !item.image;
  byId("image-problem").hidden = true;
  if (!item.image) {
    image.removeAttribute("src");
    return;
  }
  image.hidden = false;
  image.alt = `Picture ${item.image_name}`;
  image.src = item.image;
}

function choice(candidate, place) {
  const key = place < 9 ? String(place + 1) : place === 9 ? "0" : "";
  const button = make("button", "choice");
  button.type = "button";
  if (key) button.append(make("kbd", "", key));
  button.append(text("span", "name", candidate.label));
  const guess = candidate.index === item.guess && !editing;
  const facts = [];
  if (guess) facts.push("guess");
  if (candidate.probability !== null) facts.push(percent(candidate.probability));
  if (candidate.votes) facts.push(`${candidate.votes} ${candidate.votes === 1 ? "vote" : "votes"}`);
  if (editing && editing.label === candidate.label) {
    facts.unshift("your answer");
    button.classList.add("chosen");
  }
  button.append(make("span", "facts", facts.join(" · ")));
  if (guess) button.classList.add("guess");
  button.addEventListener("click", () => answer({ choice: candidate.index }, candidate.label));
  const entry = make("li");
  entry.append(button);
  return entry;
}

function showDone(progress, said) {
  const all = progress.open === 0;
  byId("done-name").textContent = all ? "Every row is answered" : "Nothing is free at the moment";
  byId("done-text").textContent = all
    ? "The answers are saved. You can close this page and stop the server."
    : `The last ${progress.open} rows are with other people. They come back if they are not answered.`;
  byId("done").focus({ preventScroll: true });
  say([said, byId("done-name").textContent].filter(Boolean).join(" "));
}

function showLast(last) {
  byId("no-last").hidden = last.length > 0;
  byId("last").replaceChildren(...last.map((answer) => {
    const button = make("button");
    button.type = "button";
    button.append(text("span", "id", short(answer.id)), text("span", "label", short(answerName(answer))));
    button.setAttribute("aria-describedby", "last-hint");
    button.addEventListener("click", () => send("open", { row: answer.row }, "Change this answer, or press Escape."));
    const entry = make("li");
    entry.append(button);
    return entry;
  }));
}

function showProgress(progress) {
  byId("bar").max = Math.max(progress.goal, 1);
  byId("bar").value = Math.min(progress.answers, progress.goal);
  const mine = progress.mine === progress.answers ? "" : `, ${progress.mine} of them yours`;
  const goal = progress.answers < progress.goal ? `${progress.answers} of ${progress.goal} answers` : `${progress.answers} answers`;
  byId("count").textContent = `${goal}${mine} · ${progress.rows} rows`;
  const { curve } = progress;
  if (!curve.length) {
    byId("accuracy").textContent = "";
    byId("gain").textContent = "After some answers, a model is fitted in the background and its accuracy on answers it has not seen stands here.";
    byId("chart").replaceChildren();
    return;
  }
  const [count, accuracy] = curve[curve.length - 1];
  const error = Math.sqrt(accuracy * (1 - accuracy) / count);
  byId("accuracy").textContent = `With ${count} answers, ${percent(accuracy)} (± ${Math.round(100 * error)}) of the rows held out are resolved rightly.`;
  byId("gain").textContent = gainWords(progress);
  byId("chart").replaceChildren(chart(curve));
}

function gainWords({ gain, gain_rows: rows, more }) {
  if (gain === null) return `What ${more} more answers are worth is shown after three refits.`;
  if (gain < 5e-4) return `${more} more answers: the curve is flat, so they are worth little beyond their own rows.`;
  const points = (100 * gain).toFixed(1);
  return `${more} more answers: about +${points} points, ${rows} more rows of the table right.`;
}

function svg(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function chart(curve) {
  const width = 280, height = 120, left = 34, bottom = 20, top = 8, right = 8;
  const last = curve[curve.length - 1][0];
  const low = Math.min(...curve.map(([, a]) => a)), high = Math.max(...curve.map(([, a]) => a));
  const from = Math.max(0, Math.floor(10 * low - 0.5) / 10), to = Math.min(1, Math.ceil(10 * high + 0.5) / 10);
  const x = (n) => left + (width - left - right) * n / last;
  const y = (a) => height - bottom - (height - bottom - top) * (a - from) / Math.max(to - from, 1e-9);
  const shown = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const title = svg("title", {});
  title.textContent = `Held-out accuracy over answers: ${curve.map(([n, a]) => `${n}: ${percent(a)}`).join(", ")}`;
  shown.append(title);
  for (const level of [from, to]) {
    shown.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: y(level), y2: y(level) }));
    const label = svg("text", { x: left - 4, y: y(level) + 4, "text-anchor": "end" });
    label.textContent = percent(level);
    shown.append(label);
  }
  const count = svg("text", { x: width - right, y: height - 5, "text-anchor": "end" });
  count.textContent = `${last} answers`;
  shown.append(count);
  shown.append(svg("polyline", { class: "line", points: curve.map(([n, a]) => `${x(n)},${y(a)}`).join(" ") }));
  for (const [n, a] of curve) shown.append(svg("circle", { class: "dot", cx: x(n), cy: y(a), r: 3 }));
  return shown;
}

// ---- doing -------------------------------------------------------------------------------------------------------

function answer(fields, label) {
  if (!item) return;
  send("answer", { row: item.row, edit: Boolean(editing), ...fields }, `Kept: ${short(label)}.`);
}

function accept() {
  if (!item) return;
  const guess = item.candidates.find((candidate) => candidate.index === item.guess);
  if (guess && !editing) answer({ choice: guess.index }, guess.label);
  else say("No guess is marked: choose a label by its number.");
}

function typing(open) {
  byId("typing").hidden = !open;
  byId("actions").hidden = open;
  if (open) {
    byId("typed").value = "";
    byId("typed").focus();
  } else if (item) byId("row").focus({ preventScroll: true });
}

const skip = () => { if (item && !editing) send("skip", { row: item.row }, "Skipped; it comes back last."); };
const undo = () => send("undo", {}, "Taken back.");

function back() {
  if (!byId("typing").hidden) typing(false);
  else if (editing) send("next", {}, "Not changed.");
}

function number(key) {
  const place = key === "0" ? 9 : Number(key) - 1;
  const candidate = item && item.candidates[place];
  if (candidate) answer({ choice: candidate.index }, candidate.label);
  else say(`There is no candidate ${key}.`);
}

function onKey(event) {
  const inField = event.target.matches("input:not([type=checkbox])");
  const onControl = event.target.matches("button, summary, a, input");
  if (byId("keys").open || event.altKey || event.metaKey && event.key !== "z") return;
  if (event.key === "Escape") return back();
  if (inField || busy) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z") {
    event.preventDefault();
    return undo();
  }
  if (event.ctrlKey || event.repeat || !byId("single").checked) return;
  if (onControl && (event.key === " " || event.key === "Enter")) return; // the control's own keys
  const actions = { Enter: accept, a: accept, x: () => item && typing(true), " ": skip, Backspace: undo, h: help, "?": help };
  const action = /^[0-9]$/.test(event.key) ? () => number(event.key) : actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

const help = () => byId("keys").showModal();

async function poll() {
  for (;;) {
    await wait(POLL);
    if (busy || document.hidden || Date.now() - lastAction > IDLE) continue;
    try {
      const before = shown;
      const progress = await ask("status");
      if (busy || shown !== before) continue; // it may be older than what the page shows
      problem(progress.problem);
      showProgress(progress);
    } catch {
      // the next answer reports it, and is sent until it is kept
    }
  }
}

async function start() {
  byId("who").textContent = name ? `You answer as ${name}.` : "Several people? Each adds ?name=… to the address.";
  document.addEventListener("keydown", onKey);
  byId("image").addEventListener("load", () => byId("image").classList.toggle("small", byId("image").naturalWidth < 100));
  byId("image").addEventListener("error", () => {
    byId("image").hidden = true;
    byId("image-problem").hidden = false;
    byId("image-problem").textContent = `The picture ${item && item.image_name} cannot be shown.`;
  });
  byId("none").addEventListener("click", () => typing(true));
  byId("skip").addEventListener("click", skip);
  byId("undo").addEventListener("click", undo);
  byId("undo-done").addEventListener("click", undo);
  byId("again").addEventListener("click", () => send("next", {}, ""));
  byId("help").addEventListener("click", help);
  byId("cancel").addEventListener("click", () => typing(false));
  byId("typing").addEventListener("submit", (event) => {
    event.preventDefault();
    const typed = byId("typed").value.trim();
    answer({ typed }, typed || "none of these");
  });
  byId("single").checked = localStorage.getItem("single-keys") !== "off";
  byId("single").addEventListener("change", () => localStorage.setItem("single-keys", byId("single").checked ? "on" : "off"));
  for (;;) {
    try {
      const state = await ask("start");
      document.title = `Label ${state.table}`;
      byId("table").textContent = state.table;
      byId("labels").replaceChildren(...state.labels.slice(0, 2000).map((label) => Object.assign(document.createElement("option"), { value: label })));
      problem(state.progress.problem);
      show(state);
      break;
    } catch (error) {
      problem(error.status ? error.message : "The server does not answer; trying again.");
      if (error.status && error.status !== 507) return;
      await wait(RETRY);
    }
  }
  poll();
}

start();
