// The groups of the cluster.

import { Table } from "./table.js";
import { make, plain } from "./text.js";

const SHOWN_TYPES = new Set(["classic", "consumer"]);

export class GroupsPage {
  constructor() {
    this.table = new Table("groups", [
      { header: "group", text: (row) => row.group_id, fill },
      { header: "type", text: (row) => plain(row.group_type) },
      { header: "protocol", text: (row) => plain(row.protocol_type) },
      { header: "state", text: (row) => plain(row.group_state) },
    ], (row) => row.group_id, "the cluster has no groups");
    this.element = this.table.element;
  }

  show(frame, filter) {
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
