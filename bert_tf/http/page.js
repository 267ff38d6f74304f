// The page of a model; with #example behind its address it begins with an example. Texts reach the page as text nodes only, never as HTML.
const $ = (id) => document.getElementById(id);
const counted = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;
const percent = (share) => (share > 0 && share < 0.0005 ? "< 0.1 %" : `${(share * 100).toFixed(1)} %`);
const TITLES = {
  classification: "Which label fits?", multi_label: "Which labels apply?", regression: "What score does it get?",
  multiple_choice: "Which ending fits best?", token_labels: "Which label has each word?",
  embeddings: "What vector stands for it?", fill_mask: "What is behind [MASK]?",
  question_answering: "What does the passage say?",
};
const TOWER = "The Eiffel Tower was built for the 1889 World's Fair by the company of Gustave Eiffel. " +
  "It is 330 metres tall and was the tallest structure in the world until 1930, when the Chrysler " +
  "Building in New York was finished. Some seven million people climb it each year.";
const EXAMPLES = {
  text: "The plot is thin, but the actors are wonderful and the music stays with you.",
  text_a: "The company said its profit rose by a third last year.",
  text_b: "Last year the profit of the company grew, it said.",
  question: "How tall is the Eiffel Tower?", context: TOWER,
};
const EXAMPLES_OF = {
  fill_mask: { text: "The capital of [MASK] is Paris, and bread is made from [MASK] and water." },
  token_labels: { text: "In 1889 Gustave Eiffel opened his tower in Paris, on the left bank of the Seine." },
  multiple_choice: {
    context: "She opened the umbrella because",
    endings: "it had begun to rain.\nthe soup was too hot.\nthe train was late.",
  },
};

let model;
let asked = null; // the texts of the answer that is shown
let seen = null; // pieces and attention of the sequence that is shown
let head = 0;
let chosen = null; // the piece whose attention is shown
let turn = 0; // so that a late answer does not replace a newer one

// ---------------------------------------------------------------- small helpers

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

async function ask(path, body) {
  const options = body && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, options || undefined);
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function bars(rows) {
  // rows: {name, share, best, shown, onclick}
  const most = Math.max(1, ...rows.map((row) => row.share));
  return make("ul", { class: "bars" }, ...rows.map((row) => {
    const fill = make("div", { class: "fill" });
    fill.style.width = `${(100 * row.share) / most}%`;
    const name = row.onclick ? make("button", { type: "button", onclick: row.onclick }, row.name) : row.name;
    return make("li", { class: row.best ? "best" : "" },
      make("span", { class: "name" }, name),
      make("span", { class: "value" }, row.shown ?? percent(row.share)),
      make("div", { class: "track" }, fill));
  }));
}

const big = (text, none) => make("p", { class: none ? "big none" : "big" }, text);
const note = (text) => make("p", { class: "note" }, text);

// ---------------------------------------------------------------- the form

function makeFields() {
  for (const text of model.texts) {
    const rows = text.isList || /any length/.test(text.what) ? 6 : model.texts.length === 1 ? 4 : 2;
    const area = make("textarea", { name: text.name, rows, spellcheck: "false" });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
    });
    const name = text.name.replace("_", " ");
    const more = text.isList ? "one a line" : text.what;
    $("fields").append(make("label", { class: "field" },
      make("span", {}, name, " ", make("small", {}, more === `the ${name}` ? "" : `– ${more}`)), area));
  }
}

function readFields() {
  const texts = {};
  for (const text of model.texts) {
    const { value } = $("form").elements[text.name];
    texts[text.name] = text.isList ? value.split("\n").filter((line) => line.trim()) : value;
  }
  return texts;
}

function askAgain(texts) {
  for (const { name } of model.texts) $("form").elements[name].value = [texts[name] ?? ""].flat().join("\n");
  $("form").requestSubmit();
}

const MOST_ASKED = 30;
const before = new Map(); // texts asked since the page was loaded, as JSON, and their buttons

function remember(texts) {
  const key = JSON.stringify(texts);
  if (!before.has(key)) {
    const words = Object.values(texts).flat().join(" · ").slice(0, 300);
    const answer = [...$("answer").querySelectorAll(".big, mark:not(.tag)")].map((node) => node.textContent).join(", ");
    const button = make("button", { type: "button", title: words, onclick: () => askAgain(texts) },
      make("span", { class: "name" }, words || "(empty)"), make("span", { class: "value" }, answer));
    before.set(key, button);
    $("asked-list").prepend(make("li", {}, button));
    if (before.size > MOST_ASKED) {
      before.delete(before.keys().next().value);
      $("asked-list").lastChild.remove();
    }
  }
  for (const [other, button] of before) button.setAttribute("aria-current", String(other === key));
  $("asked").hidden = false;
}

async function submit(event) {
  event.preventDefault();
  const mine = ++turn;
  const texts = readFields();
  $("error").hidden = true;
  $("answer").classList.add("busy");
  $("go").disabled = true;
  try {
    const found = await ask("/api/answer", { texts });
    if (mine !== turn) return;
    asked = texts;
    const time = found.milliseconds;
    $("time").textContent = time < 1000 ? `${time.toFixed(time < 10 ? 1 : 0)} ms` : `${(time / 1000).toFixed(1)} s`;
    $("answer").replaceChildren(...VIEWS[model.task](found.answer, texts));
    remember(texts);
    showParts(found.parts, found.part);
    await showInside();
  } catch (error) {
    showError(error);
  } finally {
    $("answer").classList.remove("busy");
    $("go").disabled = false;
  }
}

function showError(error) {
  $("error").textContent = error.message;
  $("error").hidden = false;
}

// ---------------------------------------------------------------- answers

const VIEWS = {
  classification(answer) {
    const rows = answer.labels.map((name, i) => ({ name, share: answer.probabilities[i], best: name === answer.label }));
    rows.sort((a, b) => b.share - a.share);
    return [big(answer.label), bars(rows)];
  },

  multi_label(answer) {
    const rows = answer.labels.map((name, i) => ({ name, share: answer.probabilities[i], best: answer.applies[i] }));
    rows.sort((a, b) => b.share - a.share);
    const names = rows.filter((row) => row.best).map((row) => row.name);
    return [big(names.join(", ") || "none of them", !names.length), note("A label applies from its threshold on: 50 % unless the model has others."), bars(rows)];
  },

  regression(answer) {
    return [big(answer.score.toFixed(3)), note("The score, on the scale of the examples that it was trained on.")];
  },

  multiple_choice(answer, texts) {
    const rows = texts.endings.map((name, i) => ({ name, share: answer.probabilities[i], best: i === answer.choice }));
    return [big(texts.endings[answer.choice]), bars(rows)];
  },

  question_answering(answer, texts) {
    const passage = make("div", { class: "passage", tabindex: "0" });
    const points = [...texts.context]; // offsets count code points
    const show = (start, end) => {
      const inside = make("mark", {}, points.slice(start, end).join(""));
      if (start < 0) passage.replaceChildren(texts.context);
      else passage.replaceChildren(points.slice(0, start).join(""), inside, points.slice(end).join(""));
      if (start >= 0) passage.scrollTop = inside.offsetTop - passage.offsetTop - passage.clientHeight / 3;
    };
    requestAnimationFrame(() => show(answer.start, answer.end));
    const rows = answer.nbest_answers.map((text, i) => ({
      name: text || "no answer", share: answer.nbest_probabilities[i],
      best: answer.has_answer ? answer.nbest_starts[i] === answer.start && answer.nbest_ends[i] === answer.end : !text,
      onclick: () => show(answer.nbest_starts[i], answer.nbest_ends[i]),
    }));
    const odds = answer.null_odds === undefined ? [] : [note(
      `The score of “no answer” less that of the best answer is ${answer.null_odds.toFixed(2)}; ` +
      `above ${model.options.null_score_diff_threshold} there is none.`)];
    const head = answer.has_answer ? big(answer.answer) : big("no answer", true);
    return [head, ...odds, passage, bars(rows)];
  },

  token_labels(answer, texts) {
    const points = [...texts.text];
    const passage = make("div", { class: "passage" });
    const kinds = [];
    let at = 0;
    for (let first = 0, next; first < answer.num_words; first = next) {
      next = first + 1;
      if (answer.labels[first] === "O") continue;
      const kind = answer.labels[first].replace(/^[BIES]-/, "");
      while (answer.labels[next] === `I-${kind}`) next += 1; // words of the same thing are one mark
      if (!kinds.includes(kind)) kinds.push(kind);
      const [start, end] = [answer.starts[first], answer.ends[next - 1]];
      const share = Math.min(...answer.probabilities.slice(first, next));
      passage.append(points.slice(at, start).join(""), mark(points.slice(start, end).join(""), kind, kinds, share));
      at = end;
    }
    passage.append(points.slice(at).join(""));
    if (!kinds.length) return [passage, note("No word has a label but O.")];
    return [passage, note(`Labels found: ${kinds.join(", ")}. Hold the pointer over a mark for its probability.`)];
  },

  embeddings(answer) {
    const parts = [];
    for (const [name, vector] of Object.entries(answer)) {
      const size = Math.hypot(...vector);
      parts.push(make("h3", {}, name), strip(vector), make("dl", {},
        make("dt", {}, "numbers"), make("dd", {}, String(vector.length)),
        make("dt", {}, "length"), make("dd", {}, size.toFixed(3)),
        make("dt", {}, "begins"), make("dd", {}, vector.slice(0, 6).map((x) => x.toFixed(3)).join("  "))));
      const before = earlier[name];
      if (before) {
        const dot = vector.reduce((sum, x, i) => sum + x * before.vector[i], 0);
        const cosine = dot / (size * Math.hypot(...before.vector) || 1);
        parts.push(note(`Cosine with the text before, “${before.text}”: ${cosine.toFixed(3)}`));
      }
    }
    const text = Object.values(readFields())[0];
    for (const [name, vector] of Object.entries(answer)) {
      earlier[name] = { vector, text: text.length > 40 ? `${text.slice(0, 40)}…` : text };
    }
    return parts;
  },

  fill_mask(answer, texts) {
    const pieces = answer.pieces;
    if (!pieces.length) return [big("there is no [MASK]", true), note("Write [MASK] where a word is to be guessed.")];
    const passage = make("div", { class: "passage" });
    texts.text.split("[MASK]").forEach((part, i) => {
      if (i > 0) passage.append(i <= pieces.length ? make("mark", {}, pieces[i - 1][0]) : "[MASK]");
      passage.append(part);
    });
    return [passage, ...pieces.flatMap((row, i) => [
      make("h3", {}, `[MASK] ${i + 1}`),
      bars(row.map((name, k) => ({ name, share: answer.probabilities[i][k], best: k === 0 }))),
    ])];
  },
};

const earlier = {}; // the vectors of the text before, to compare with

function mark(text, kind, kinds, share) {
  const node = make("mark", { class: "tag", title: `${kind}: ${percent(share)}` }, text, make("small", {}, kind));
  node.style.setProperty("--hue", String((kinds.indexOf(kind) * 137 + 210) % 360));
  return node;
}

function strip(vector) {
  const canvas = make("canvas", { class: "strip", role: "img", "aria-label": "the vector's numbers as shades" });
  canvas.width = vector.length;
  canvas.height = 1;
  const paper = canvas.getContext("2d");
  const most = Math.max(...vector.map(Math.abs)) || 1;
  vector.forEach((x, i) => {
    const shade = Math.abs(x) / most;
    paper.fillStyle = x < 0 ? `rgba(200, 90, 20, ${shade})` : `rgba(${color("--accent-rgb")}, ${shade})`;
    paper.fillRect(i, 0, 1, 1);
  });
  return canvas;
}

// ---------------------------------------------------------------- pieces and attention

function showParts(names, part) {
  $("part-label").hidden = names.length < 2;
  $("part").replaceChildren(...names.map((name, i) => make("option", { value: i }, name)));
  $("part").value = part;
  chosen = null;
}

let inside = 0;
async function showInside() {
  const mine = ++inside;
  $("layer-number").textContent = $("layer").value;
  const found = await ask("/api/attention", {
    texts: asked, part: Number($("part").value), layer: Number($("layer").value) - 1,
  });
  if (mine !== inside) return;
  const bytes = Uint8Array.from(atob(found.attention), (c) => c.charCodeAt(0));
  seen = { ...found, bytes, size: found.ids.length };
  $("inside").hidden = false;
  $("edge").hidden = !seen.segments.includes(1);
  drawHeads();
  showPieces();
  drawPicture();
}

const weight = (h, from, to) => seen.bytes[(h * seen.size + from) * seen.size + to] / 255;

function drawHeads() {
  const layer = `layer ${$("layer").value}`;
  $("heads-title").textContent = `Heads of ${layer}`;
  $("heads").replaceChildren(...Array.from({ length: model.config.num_attention_heads }, (_, h) => {
    const canvas = make("canvas");
    canvas.width = canvas.height = seen.size;
    canvas.getContext("2d").drawImage(matrix(h), 0, 0);
    return make("button", {
      type: "button", "aria-pressed": String(h === head), "aria-label": `${layer}, head ${h + 1}`, title: `${layer}, head ${h + 1}`,
      onclick: () => { head = h; drawHeads(); shadePieces(); drawPicture(); $("heads").children[h].focus(); },
    }, canvas, String(h + 1));
  }));
}

function matrix(h) {
  const canvas = make("canvas");
  canvas.width = canvas.height = seen.size;
  const paper = canvas.getContext("2d");
  const image = paper.createImageData(seen.size, seen.size);
  const [r, g, b] = color("--accent-rgb").split(",").map(Number);
  const offset = h * seen.size * seen.size;
  for (let i = 0; i < seen.size * seen.size; i += 1) {
    // The square root, or only the strongest would be seen.
    image.data.set([r, g, b, 255 * Math.sqrt(seen.bytes[offset + i] / 255)], 4 * i);
  }
  paper.putImageData(image, 0, 0);
  return canvas;
}

function showPieces() {
  $("pieces").replaceChildren(...seen.pieces.map((piece, i) => make("button", {
    type: "button", "aria-pressed": "false",
    class: `piece${seen.segments[i] ? " second" : ""}${/^\[[A-Z]+\]$/.test(piece) ? " special" : ""}`,
    title: `place ${i}, id ${seen.ids[i]}, segment ${seen.segments[i]}`,
    onclick: () => { chosen = chosen === i ? null : i; shadePieces(); drawPicture(); },
  }, piece, make("small", {}, String(seen.ids[i])))));
  if (chosen !== null && chosen >= seen.size) chosen = null;
  shadePieces();
}

function shadePieces() {
  const strong = Number(color("--strong")); // from which on light text is easier to read than dark, or dark than light
  [...$("pieces").children].forEach((node, i) => {
    const shade = chosen === null ? 0 : Math.sqrt(weight(head, chosen, i));
    node.style.setProperty("--weight", String(shade));
    node.classList.toggle("strong", shade > strong);
    node.setAttribute("aria-pressed", String(chosen === i));
  });
  showLooks();
}

const MOST_LOOKS = 6; // pieces in the list of where one looks
function showLooks() {
  if (chosen === null) return $("looks").replaceChildren(note("Choose a piece, above or in the matrix, to list where it looks."));
  const rows = seen.pieces.map((piece, i) => ({ name: `${piece} (place ${i})`, share: weight(head, chosen, i) }));
  rows.sort((a, b) => b.share - a.share);
  rows[0].best = true;
  return $("looks").replaceChildren(make("h4", {}, `${seen.pieces[chosen]} (place ${chosen}) looks at`), bars(rows.slice(0, MOST_LOOKS)));
}

const MOST_NAMES = 80; // pieces of a sequence whose picture has their names beside it
const BESIDE = 300; // pixels for the heads at the right, in a window with room for them
function layout() {
  const named = seen.size <= MOST_NAMES;
  const paper = $("picture").getContext("2d");
  paper.font = font(13);
  const widths = named ? seen.pieces.map((piece) => paper.measureText(piece).width) : [0];
  const margin = named ? Math.min(110, Math.ceil(Math.max(...widths)) + 10) : 0;
  const all = $("matrix").clientWidth - margin - 2;
  const isWide = all - BESIDE >= Math.max(400, named ? 9 * seen.size : 0);
  const room = isWide ? all - BESIDE : all;
  const cell = named ? Math.max(9, Math.min(30, Math.floor(room / seen.size))) : Math.max(1, Math.min(8, room / seen.size));
  return { named, margin, cell, side: margin + cell * seen.size };
}

const font = (size) => `${size}px ${getComputedStyle(document.body).fontFamily}`;

function drawPicture() {
  const { named, margin, cell, side } = layout();
  const canvas = $("picture");
  const sharp = window.devicePixelRatio || 1;
  canvas.width = canvas.height = Math.ceil(side * sharp);
  canvas.style.width = canvas.style.height = `${side}px`;
  const title = `layer ${$("layer").value}, head ${head + 1}`;
  $("picture-title").textContent = title;
  canvas.setAttribute("aria-label", `attention of ${title} as a matrix of ${seen.size} by ${seen.size} pieces`);
  const paper = canvas.getContext("2d");
  paper.scale(sharp, sharp);
  paper.fillStyle = color("--page");
  paper.fillRect(margin, margin, cell * seen.size, cell * seen.size);
  paper.imageSmoothingEnabled = false;
  paper.drawImage(matrix(head), margin, margin, cell * seen.size, cell * seen.size);
  if (chosen !== null) {
    paper.strokeStyle = color("--text");
    paper.strokeRect(margin, margin + chosen * cell, cell * seen.size, Math.max(cell, 2));
  }
  if (named) drawNames(paper, margin, cell);
}

function drawNames(paper, margin, cell) {
  paper.font = font(Math.min(13, cell));
  paper.textAlign = "right";
  paper.textBaseline = "middle";
  seen.pieces.forEach((piece, i) => {
    const middle = margin + (i + 0.5) * cell;
    paper.fillStyle = i === chosen ? color("--text") : color("--soft");
    paper.fillText(piece, margin - 5, middle, margin - 6);
    paper.save();
    paper.translate(middle, margin - 5);
    paper.rotate(Math.PI / 2);
    paper.fillText(piece, 0, 0, margin - 6);
    paper.restore();
  });
}

function readOut(event) {
  const { margin, cell } = layout();
  const to = Math.floor((event.offsetX - margin) / cell);
  const from = Math.floor((event.offsetY - margin) / cell);
  if (to < 0 || from < 0 || to >= seen.size || from >= seen.size) return null;
  $("readout").textContent =
    `${seen.pieces[from]} (place ${from}) looks at ${seen.pieces[to]} (place ${to}): ${percent(weight(head, from, to))}`;
  return from;
}

// ---------------------------------------------------------------- the beginning

async function begin() {
  model = await ask("/api/model");
  document.title = $("title").textContent = TITLES[model.task];
  const name = model.name.filter(Boolean).join(", version ").replace(/, version (?!\d+$)/, "/");
  const config = model.config;
  $("facts").textContent = [
    name, model.task.replace("_", " "), counted(config.num_hidden_layers, "layer"),
    counted(config.num_attention_heads, "head"),
    `${config.hidden_size} numbers a piece`, model.do_lower_case ? "lower-cased" : "cased",
    `at most ${model.options.max_seq_length} pieces`,
  ].join(" · ");
  $("layer").max = $("layer").value = config.num_hidden_layers;
  $("layer").parentElement.hidden = config.num_hidden_layers < 2;
  makeFields();
  $("form").addEventListener("submit", submit);
  const example = { ...EXAMPLES, ...EXAMPLES_OF[model.task] };
  $("example").addEventListener("click", () => askAgain(example));
  const again = () => showInside().catch(showError);
  $("layer").addEventListener("input", again);
  $("part").addEventListener("change", () => { chosen = null; again(); });
  $("picture").addEventListener("mousemove", readOut);
  $("picture").addEventListener("click", (event) => {
    const from = readOut(event);
    chosen = from === chosen ? null : from;
    shadePieces();
    drawPicture();
  });
  const redraw = () => seen && (drawHeads(), shadePieces(), drawPicture());
  window.addEventListener("resize", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  $("go").disabled = false;
  $("form").elements[model.texts[0].name].focus();
  if (location.hash === "#example") askAgain(example);
}

begin().catch((error) => {
  $("title").textContent = "The model cannot be shown";
  showError(error);
});
