// The groups of the cluster.

import { Table } from "./table.js";
import { UNKNOWN, age, make, moment, number, pill, plain, setText } from "./text.js";

const SHOWN_TYPES = new Set(["classic", "consumer"]);
const BROKERS_SHOWN = 6;
const TOPICS_SHOWN = 3;

export class GroupsPage {
  constructor() {
    this.head = make("p", { id: "cluster", class: "quiet", hidden: true });
    this.table = new Table("groups", [
      { header: "group", text: (row) => row.group_id, fill, total: (rows) => `total of ${number(rows.length)}` },
      { header: "state", text: (row) => plain(row.group_state), fill: fillState },
      { header: "lag", numeric: true, first: true, text: lag, order: (row) => row.details?.lag ?? null,
        hint: readHint, total: totalLag },
      { header: "members", numeric: true, text: (row) => number(row.details?.members),
        order: (row) => row.details?.members ?? null, hint: readHint, total: totalMembers },
      { header: "topics", roomy: true, text: topics, style: () => "wide", hint: topicsHint },
      { header: "type", roomy: true, text: (row) => plain(row.group_type) },
      { header: "protocol", roomy: true, text: (row) => plain(row.protocol_type) },
      { header: "time in state", numeric: true, roomy: true, text: (row) => this.age(row),
        order: (row) => row.state_since_s && -row.state_since_s, hint: ageHint },
    ], (row) => row.group_id, "the cluster has no groups");
    this.element = make("div", {}, this.head, this.table.element);
  }

  age(row) {
    if (row.state_since_s === null) return UNKNOWN;
    return `${row.state_began_earlier ? "> " : ""}${age(this.now - row.state_since_s)}`;
  }

  show(frame, filter) {
    this.now = frame.at_s;
    this.showCluster(frame);
    const matches = (row) => [row.group_id, row.group_type, row.group_state, ...(row.details?.topics || [])]
      .some((each) => each.toLowerCase().includes(filter));
    this.table.show(frame.groups || [], matches);
  }

  showCluster(frame) {
    const { brokers } = frame;
    this.head.hidden = !brokers.length;
    const rest = brokers.length - BROKERS_SHOWN;
    const named = `${brokers.slice(0, BROKERS_SHOWN).join(", ")}${rest > 0 ? ` and ${number(rest)} more` : ""}`;
    const count = brokers.length === 1 ? "1 broker" : `${number(brokers.length)} brokers`;
    setText(this.head, `cluster ${plain(frame.cluster_id)} · ${count}: ${named}`);
  }
}

function fill(cell, row) {
  if (cell.firstChild) return;
  const isShown = SHOWN_TYPES.has(row.group_type);
  const href = `#${new URLSearchParams({ group: row.group_id })}`;
  cell.append(isShown ? make("a", { href }, row.group_id) : row.group_id);
}

function fillState(cell, row) {
  const state = plain(row.group_state);
  if (!cell.firstChild) cell.append(pill(state));
  cell.firstChild.className = pill(state).className;
  setText(cell.firstChild, state);
}

function ageHint(row) {
  if (row.state_since_s === null) return "";
  const at = moment(row.state_since_s);
  return row.state_began_earlier ? `already in this state at the first poll, ${at}` : `since ${at}`;
}

function lag(row) {
  if (!row.details) return UNKNOWN;
  const unknown = row.details.unknown_lag_partitions;
  return number(row.details.lag) + (unknown && row.details.lag !== null ? ` (${number(unknown)} unknown)` : "");
}

function topics(row) {
  if (!row.details) return UNKNOWN;
  const { topics: names, topic_count: count } = row.details;
  const shown = names.slice(0, TOPICS_SHOWN);
  const rest = count - shown.length;
  return shown.join(", ") + (rest > 0 ? ` and ${number(rest)} more` : "");
}

function topicsHint(row) {
  return row.details && row.details.topic_count > TOPICS_SHOWN ? row.details.topics.join(", ") : "";
}

// The sum of what is known; groups of other types are never read.
function totalLag(rows) {
  const read = rows.filter((row) => SHOWN_TYPES.has(row.group_type));
  const known = read.flatMap((row) => row.details?.lag ?? []);
  if (!known.length) return UNKNOWN;
  const unknown = read.filter((row) => !row.details || row.details.unknown_lag_partitions).length;
  return number(sum(known)) + (unknown ? ` (unknown in ${number(unknown)})` : "");
}

function totalMembers(rows) {
  const known = rows.flatMap((row) => row.details?.members ?? []);
  return known.length ? number(sum(known)) : UNKNOWN;
}

function sum(values) {
  return values.reduce((a, b) => a + b, 0);
}

function readHint(row) {
  return row.details ? `read at ${moment(row.details.read_at_s)}` : "not read yet: each poll reads a few groups";
}
