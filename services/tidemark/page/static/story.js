// The story of a key: asked for once, drawn once. The key is in the page's address, so that a story can be shared. With a
// partitioned record index a key may have a row in each of several partitions, so its partition is asked for, too.

import { byId, el, say } from "/dom.js";
import { ago, count, dayAndTime, instantMs, plural, shortened } from "/format.js";

const TIERS = {
  uncommitted: "tagged and not committed yet: the newest version is not in the files so far",
  hot: "answered from memory (hot cache)",
  rocksdb: "answered from local disk (RocksDB)",
  run: "answered from a run file, a copy of the record index on local disk",
  mdt: "answered from the record index itself",
};

export class Story {
  constructor() {
    this.form = byId("story-form");
    this.input = byId("story-key");
    this.partition = byId("story-partition");
    this.button = this.form.querySelector("button");
    this.result = byId("story");
    this.asked = null;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(this.input.value, this.named());
    });
    byId("story-some").addEventListener("click", () => this.askSome());
    window.addEventListener("hashchange", () => this.fromAddress());
    this.fromAddress();
  }

  // The partition that the user named; null where the record index is global, and none is asked for.
  named() {
    return this.partition.hidden ? null : this.partition.value;
  }

  hint({ record_key: fields, index_kind: kind }) {
    this.partition.hidden = kind !== "partitioned";
    const text = fields.length === 1 ? `the value of ${fields[0]}` : fields.map((field) => `${field}:…`).join(",");
    if (this.input.placeholder !== text) {
      this.input.placeholder = text;
      say(byId("story-hint"), fields.length === 1
        ? "The record key, exactly as in the table."
        : `A key of this table is written ${fields.map((field) => `${field}:VALUE`).join(",")}.`);
    }
  }

  fromAddress() {
    const given = new URLSearchParams(window.location.hash.slice(1));
    const key = given.get("key"), partition = given.get("partition");
    if (key && asked(key, partition) !== this.asked) {
      this.input.value = key;
      this.partition.value = partition ?? "";
      this.ask(key, partition);
    }
  }

  async askSome() {
    try {
      const answer = await fetch("/api/some-key", { cache: "no-store" });
      const { key, partition, error } = await answer.json();
      if (key) {
        this.input.value = key;
        this.partition.value = partition;
        await this.ask(key, this.named());
      } else this.result.replaceChildren(problem(error ?? "The table has no rows yet."));
    } catch {
      this.result.replaceChildren(problem("The coordinator does not answer: try again once it does."));
    }
  }

  async ask(key, partition) {
    if (!key) return;
    this.asked = asked(key, partition);
    window.history.replaceState(null, "", `#${this.asked}`);
    this.button.disabled = true;
    this.result.setAttribute("aria-busy", "true");
    this.result.replaceChildren(el("p", { class: "nothing" }, "Looking it up…"));
    try {
      const answer = await fetch(`/api/key?${this.asked}`, { cache: "no-store" });
      const story = await answer.json();
      this.result.replaceChildren(...(answer.ok ? told(story) : [problem(story.error)]));
    } catch {
      this.result.replaceChildren(problem("The coordinator does not answer: try again once it does."));
    } finally {
      this.button.disabled = false;
      this.result.removeAttribute("aria-busy");
    }
  }
}

const asked = (key, partition) => `${new URLSearchParams(partition === null ? { key } : { key, partition })}`;

const problem = (text) => el("p", { class: "problem" }, text);

function told(story) {
  if (story.deleted) {
    const until = story.ordering_field && (story.ordering ?? null) !== null
      ? el("span", {}, " Its delete has ", `${story.ordering_field} `, el("b", {}, value(story.ordering)), ": an older event does not bring it back.") : "";
    return [el("p", { class: "verdict" }, "Not in the table: ", el("code", {}, story.key), " was deleted.", until)];
  }
  if (!story.found) {
    return [el("p", { class: "verdict" }, "Not in the table: ", el("code", {}, story.key), " was never there, or its delete is not remembered any more.")];
  }
  const parts = [el("p", { class: "verdict" }, el("code", {}, story.key), " lives in ",
    story.partition_path ? el("span", {}, "partition ", el("b", {}, story.partition_path), ", ") : "", "file group ", el("code", {}, story.file_id), "."),
  el("ul", { class: "facts" },
    el("li", { "data-tier": story.tier }, el("b", {}, story.tier), " ", TIERS[story.tier] ?? ""),
    story.shard === null ? null : el("li", {}, `shard ${story.shard} of the record index`),
    story.ordering_field && story.ordering !== null ? el("li", {}, `${story.ordering_field} `, el("b", {}, value(story.ordering))) : null,
    story.slice ? el("li", {}, story.slice.base_file ? "base file" : "no base file", `, ${plural(story.slice.log_files, "log file")} in the slice`) : null)];
  if (story.files_error) parts.push(problem(`Its files cannot be shown: ${story.files_error}`));
  if (story.versions.length) parts.push(versions(story.versions));
  if (story.left_out?.length) parts.push(problem(`${plural(story.left_out.length, "log file")} of the slice ${story.left_out.length === 1 ? "was" : "were"} too large to be read here: what readers see is not worked out.`));
  if (story.merged) parts.push(el("h3", { class: "minor" }, "What readers see"), row(story.merged, null, "merged"));
  else if (story.slice && !story.left_out?.length && !story.files_error) parts.push(el("p", { class: "nothing" }, "Readers see no row: the newest version deletes it, or the row is not committed yet."));
  return parts;
}

function versions(all) {
  let before = null;
  const items = all.map((version) => {
    const item = versionItem(version, before);
    if (version.row) before = new Map(version.row);
    return item;
  });
  return el("ol", { class: "versions" }, ...items);
}

function versionItem(version, before) {
  const at = instantMs(version.completion);
  const kind = version.deletes ? "delete" : before === null ? "first version here" : "update";
  const where = `${version.slice === "earlier" ? "former " : ""}${version.kind === "base" ? "base file" : "log file"}`;
  const epoch = version.epoch === null ? "another writer’s commit, or an old one" : `epoch ${count(version.epoch)}`;
  const changed = version.row && before ? version.row.filter(([name, now]) => before.get(name) !== now) : null;
  return el("li", { class: "version", "data-read": version.is_read, "data-kind": version.deletes ? "delete" : version.kind },
    el("p", { class: "version-head" }, el("b", {}, epoch), " ", el("span", { class: "version-kind" }, kind), version.is_read ? el("span", { class: "version-kind", "data-read": true }, "what readers see") : null),
    el("p", { class: "soft small" }, at ? `${dayAndTime(at)} (${ago(Date.now() - at)}) · ` : "", `${where} `, el("code", { title: version.file }, shortened(version.file, 120)), ` · instant ${version.instant}`),
    version.ordering !== null && version.ordering !== undefined ? el("p", { class: "small" }, `deletes what is not newer than ${version.ordering}`) : null,
    changed?.length ? row(changed, before, "changed") : changed ? el("p", { class: "small soft" }, "no column differs from the version before") : null,
    version.row ? el("details", { class: "quiet" }, el("summary", {}, `whole row, ${plural(version.row.length, "column")}`), row(version.row, null, "")) : null);
}

function row(columns, before, kind) {
  return el("dl", { class: `pairs ${kind}` }, ...columns.map(([name, now]) => el("div", {},
    el("dt", {}, name),
    el("dd", {}, before ? el("s", { class: "soft" }, value(before.get(name))) : null, before ? " " : null, before ? el("span", { class: "now" }, "→ ", value(now)) : value(now)))));
}

const value = (content) => (content === null || content === undefined ? el("i", { class: "soft" }, "null") : String(content));
