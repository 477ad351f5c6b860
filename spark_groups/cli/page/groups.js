// The groups of the cluster.

import { Table } from "./table.js";
import { UNKNOWN, age, clock, make, number, pill, plain, setText } from "./text.js";

const SHOWN_TYPES = new Set(["classic", "consumer"]);

export class GroupsPage {
  constructor() {
    this.table = new Table("groups", [
      { header: "group", text: (row) => row.group_id, fill },
      { header: "type", text: (row) => plain(row.group_type) },
      { header: "protocol", text: (row) => plain(row.protocol_type) },
      { header: "state", text: (row) => plain(row.group_state), fill: fillState },
      { header: "for", numeric: true, text: (row) => this.age(row), order: (row) => row.state_since_s && -row.state_since_s,
        hint: ageHint },
      { header: "members", numeric: true, text: (row) => number(row.details?.members),
        order: (row) => row.details?.members ?? null, hint: readHint },
      { header: "lag", numeric: true, text: lag, order: (row) => row.details?.lag ?? null, hint: readHint },
    ], (row) => row.group_id, "the cluster has no groups");
    this.element = this.table.element;
  }

  age(row) {
    if (row.state_since_s === null) return UNKNOWN;
    return `${row.state_began_earlier ? "> " : ""}${age(this.now - row.state_since_s)}`;
  }

  show(frame, filter) {
    this.now = frame.at_s;
    const matches = (row) =>
      [row.group_id, row.group_type, row.group_state].some((each) => each.toLowerCase().includes(filter));
    this.table.show(frame.groups || [], matches);
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
  const at = clock(row.state_since_s);
  return row.state_began_earlier ? `already in this state at the first poll, ${at}` : `since ${at}`;
}

function lag(row) {
  if (!row.details) return UNKNOWN;
  const unknown = row.details.unknown_lag_partitions;
  return number(row.details.lag) + (unknown && row.details.lag !== null ? ` (${number(unknown)} unknown)` : "");
}

function readHint(row) {
  return row.details ? `read at ${clock(row.details.read_at_s)}` : "not read yet: each poll reads a few groups";
}
